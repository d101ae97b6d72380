"""Every panel in words, for eyes: python -m tests.telemetry.looking

A life of a monitor is shown to a real Prometheus, and what each panel would show is printed: its
kind and unit, its series under their legends, or what it says when there is nothing.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from monitor.store import Store
from monitor.telemetry.dashboards import BOARDS, Board
from monitor.telemetry.dashboards.model import Panel, Query, scoped
from monitor.telemetry.exporter import Exporter
from tests.telemetry import feeding
from tests.telemetry.servers import Prometheus, prometheus
from tests.telemetry.test_prometheus import LINKS, prepared

#: Enough scrapes for a rate.
SECONDS = 12
SHOWN = 3


def shown(server: Prometheus, board: Board) -> Iterator[str]:
    yield f"== {board.title}"
    for panel in board.panels:
        if panel.kind == "row":
            yield f"-- {panel.title}"
        for query in panel.queries:
            found = list(_series(server, panel, query)) or [f"nothing: {panel.nothing!r}"]
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            yield f"{panel.title} [{panel.kind}, {panel.unit}]: {', '.join(found[:SHOWN])}{more}"


def _series(server: Prometheus, panel: Panel, query: Query) -> Iterator[str]:
    for one in server.query(prepared(scoped(query.expr))):
        labels, value = one["metric"], f"{float(one['value'][1]):.4g}"
        if panel.kind == "table":
            yield f"{labels} {value}"
        else:
            yield f"{_legend(query.legend, labels) or 'value'} = {value}"


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], "?"), pattern)


def fall_silent(store: Store, source: str) -> None:
    """A source that last sent five days ago, and was looked for ever since."""
    now = datetime.now(UTC)
    feeding.judge(store, source)
    feeding.note_source(store, source, committed=now - timedelta(days=5))
    hours = {"hour": int(now.timestamp() // 3600), "observed": "f" * 48, "sent": {}}
    looks = {"since": (now - timedelta(days=5)).isoformat(), "at": now.isoformat()}
    with store.transaction() as tx:
        tx.notes.set("metrics", "hours", hours)
        tx.notes.set("metrics", "looks", looks)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "state") as store:
        feeding.whole_life(store)
        fall_silent(store, "cam-9")
        with Exporter(store, LINKS, group="harbour") as exporter:
            assert exporter.url is not None
            where = Path(folder) / "prometheus"
            with prometheus(where, monitor=exporter.url, alertmanager=None) as server:
                for _ in range(SECONDS):
                    for source in ("cam-1", "cam-2"):
                        feeding.judge(store, source)
                        feeding.note_source(store, source)
                    exporter.observe_stage("embed", 0.2)
                    time.sleep(1)
                for board in BOARDS:
                    click.echo("\n".join(shown(server, board)))


if __name__ == "__main__":
    main()
