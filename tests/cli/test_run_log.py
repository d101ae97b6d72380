"""What ``conclad run`` says: a line that stays below, sentences above it, JSON for programs."""

from __future__ import annotations

import io
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from monitor.cli import run as run_module
from monitor.cli.output import CLEAR_LINE, Output
from monitor.cli.run import RunGlance, RunLog, glance, line, next_steps
from monitor.config import Config
from monitor.store import Store
from monitor.store.records import Count
from tests.jobs.feeds import config_for

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def moment(seconds: int, judged: int, *, pool: int = 0, questions: int = 0) -> RunGlance:
    novel = {"cam-1": (judged // 10, judged)}
    at = NOON + timedelta(seconds=seconds)
    return RunGlance(at, judged, novel, pool, NOON if pool else None, questions)


def test_sentences_stand_above_the_live_line() -> None:
    stream = Terminal()
    output = Output(stream=stream)
    output.live("100 images")
    output.note("pool 1: quiet")
    output.live("")
    assert stream.getvalue() == (
        f"{CLEAR_LINE}100 images{CLEAR_LINE}pool 1: quiet\n100 images{CLEAR_LINE}"
    )


def test_a_log_has_no_live_line() -> None:
    stream = io.StringIO()
    output = Output(stream=stream)
    output.live("100 images")
    output.note("pool 1: quiet")
    assert stream.getvalue() == "pool 1: quiet\n"


def test_json_lines_are_for_programs() -> None:
    stream = io.StringIO()
    RunLog(Output(stream=stream), as_json=True).tell("pool.quiet", "pool 1: quiet", group="north")
    told = json.loads(stream.getvalue())
    assert (told["kind"], told["text"], told["group"]) == ("pool.quiet", "pool 1: quiet", "north")
    assert datetime.fromisoformat(told["at"]).tzinfo is not None


def test_the_line_says_when_the_pool_is_inspected() -> None:
    config = Config()
    fast = line(moment(10, 1300, pool=1300), moment(0, 1000, pool=1000), config, "")
    assert "pool 1,300 of 2,000, full in 23 s" in fast
    still = line(moment(3600, 1300, pool=1300), moment(3590, 1300, pool=1300), config, "")
    assert "pool 1,300 of 2,000, closed in 23 h at the latest" in still
    few = line(moment(20, 40, pool=40), moment(10, 40, pool=40), config, "")
    assert "inspected from 100 on" in few


@pytest.mark.parametrize(
    ("now", "held", "quarantined", "expected"),
    [
        (moment(0, 500, questions=7), 0, 0, "7 questions wait: conclad desk"),
        (moment(0, 500), 1, 0, "1 detector versions are held: conclad detector list"),
        (moment(0, 500), 0, 2, "see what was quarantined: conclad quarantine list"),
        (moment(0, 0), 0, 0, "no image was judged; bring some: conclad ingest IMAGES --to feed"),
        (moment(0, 500, pool=40), 0, 0, "the last pool holds 40 of 2,000 images"),
    ],
)
def test_the_end_says_what_to_do(
    now: RunGlance, held: int, quarantined: int, expected: str
) -> None:
    assert next_steps(now, Config(), held=held, quarantined=quarantined)[0].startswith(expected)


def test_it_is_read_from_the_store_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "LOOK_SECONDS", 0.01)
    config, stream = config_for(tmp_path), Terminal()
    with Store.open(tmp_path / "state") as store:
        with store.transaction() as tx:
            tx.counters.add(
                [Count("images", "cam-1", "known", 90), Count("images", "cam-1", "novel", 10)]
            )
        assert glance(store).novel == {"cam-1": (10, 100)}
        with RunLog(Output(stream=stream), as_json=False).watching(config, desk=True):
            deadline = time.monotonic() + 20
            while "novel: cam-1 10.0%" not in stream.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
    assert "100 images, 0.0/s; novel: cam-1 10.0%" in stream.getvalue()
