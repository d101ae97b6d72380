"""``conclad status`` tells the truth of the store, with or without a monitor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from monitor.cli.root import run
from monitor.store import Store
from monitor.telemetry.status_report import describe
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.conftest import Clock
from tests.telemetry import feeding


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "state") as store:
        feeding.whole_life(store)
    return tmp_path / "state"


def test_json_for_programs(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--json", "--set", f"state.dir={state}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["monitor"]["running"]
    assert found["monitor"]["owner"] == "host-1:4242"
    assert found["detector"]["version"] == 2
    assert found["detector"]["classes"] == {"known": 2, "discovered": 0}
    assert found["detector"]["t_inner"] > 0
    assert found["images"]["cam-2"] == {"known": 100, "novel": 12, "rejected": 1, "duplicate": 0}
    assert found["files"]["quarantined"] == 1
    assert found["pools"]["waiting"] == 1
    assert found["questions"]["open"] == 3
    assert found["questions"]["oldest_age_seconds"] >= 0
    assert found["labels"]["spent"] == 9
    assert found["discoveries"][0]["source"] == "cam-2"
    assert found["drift"]["cam-1"] == {
        "level": 0.2,
        "strength": 0.05,
        "learning": 0,
        "active": False,
        "since": None,
        "words": None,
    }


def test_words_for_people(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--set", f"state.dir={state}"]) == 0
    text = capsys.readouterr().out
    assert "A monitor is running: host-1:4242" in text
    assert "Actors: 2 embedder (and 1 starting), 1 scorer" in text
    assert "dune at cam-2 (4 by people, 12 by pseudo-label)" in text
    assert "Questions open: 3" in text
    assert "cam-1" in text


def test_it_says_when_no_monitor_is_running(store: Store, clock: Clock) -> None:
    feeding.fit(store)
    assert "none has run on this state" in describe(StoreSummaryReader(store).read())
    feeding.start_monitor(store, owner="host-1:7", ttl=30)
    clock.advance(minutes=1)
    assert "the last one was host-1:7" in describe(StoreSummaryReader(store).read())


def test_drift_is_said_in_words_only_while_it_lasts(store: Store, clock: Clock) -> None:
    feeding.fit(store)
    feeding.judge(store, "cam-1")
    feeding.drifts(store, "cam-1", 0.4)
    assert "Drift" not in describe(StoreSummaryReader(store).read())
    feeding.drifts(store, "cam-1", 3.0)
    clock.advance(hours=3)
    line = "Drift: cam-1 for 3 h, strength 0.75 (darker, blurred)."
    assert line in describe(StoreSummaryReader(store).read())


def test_a_misspelt_folder_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--set", f"state.dir={tmp_path / 'none'}"]) == 2
    assert "holds no state" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_watch_goes_on_and_sees_what_changes(state: Path) -> None:
    command = [sys.executable, "-m", "monitor.cli", "status", "--watch", "--every", "0.1", "--json"]
    with subprocess.Popen(
        [*command, "--set", f"state.dir={state}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            looks = _documents(process.stdout)
            assert next(looks)["images"]["cam-1"]["known"] == 100
            with Store.open(state) as store:
                feeding.judge(store, "cam-1", known=5, novel=0, rejected=0)
            assert any(look["images"]["cam-1"]["known"] == 105 for look in looks)
        finally:
            process.send_signal(signal.SIGINT)
            # Read on to the end: it may have more to say than the pipe takes.
            process.communicate(timeout=120)
        assert process.returncode == 130


def _documents(stream: IO[str] | None) -> Iterator[dict[str, Any]]:
    assert stream is not None
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if line == "}\n":
            yield json.loads("".join(lines))
            lines = []
