"""With a real Prometheus and a real Alertmanager: silence when nothing is new, news when it is."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from monitor.config.telemetry_section import MetricsSection
from monitor.store import Store
from monitor.telemetry.dashboards import BOARDS
from monitor.telemetry.exporter import Exporter
from tests.telemetry import feeding
from tests.telemetry.receiving import PATIENCE, Receiver
from tests.telemetry.servers import Prometheus, alertmanager, prometheus
from tests.telemetry.test_deployed import grafana_expressions, rules

LINKS = MetricsSection(
    port=0, desk_url="http://desk.example", grafana_url="http://grafana.example/", runbooks_url="/r"
)


@dataclass
class Watched:
    """A store that is fed, its exporter, and those who watch it."""

    store: Store
    exporter: Exporter
    prometheus: Prometheus
    receiver: Receiver

    def feed(self, *, novel: int = 2) -> None:
        for source in ("cam-1", "cam-2"):
            feeding.judge(self.store, source, known=98, novel=novel, rejected=1)
            feeding.note_source(self.store, source)
        for stage in ("embed", "score", "commit"):
            self.exporter.observe_stage(stage, 0.2)

    def until(self, condition: Callable[[], bool], *, novel: int = 2) -> None:
        """Feed on until something holds; a feed that stops has no rates."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self.feed(novel=novel)
            time.sleep(0.5)


@pytest.fixture
def watched(live_store: Store, tmp_path: Path) -> Iterator[Watched]:
    feeding.fit(live_store)
    feeding.start_monitor(live_store)
    with (
        Receiver() as receiver,
        Exporter(live_store, LINKS) as exporter,
        alertmanager(tmp_path / "alertmanager", receiver=receiver.url) as told,
    ):
        assert exporter.url is not None
        with prometheus(
            tmp_path / "prometheus", monitor=exporter.url, alertmanager=told
        ) as watching:
            yield Watched(live_store, exporter, watching, receiver)


def test_nothing_new_raises_nothing_and_a_new_class_arrives_with_its_source(
    watched: Watched,
) -> None:
    feeding.drifts(watched.store, "cam-1", 0.2)
    began = time.time()

    def judged() -> bool:
        """Every rule has looked several times at a feed that runs."""
        seen = watched.prometheus.value("sum(changes(conclad_images_total[1m]))") or 0
        looked = [rule["lastEvaluation"] for rule in watched.prometheus.rules()]
        return seen >= 5 and len(looked) == len(rules()) and time.time() - began > 5

    watched.until(judged)
    assert watched.prometheus.value("conclad_monitor_running") == 1
    # One embedder is starting, and may take half an hour.
    waiting = {"EmbeddersNotStarting"}
    assert {a["labels"]["alertname"] for a in watched.prometheus.alerts()} <= waiting
    assert watched.receiver.messages.empty()

    queries = feeding.ask(watched.store, "cam-2", count=6)
    feeding.answer(watched.store, queries)
    feeding.discover(watched.store, queries)
    message = watched.receiver.next().json
    [alert] = message["alerts"]
    assert message["receiver"] == "operators"
    assert alert["status"] == "firing"
    assert alert["labels"]["alertname"] == "NovelClassDetected"
    assert alert["labels"]["source"] == "cam-2"
    assert alert["labels"]["class_name"] == "dune"
    assert alert["annotations"]["summary"] == "A new class, dune, has appeared at cam-2"
    assert alert["annotations"]["desk_url"] == "http://desk.example/classes"
    assert alert["annotations"]["runbook_url"] == "/r/NovelClassDetected.md"
    assert alert["annotations"]["dashboard_url"] == (
        "http://grafana.example/d/conclad-overview?var-group=&var-source=cam-2"
    )
    found = [a["labels"] for a in watched.prometheus.alerts()]
    assert {one["source"] for one in found if one["alertname"] not in waiting} == {"cam-2"}
    assert {rule["health"] for rule in watched.prometheus.rules()} == {"ok"}


def test_no_panel_and_no_rule_is_dead(watched: Watched) -> None:
    queries = feeding.ask(watched.store, "cam-2", count=6)
    feeding.answer(watched.store, queries)
    feeding.discover(watched.store, queries)
    feeding.ask(watched.store, "cam-1", count=3, version=2)
    feeding.wait(watched.store)
    feeding.trouble(watched.store)
    for source in ("cam-1", "cam-2"):
        feeding.drifts(watched.store, source, 1.4)
    feeding.correct_shift(watched.store, "cam-2")
    feeding.refuse_messages(watched.store, "http://chat.example")
    asked = {prepared(expr) for board in BOARDS for expr in board.expressions()}
    asked |= set(grafana_expressions())
    # A rule has a value only while it fires; what it looks at must be there always.
    asked |= {part for rule in rules() for part in selectors(rule["expr"])}
    # No Ray is scraped here, and nobody is silent; both are tested elsewhere.
    asked = {e for e in asked if not re.search(r"\b(ray|autoscaler)_|source_silent_seconds", e)}
    dead = set(asked)

    def all_alive() -> bool:
        dead.difference_update([expr for expr in dead if alive(watched.prometheus, expr)])
        return not dead

    try:
        watched.until(all_alive)
    except AssertionError:
        pytest.fail("no data for:\n" + "\n".join(sorted(dead)), pytrace=False)
    assert len(asked) > 60
    for rule in rules():
        watched.prometheus.query(rule["expr"])


def alive(server: Prometheus, expr: str) -> bool:
    """Something is shown: a value that is a number, that is."""
    return any(not math.isnan(float(series["value"][1])) for series in server.query(expr))


def prepared(expr: str) -> str:
    """With what Grafana would put in place of its variables."""
    for name, value in {"$__rate_interval": "20s", "$source": ".*", "$group": ".*"}.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def selectors(expr: str) -> set[str]:
    """
    >>> sorted(selectors('increase(conclad_a_total{x="y"}[1h]) > 2 * up{job="conclad"}'))
    ['conclad_a_total{x="y"}', 'up{job="conclad"}']
    """
    return set(re.findall(r"(?:conclad_\w+|\bup)\b(?:\{[^}]*\})?", expr))
