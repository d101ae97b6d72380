"""A real monitor over a real feed, watched by a real Prometheus and Alertmanager."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.config import Config
from monitor.config.telemetry_section import MetricsSection
from tests.actors.story import KINDS, tell_story, with_oracle
from tests.jobs.feeds import write_feed
from tests.telemetry.receiving import Receiver
from tests.telemetry.servers import Prometheus, alertmanager, free_port, prometheus

#: A monitor loads torch first; on a crowded machine that alone takes most of a minute.
PATIENCE = 240.0


def test_a_new_class_in_the_feed_reaches_the_operator_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    story = tell_story(tmp_path / "story", "desk.enabled=false", chapters=("wf" * 30,))
    metrics = MetricsSection(port=free_port(), desk_url="http://desk.example")
    config = with_oracle(story.config).model_copy(update={"metrics": metrics})
    page = f"http://127.0.0.1:{metrics.port}/metrics"
    with (
        Receiver() as receiver,
        alertmanager(tmp_path / "alertmanager", receiver=receiver.url) as told,
        running(config),
        prometheus(tmp_path / "prometheus", monitor=page, alertmanager=told) as watching,
    ):
        until(lambda: judged(watching) == 60)
        until(lambda: pools(watching, "quiet") == 1)
        assert [a["labels"] for a in watching.alerts() if a["state"] == "firing"] == []
        assert receiver.messages.empty()

        kinds = [KINDS[letter] for letter in "wfss" * 15]
        write_feed(tmp_path / "story" / "feed" / "001.parquet", kinds, first_id=60, source="cam-2")
        message = receiver.messages.get(timeout=PATIENCE).json
        [alert] = message["alerts"]
        assert alert["labels"]["alertname"] == "NovelClassDetected"
        assert alert["labels"]["source"] == "cam-2"
        assert alert["labels"]["class_name"] == "sand"
        assert alert["annotations"]["desk_url"] == "http://desk.example/classes"
        until(lambda: judged(watching) == 120)
        assert watching.value("conclad_detector_version") == 2
        assert watching.value("conclad_discovered_classes") == 1
        assert (watching.value("conclad_labels_spent_total") or 0) > 0
        assert watching.value('sum(conclad_images_total{source="cam-1"})') == 60
        stages = watching.query("sum by (stage) (conclad_stage_duration_seconds_count)")
        assert all(float(stage["value"][1]) > 0 for stage in stages)
        assert stages


def judged(server: Prometheus) -> float | None:
    return server.value('sum(conclad_images_total{outcome=~"known|novel"})')


def pools(server: Prometheus, state: str) -> float | None:
    return server.value(f'conclad_pools{{state="{state}"}}')


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@contextmanager
def running(config: Config) -> Iterator[None]:
    """``conclad run`` in a process of its own, stopped as an operator would stop it."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(config,))
    process.start()
    try:
        yield
        assert process.is_alive(), f"the monitor ended by itself with {process.exitcode}"
    finally:
        process.terminate()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            pytest.fail("the monitor did not stop")
    assert process.exitcode == 0


def _run(config: Config) -> None:
    from actors.run_monitor import run, services

    run(config, services=services)
