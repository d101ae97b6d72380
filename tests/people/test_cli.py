"""The commands about questions, classes and versions, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from monitor.cli.root import run
from monitor.store import Store
from tests.people import world

Conclad = Callable[..., Any]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return world.make(tmp_path / "state", 4)


@pytest.fixture
def conclad(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Conclad:
    """Runs a command on the state and returns its JSON, or its stderr if it fails."""
    monkeypatch.chdir(state.parent)

    def call(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert run([*arguments, "--json"]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out) if captured.out else captured.err

    return call


def test_questions_are_listed_answered_and_taken_back(conclad: Conclad) -> None:
    assert [one["question_id"] for one in conclad("questions")] == [1, 2, 3, 4]
    done = conclad("label", "1", "dune", "--who", "ada")
    assert (done["fate"], done["new_class"], done["answer"]["who"]) == ("accepted", True, "ada")
    assert conclad("label", "2", "c2")["class"] == "water"
    conclad("label", "3", "--cannot-tell")
    conclad("label", "4", "--bad-image")
    assert conclad("questions") == []
    answered = conclad("questions", "--which", "answered")
    assert [one["class"] for one in answered] == ["dune", "water", None, None]
    conclad("label", "1", "--undo")
    assert [one["question_id"] for one in conclad("questions")] == [1]


def test_people_read_sentences(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--set", f"state.dir={state}"]
    assert run(["questions", *where]) == 0
    assert "4 open. Answer with: conclad label QUESTION CLASS" in capsys.readouterr().out
    assert run(["label", "1", "dune", *where]) == 0
    assert capsys.readouterr().out == "question 1: dune\n"
    assert run(["label", "2", "Dunes", *where]) == 0
    assert "if 'dune' was meant: conclad label 2 --undo" in capsys.readouterr().err
    assert run(["classes", *where]) == 0
    assert "forest" in capsys.readouterr().out
    assert run(["detector", "list", *where]) == 0
    assert "1 *" in capsys.readouterr().out
    assert run(["detector", "show", "1", *where]) == 0
    assert "c2  water" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [["1"], ["1", "dune", "--undo"], [], ["1", "dune", "--from", "x.csv"]]
)
def test_one_thing_at_a_time(conclad: Conclad, state: Path, wrong: list[str]) -> None:
    (state.parent / "x.csv").touch()
    assert "give QUESTION and one of" in conclad("label", *wrong, code=2)


def test_a_refusal_is_one_sentence(conclad: Conclad) -> None:
    assert conclad("label", "99", "dune", code=2) == (
        "conclad: question 99: there is no such question\n"
    )
    assert "there is no such class" in conclad("classes", "retire", "lava", code=2)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "label-studio"])
def test_exports_for_other_tools(
    state: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    where = ["--set", f"state.dir={state}"]
    assert run(["questions", "--export", kind, *where]) == 0
    out = capsys.readouterr().out
    assert "1-0003" in out
    if kind == "label-studio":
        assert json.loads(out)[0]["data"]["image"].startswith("http://127.0.0.1:8484/thumbnails/")


def test_label_studio_is_given_its_labelling_interface(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["questions", "--export", "label-studio-interface", "--set", f"state.dir={state}"]
    assert run(arguments) == 0
    choices = [choice.get("value") for choice in ElementTree.fromstring(capsys.readouterr().out)[1]]
    assert choices == ["forest", "water", "cannot tell", "bad image"]


def test_a_file_of_answers_is_reported_row_by_row(conclad: Conclad, state: Path) -> None:
    sheet = state.parent / "sheet.csv"
    sheet.write_text("question_id,class\n1,dune\n99,dune\nx,dune\n2,\n")
    done = conclad("label", "--from", str(sheet), code=3)
    assert done["counts"] == {
        "accepted": 1,
        "repeated": 0,
        "conflict": 0,
        "refused": 1,
        "unreadable": 1,
        "left open": 1,
    }
    assert done["records"][1]["message"] == "question 99: there is no such question"


def test_classes_are_corrected_and_versions_rolled_back(conclad: Conclad) -> None:
    assert conclad("classes", "rename", "water", "lake")["version"] == 2
    assert conclad("classes", "merge", "lake", "--into", "forest")["version"] == 3
    assert [view["standing"] for view in conclad("classes")] == ["known", "merged"]
    difference = conclad("detector", "diff", "3", "1")
    assert difference["gained"] == ["water"]
    assert conclad("detector", "rollback", "1", "--reason", "oops")["version"] == 1
    found = conclad("detector", "list")
    assert [(one["number"], one["current"]) for one in found] == [(1, True), (2, False), (3, False)]
    assert conclad("detector", "show", "2")["difference"]["renamed"] == [["water", "lake"]]
    assert {view["name"] for view in conclad("classes")} == {"forest", "water"}


def test_a_rollback_asks_first(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    where = ["--set", f"state.dir={state}"]
    assert run(["classes", "retire", "water", *where]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    capsys.readouterr()
    assert run(["detector", "rollback", "1", *where]) == 130
    assert "It will also know water." in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(["detector", "rollback", "1", *where]) == 0
    assert "detector version 1 is in use" in capsys.readouterr().out


def test_held_versions_are_released_or_refused(conclad: Conclad, state: Path) -> None:
    with Store.open(state) as store:
        first = _hold(store, "lake")
        second = _hold(store, "sea")
    assert conclad("detector", "refuse", str(first), "--reason", "blurred")["state"] == (
        "rolled_back"
    )
    assert conclad("detector", "release", str(second))["state"] == "published"
    assert "is published, not held" in conclad("detector", "release", str(second), code=2)


def _hold(store: Store, name: str) -> int:
    from monitor.store import commit_version
    from monitor.store.version_and_settled_commit import VersionUpdate
    from tests.store.building import small_detector

    detector = small_detector().renamed("c2", name)
    return commit_version(store, VersionUpdate(f"held:{name}", detector, 1, held=True)).number


def test_a_pseudo_label_is_marked_wrong(conclad: Conclad, state: Path) -> None:
    with Store.open(state) as store:
        world.ask(store, 20, pool=2)
        world.discover(store, "dune", 20, pool=2)
    done = conclad("classes", "wrong", "dune", "cam-1", "2-0010")
    assert done["what"] == "an image of cam-1 taken out of dune"
