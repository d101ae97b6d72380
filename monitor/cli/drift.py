"""``conclad drift``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.store.note_and_counter_names import DRIFT

# Where the monitor keeps what it knows of each source.


@click.command()
@click.argument("sources", nargs=-1)
@with_config
@with_output
def drift(sources: tuple[str, ...], loaded: Loaded, output: Output) -> None:
    """Show for each source whether its known classes look different from usual.

    Names of SOURCES show only these.
    """
    with open_existing_store(loaded.config) as store, store.reading() as tx:
        kept = tx.notes.all(DRIFT)
    shown = {name: kept[name]["verdict"] for name in (sources or kept) if name in kept}
    missing = [name for name in sources if name not in kept]
    for name in missing:
        output.note(f"too little has been seen of source {name!r}")
    lines = [line(name, verdict) for name, verdict in shown.items()]
    if not lines and not missing:
        lines = ["No source has been watched yet; drift is judged when a pool closes."]
    output.result(shown, "\n".join(lines))


def line(source: str, verdict: Mapping[str, Any]) -> str:
    """One source in one line.

    >>> line("cam", {"learning": 3, "shifted": False, "level": 0.0})
    'cam: learning what is normal, 3 more pools'
    >>> line("cam", {"learning": 0, "shifted": False, "level": 0.4})
    'cam: as usual (evidence at 40% of an alarm)'
    """
    if verdict["learning"]:
        return f"{source}: learning what is normal, {verdict['learning']} more pools"
    if not verdict["shifted"]:
        return f"{source}: as usual (evidence at {100 * min(verdict['level'], 1):.0f}% of an alarm)"
    what = ", ".join(verdict["words"]) or "no change of light, focus, noise or colour"
    text = f"{source}: SHIFTED since {_time(verdict['since'])}: {what}; "
    text += f"strength {verdict['strength']:.2f}"
    if verdict.get("seen_before") is not None:
        text += f", seen before until {_time(verdict['seen_before'])}"
    return text


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
