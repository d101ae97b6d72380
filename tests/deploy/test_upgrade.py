"""State of a release is brought forward; state from before the first one is refused in words.

The archives in ``states`` were written by ``make_state`` with the code of their day.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
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


def unpack(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(STATES / name) as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From before the first release."""
    return unpack("ff6a7e9.tar.xz", tmp_path, monkeypatch)


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the first release: sand was discovered, and three questions are open."""
    return unpack("layout-5.tar.xz", tmp_path, monkeypatch)


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


def test_state_of_the_first_release_is_read_as_it_was_written(
    released: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = written(released / "state" / "verdicts")
    settled = written(released / "state" / "settled")
    assert (len(judged), len(settled)) == (180, 120)
    assert run(["verdicts", "--format", "parquet", "--out", "all.parquet"]) == 0
    found = {
        (row["source_id"], row["image_id"]): row
        for row in pq.read_table(released / "all.parquet").to_pylist()
    }
    assert found.keys() == judged.keys()
    for key, row in found.items():
        assert (row["verdict_immediate"], row["score_ratio"]) == (
            judged[key]["verdict"],
            judged[key]["score_ratio"],
        )
        in_pool = settled.get(key, {})
        assert (row["settled_verdict"], row["class_name"]) == (
            in_pool.get("verdict"),
            in_pool.get("class_name"),
        )
    capsys.readouterr()
    assert run(["classes", "--json"]) == 0
    classes = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["origin"] for row in classes} == {
        "forest": "fit",
        "water": "fit",
        "sand": "person",
    }
    assert run(["store", "check"]) == 0
    with closing(sqlite3.connect(released / "state" / "conclad.db")) as database:
        layouts = [number for (number,) in database.execute("SELECT number FROM schema_version")]
    assert layouts == list(range(5, SCHEMA_VERSION + 1))


def test_a_monitor_goes_on_with_state_of_the_first_release(
    released: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(9):  # rounds of a few questions, all about what nobody has named yet
        capsys.readouterr()
        assert run(["questions", "--json"]) == 0
        for question in json.loads(capsys.readouterr().out):
            name = truth(question["image_id"])
            assert run(["label", str(question["question_id"]), name, "--quiet"]) == 0
        capsys.readouterr()
        assert run([*ONCE, "--json", "--quiet"]) == 0
        found = json.loads(capsys.readouterr().out)
        if not found["open_questions"]:
            break
    assert sum(found["images"].values()) == len(LETTERS)
    assert sorted(found["classes"]) == ["forest", "sand", "snow", "water"]
    assert found["unaccounted"] == 0


def written(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of output files by image, read without conclad."""
    rows = [row for file in sorted(folder.iterdir()) for row in pq.read_table(file).to_pylist()]
    return {(row["source_id"], row["image_id"]): row for row in rows}


def truth(image_id: str) -> str:
    return COLOURS[LETTERS[int(image_id)]][0]
