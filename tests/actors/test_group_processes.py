"""Groups of sources: a monitor each, which learn apart and die alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from monitor.cli.root import run
from monitor.config import load
from monitor.store import Store
from tests.actors.story import rows
from tests.jobs.feeds import write_feed

#: Two processes that load torch, on a machine that many share.
PATIENCE = 240.0


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A coast where sand appears and a wood where nothing does; both know water and forest."""
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    feed = tmp_path / "feed"
    write_feed(feed / "coast" / "0.parquet", ["water", "forest", "sand", "sand"] * 20, source="c-1")
    write_feed(feed / "wood" / "0.parquet", ["water", "forest"] * 40, source="w-1")
    path = tmp_path / "c.yaml"
    path.write_text(
        f"feed: {{path: {feed}, batch_rows: 16}}\n"
        f"state: {{dir: {tmp_path / 'state'}}}\n"
        "backbone: {name: tiny, engine: torch}\n"
        "run: {address: none}\n"
        "pools: {size: 80, least: 20}\n"
        "labels: {budget: 0.15, oracle_column: label}\n"
        "novelty: {settings: {least: 4}}\n"
        "gate: {stolen_most: 0.5, false_novel_most: 0.5}\n"
        "desk: {enabled: false}\n"
        "metrics: {port: 0}\n"
        "groups: {coast: {}, wood: {}}\n"
    )
    labelled = write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 150, first_id=9000)
    assert run(["fit", "--quiet", "--config", str(path), "--data", str(labelled)]) == 0
    return path


def state(file: Path, group: str) -> Path:
    return Path(load(file, environ={}, group=group).config.state.dir)


def test_groups_learn_apart(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["run", "--once", "--json", "--config", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)["groups"]
    assert found["coast"]["discovered"] == ["sand"]
    assert found["wood"]["discovered"] == []
    for group, source in (("coast", "c-1"), ("wood", "w-1")):
        with Store.open(state(file, group)) as store:
            verdicts = rows(store, "verdicts")
        assert len(verdicts) == 80
        assert all(source in row for row in verdicts)

    assert run(["status", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.index("== coast ==") < text.index("sand") < text.index("== wood ==")
    assert run(["classes", "--json", "--group", "wood", "--config", str(file)]) == 0
    assert "sand" not in capsys.readouterr().out
    assert run(["questions", "--config", str(file)]) == 2
    assert "say which one is meant with --group: coast, wood" in capsys.readouterr().err


def test_a_group_that_dies_is_started_again_and_the_other_goes_on(file: Path) -> None:
    coast, wood = state(file, "coast"), state(file, "wood")
    with monitors(file) as process:
        first = {
            place: until(place, process, lambda pid: pid is not None) for place in (coast, wood)
        }
        os.kill(first[coast], signal.SIGKILL)
        second = until(coast, process, lambda pid: pid not in (None, first[coast]))
        assert second != first[wood]
        assert monitor_of(wood) == first[wood]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert monitor_of(coast) is monitor_of(wood) is None
    assert not any(is_alive(pid) for pid in (second, first[wood]))


@contextmanager
def monitors(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "monitor.cli", "run", "--quiet", "--config", str(file)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        # Those of the groups notice that it is gone.
        process.kill()
        process.wait()


def monitor_of(place: Path) -> int | None:
    """The process that holds the state and has said so."""
    with Store.open(place) as store, store.reading() as tx:
        lease = tx.leases.get("coordinator")
        note: dict[str, Any] = tx.notes.get("monitor", "coordinator", {})
        now = tx.now
    if lease is None or lease.expires_at <= now or note.get("owner") != lease.owner:
        return None
    return int(lease.owner.partition(" pid ")[2].split()[0])


def until(
    place: Path, process: subprocess.Popen[bytes], is_so: Callable[[int | None], bool]
) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, "the one who watches has ended"
        found = monitor_of(place)
        if found is not None and is_so(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing of the kind within {PATIENCE:g} s")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
