"""``conclad drift`` tells what the monitor knows of each source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.novelty.drift.source_drift import DriftVerdict
from monitor.store import Store

AS_USUAL = DriftVerdict("", False, False, False, 0.0, 0.25, None, (), 0)
DIRTY = DriftVerdict("", True, False, False, 0.31, 1.4, 86_400.0, ("darker", "blurred"), 0, 3600.0)


@pytest.fixture
def state(tmp_path: Path) -> str:
    with Store.open(tmp_path / "state") as store, store.transaction() as tx:
        for source, verdict in (("north", AS_USUAL), ("south", DIRTY)):
            tx.notes.set("drift", source, {"state": {}, "verdict": verdict.to_json()})
    return f"state.dir={tmp_path / 'state'}"


def test_every_source_has_a_line(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drift", "--set", state]) == 0
    north, south = capsys.readouterr().out.splitlines()
    assert north == "north: as usual (evidence at 25% of an alarm)"
    assert south == (
        "south: SHIFTED since 1970-01-02 00:00 UTC: darker, blurred; strength 0.31, "
        "seen before until 1970-01-01 01:00 UTC"
    )


def test_one_source_for_programs(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drift", "south", "nowhere", "--json", "--set", state]) == 0
    streams = capsys.readouterr()
    shown = json.loads(streams.out)
    assert list(shown) == ["south"]
    assert shown["south"]["words"] == ["darker", "blurred"]
    assert "too little has been seen of source 'nowhere'" in streams.err
