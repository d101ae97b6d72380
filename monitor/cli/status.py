"""``conclad status``."""

from __future__ import annotations

import time

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.load import Loaded
from monitor.jobs.state import open_existing_store
from monitor.telemetry.reading import TruthReader
from monitor.telemetry.report import describe, to_dict

# Home the cursor and clear what is below: one screen that stays in place, no flicker.
REDRAW = "\x1b[H\x1b[J"


@click.command()
@click.option("--watch", is_flag=True, help="Go on showing it until interrupted.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
@with_config
@with_output
def status(watch: bool, every: float, loaded: Loaded, output: Output) -> None:
    """Show what the monitor knows, what is new, and what waits for you.

    Reads the state alone, so it also works when no monitor is running. With --watch and --json
    together every look is one JSON document after the other.
    """
    with open_existing_store(loaded.config) as store:
        reader = TruthReader(store)
        while True:
            truth = reader.read()
            text = describe(truth)
            output.result(to_dict(truth), (REDRAW + text) if watch else text)
            if not watch:
                return
            time.sleep(every)
