"""State of an earlier layout is refused in words, and left as it was.

The archive in ``states`` was written by ``make_state`` with the code of its day, before the first
release.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.store.tables import SCHEMA_VERSION
from tests.deploy.make_state import CHAPTERS, COLOURS, write_feed

STATES = Path(__file__).parent / "states"
LETTERS = "".join(CHAPTERS)
ONCE = ("run", "--once", "--address", "none")
REFUSED = (
    f"this conclad has layout {SCHEMA_VERSION} and cannot read it; name a new state folder with "
    "state.dir and fit again with conclad fit --data FILES"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(STATES / "ff6a7e9.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def snapshots(state: Path) -> dict[str, str]:
    files = (path for path in (state / "detectors").rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("command", [ONCE, ("status",)], ids=["run", "status"])
def test_an_earlier_layout_is_refused_with_what_to_do(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshots(folder / "state")
    assert run([*command, "--quiet"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert REFUSED in said.err
    assert snapshots(folder / "state") == before


def test_what_the_sentence_says_helps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_feed(folder / "labelled.parquet", "wf" * 60, first_id=100_000)
    fresh = ("--set", "state.dir=fresh", "--set", "labels.trickle_per_week=0", "--json", "--quiet")
    assert run(["fit", "--data", "labelled.parquet", *fresh]) == 0
    capsys.readouterr()
    assert run([*ONCE, "--oracle-column", "label", *fresh]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["images"].values()) == len(LETTERS)
    assert sorted(found["discovered"]) == sorted({COLOURS[letter][0] for letter in "sn"})
