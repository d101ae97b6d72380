"""State that an earlier release wrote is taken over: nothing lost, nothing judged or asked twice.

The archives in ``states`` were written by ``make_state`` with the code of their day.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from monitor.cli.root import run
from tests.actors.story import image_ids
from tests.deploy.make_state import CHAPTERS, COLOURS, RUN_SETTINGS

STATES = sorted((Path(__file__).parent / "states").glob("*.tar.xz"))
LETTERS = "".join(CHAPTERS)
ONCE = ("run", "--once", "--address", "none")


@pytest.fixture(params=STATES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    if not has_run(tmp_path):
        # Sections that came with a later release.
        with (tmp_path / "ray_config.yaml").open("a") as file:
            file.write(RUN_SETTINGS)
    return tmp_path


def has_run(folder: Path) -> bool:
    """Whether the release that wrote the state had a monitor already."""
    return bool(json.loads((folder / "made.json").read_text())["has_run"])


def conclad(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    code = run([*arguments, "--json", "--quiet"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_the_present_release_goes_on_where_the_earlier_one_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Opening brings the state to the present layout.
    assert conclad(capsys, "store", "check") == {"whole": True, "findings": [], "removed": []}
    before = conclad(capsys, "status")
    asked = conclad(capsys, "queries")
    judged = image_ids(folder / "state")
    assert (len(asked), len(judged)) == ((3, 180) if has_run(folder) else (0, 0))

    found = conclad(capsys, *ONCE)
    assert sum(found["images"].values()) == len(LETTERS)
    # What was judged stays judged, and everything is judged once.
    after = image_ids(folder / "state")
    assert sorted(after) == [f"{number:06d}" for number in range(len(LETTERS))]
    assert set(judged) <= set(after)
    assert found["version"] == before["detector"]["version"]
    assert {q["query_id"] for q in asked} <= {q["query_id"] for q in conclad(capsys, "queries")}
    assert conclad(capsys, "store", "check")["whole"]


def test_questions_of_the_earlier_release_are_answered_in_the_present_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One that could not ask yet leaves it to the present one, from the beginning.
    found = conclad(capsys, *ONCE) if not has_run(folder) else {}
    while asked := conclad(capsys, "queries"):
        for query in asked:
            truth = COLOURS[LETTERS[int(query["image_id"])]][0]
            conclad(capsys, "label", str(query["query_id"]), truth)
        found = conclad(capsys, *ONCE)
    assert sorted(found["discovered"]) == ["sand", "snow"]
    # Each question was asked and paid for once.
    everything = conclad(capsys, "queries", "--which", "all")
    assert len({q["image_id"] for q in everything}) == len(everything) == found["labels"]
    assert conclad(capsys, "store", "check")["whole"]
