"""Every panel for eyes: python -m tests.telemetry.looking [PICTURES] [--demo | --seconds 12]

A real Prometheus watches a monitor, and what each panel would show is printed: its kind and unit,
its series under their legends, or what it says when there is nothing. With a folder for pictures
each board is also drawn there, a small chart for every panel. The monitor is that of `conclad demo`
from its first batch to its last, or a store that is filled by hand with what a demo does not have.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import yaml

from monitor.store import Store
from monitor.telemetry.dashboards import BOARDS, Board
from monitor.telemetry.dashboards.model import WIDTH, Panel, Query, scoped
from monitor.telemetry.exporter import Exporter
from tests.telemetry import feeding
from tests.telemetry.servers import Prometheus, prometheus
from tests.telemetry.test_prometheus import LINKS, prepared

SHOWN = 3
#: How a figure is written, by Grafana's name of its unit.
UNITS: Mapping[str, str] = {
    "s": "{:,.3g} s",
    "cps": "{:,.3g}/s",
    "percent": "{:.3g}%",
    "percentunit": "{:.1%}",
    "bytes": "{:,.4g} B",
    "mbytes": "{:,.4g} MiB",
}


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
        labels, value = one["metric"], _figure(panel, float(one["value"][1]))
        if panel.kind == "table":
            yield f"{labels} {value}"
        else:
            yield f"{_legend(query.legend, labels) or 'value'} = {value}"


def _figure(panel: Panel, value: float) -> str:
    return UNITS.get(panel.unit or "", "{:,.4g}").format(value)


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], "?"), pattern)


def draw(server: Prometheus, board: Board, path: Path, *, seconds: float) -> None:
    """The board as a picture: panels where Grafana would put them."""
    from matplotlib.figure import Figure

    places = [panel["gridPos"] for panel in board.to_dict()["panels"]]
    height = max(place["y"] + place["h"] for place in places)
    figure = Figure(figsize=(WIDTH * 0.8, height * 0.42), dpi=80)
    for panel, place in zip(board.panels, places, strict=True):
        left, width = place["x"] / WIDTH, place["w"] / WIDTH
        low = 1 - (place["y"] + place["h"]) / height
        if panel.kind == "row":
            figure.text(left + 0.004, low + 0.2 / height, panel.title, fontsize=12, weight="bold")
            continue
        pad, tall = 0.032, (place["h"] - 2.4) / height
        axes = figure.add_axes((left + pad, low + 0.9 / height, width - 1.3 * pad, tall))
        axes.set_title(f"{panel.title} [{panel.unit or 'number'}]", fontsize=9, loc="left")
        _draw_panel(server, panel, axes, seconds)
    figure.savefig(path)


def _draw_panel(server: Prometheus, panel: Panel, axes: Any, seconds: float) -> None:
    is_line = panel.kind in ("timeseries", "heatmap")
    if not is_line:
        said = [text for query in panel.queries for text in _series(server, panel, query)]
        axes.axis("off")
        if panel.kind == "table":
            said = [re.sub(r"'(__name__|instance|job|desk)': '[^']*',? ?", "", one) for one in said]
        words = {key: word for key, (word, _) in (panel.words or {}).items()}
        said = [words.get(one.removeprefix("value = "), one) for one in said]
        axes.text(0, 0.95, "\n".join(said[:6]) or f"({panel.nothing})", fontsize=8, va="top")
        return
    begins = (server.moment or time.time()) - seconds
    for query in panel.queries:
        for one in server.query_range(
            prepared(scoped(query.expr)), seconds=seconds, step=max(1.0, seconds // 200)
        ):
            times = [float(at) - begins for at, _ in one["values"]]
            values = [float(value) for _, value in one["values"]]
            axes.plot(times, values, label=_legend(query.legend, one["metric"]) or "value")
    if not axes.lines:
        axes.text(0.5, 0.5, panel.nothing or "No data", ha="center", fontsize=9)
        return
    axes.tick_params(labelsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: _figure(panel, value))
    axes.legend(fontsize=6, loc="upper left", ncols=2)


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


@click.command()
@click.argument("pictures", required=False, type=click.Path(path_type=Path))
@click.option("--seconds", default=12, help="How long the feed goes on: enough for a rate.")
@click.option("--demo", is_flag=True, help="Watch the monitor of the demo: some minutes.")
def main(pictures: Path | None, seconds: int, demo: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for server, watched in _demo(folder) if demo else _by_hand(folder, seconds):
            for board in BOARDS:
                click.echo("\n".join(shown(server, board)))
                if pictures is not None:
                    pictures.mkdir(parents=True, exist_ok=True)
                    draw(server, board, pictures / f"{board.uid}.png", seconds=watched)


def _by_hand(folder: Path, seconds: int) -> Iterator[tuple[Prometheus, float]]:
    with Store.open(folder / "state") as store:
        feeding.whole_life(store)
        fall_silent(store, "cam-9")
        with Exporter(store, LINKS, group="harbour") as exporter:
            assert exporter.url is not None
            where = folder / "prometheus"
            with prometheus(where, monitor=exporter.url, alertmanager=None) as server:
                for _ in range(seconds):
                    for source in ("cam-1", "cam-2"):
                        feeding.judge(store, source)
                        feeding.note_source(store, source)
                    exporter.observe_stage("embed", 0.2)
                    time.sleep(1)
                yield server, seconds


def _demo(folder: Path) -> Iterator[tuple[Prometheus, float]]:
    """The demo with its own monitor; it is looked at as of the last scrape."""
    home, log = folder / "demo", folder / "demo.log"
    command = [sys.executable, "-m", "monitor.cli", "demo", "--dir", str(home), "--quiet"]
    with log.open("wb") as sink:
        running = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)
    config = home / "ray_config.yaml"
    while not config.exists():
        assert running.poll() is None, log.read_text()
        time.sleep(0.2)
    port = yaml.safe_load(config.read_text())["metrics"]["port"]
    where, url = folder / "prometheus", f"http://127.0.0.1:{port}"
    with prometheus(where, monitor=url, alertmanager=None) as server:
        assert running.wait() == 0, log.read_text()
        up = 'timestamp(up{job="conclad"} == 1)[2h:1s]'
        first = server.value(f"min_over_time({up})")
        server.moment = server.value(f"max_over_time({up})")
        assert first is not None, "the demo's monitor was never scraped"
        assert server.moment is not None
        yield server, server.moment - first


if __name__ == "__main__":
    main()
