"""A disk that is nearly full: ingest says so once, waits, and goes on."""

from __future__ import annotations

import shutil
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from monitor.ingest import wait_for_space as space
from monitor.ingest.ingest_job import ingest
from tests.ingest.making import cameras, images

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free bytes, one answer after the other; the last one stays."""
    answers = [10**12]

    def usage(path: object) -> Usage:
        return Usage(0, 0, answers.pop(0) if len(answers) > 1 else answers[0])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(space, "LOOK_SECONDS", 0.01)
    return answers


def test_it_waits_and_goes_on(tmp_path: Path, disk: list[int]) -> None:
    made, notes = cameras(tmp_path / "in", 10), list[str]()
    disk[:] = [5000, 5000, 5000, 10**12]
    ingest([str(tmp_path / "in")], tmp_path / "feed", note=notes.append)
    assert notes == [
        f"the disk of {tmp_path}/feed has 5.0 kB free, where 1.0 GB are kept free (--min-free): "
        "waiting",
        f"the disk of {tmp_path}/feed has room again: going on",
    ]
    assert images(tmp_path / "feed") == made


def test_a_stop_while_it_waits_loses_nothing(tmp_path: Path, disk: list[int]) -> None:
    made, stop = cameras(tmp_path / "in", 10), threading.Event()
    disk[:] = [0]
    done = ingest([str(tmp_path / "in")], tmp_path / "feed", stop=stop, note=lambda _: stop.set())
    assert done.was_stopped
    assert not list((tmp_path / "feed").glob("2*"))
    disk[:] = [10**12]
    ingest([str(tmp_path / "in")], tmp_path / "feed")
    assert images(tmp_path / "feed") == made
