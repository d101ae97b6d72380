"""``conclad status``."""

from __future__ import annotations

import time
from contextlib import ExitStack

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, data_for_each, for_each
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store
from monitor.store.errors import SnapshotSchemaError, StoreError
from monitor.telemetry.status_report import describe, to_dict
from monitor.telemetry.store_reading import StoreSummaryReader

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
    together every look is one JSON document after the other. Where the configuration has groups
    of sources, all of them are shown unless --group names one.
    """
    with ExitStack() as stack:
        readers = {
            name: StoreSummaryReader(
                _of_this_layout(stack.enter_context(open_existing_store(config)))
            )
            for name, config in loaded.each().items()
        }
        while True:
            truths = {name: reader.read() for name, reader in readers.items()}
            text = for_each({name: describe(truth) for name, truth in truths.items()})
            found = data_for_each({name: to_dict(truth) for name, truth in truths.items()})
            output.result(found, (REDRAW + text) if watch else text)
            if not watch:
                return
            time.sleep(every)


def _of_this_layout(store: Store) -> Store:
    """Refuse state whose detector another conclad wrote: it wants a new fit, not a look.

    A detector that is damaged is part of the report, beside everything that is well.
    """
    try:
        current_knowledge(store)
    except SnapshotSchemaError:
        raise
    except (StoreError, OSError):
        pass
    return store
