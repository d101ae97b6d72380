"""Questions out, answers in, and every record accounted for."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.people.answer_questions import Fate, Said, Word, give
from monitor.people.errors import BadFile
from monitor.people.exchange.csv_jsonl import from_csv, to_csv, to_jsonl
from monitor.people.exchange.label_studio import from_tasks, interface, to_tasks
from monitor.people.exchange.parsed_answers import take_in
from monitor.people.exchange.question_records import read_questions
from monitor.people.exchange.read_answers import read_answers
from monitor.store import Store
from monitor.store.record_states import QuestionState
from tests.people import world


def answered(store: Store) -> dict[int, str | None]:
    return {one.question.id: one.answered for one in read_questions(store, "answered")}


def filled(text: str, answers: dict[int, str]) -> str:
    """What a person does in a spreadsheet."""
    rows = list(csv.DictReader(io.StringIO(text)))
    for row in rows:
        row["class"] = answers.get(int(row["question_id"]), "")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def test_an_exported_sheet_comes_back_filled_in(store: Store) -> None:
    world.ask(store, 8)
    sheet = filled(to_csv(read_questions(store)), {1: "dune", 2: "water", 5: "=dangerous"})
    content = sheet.encode()
    done = take_in(store, read_answers("a.csv", content), who="ada", content=content)
    assert done.whole
    assert (done.counts["accepted"], done.counts["left open"]) == (3, 5)
    assert answered(store) == {1: "dune", 2: "water", 5: "=dangerous"}
    again = take_in(store, read_answers("a.csv", content), who="ada", content=content)
    assert (again.counts["repeated"], again.counts["conflict"]) == (3, 0)


def test_a_sheet_never_carries_a_formula(store: Store) -> None:
    world.ask(store, 4)
    give(store, [Said(1, Word.CLASS, "=cmd|'/C calc'!A0")], who="ada", action="a")
    text = to_csv(read_questions(store, "all"))
    for row in csv.reader(io.StringIO(text)):
        assert not any(cell.startswith(("=", "+", "@")) for cell in row)
    [first, *_] = from_csv(text).said
    assert first[1].class_ == "=cmd|'/C calc'!A0"


def test_json_lines_round_trip(store: Store) -> None:
    world.ask(store, 4)
    give(
        store,
        [Said(1, Word.CLASS, "dune"), Said(2, Word.CANNOT_TELL), Said(3, Word.BAD_IMAGE)],
        who="ada",
        action="a",
    )
    parsed = read_answers("out.jsonl", to_jsonl(read_questions(store, "all")).encode())
    assert [one for _, one in parsed.said] == [
        Said(1, Word.CLASS, "dune"),
        Said(2, Word.CANNOT_TELL),
        Said(3, Word.BAD_IMAGE),
    ]
    assert parsed.left == 1


def test_each_bad_record_is_reported_and_the_rest_goes_in(store: Store) -> None:
    world.ask(store, 4)
    with store.transaction() as tx:
        tx.questions.close_round(1, 1)
    world.ask(store, 4, pool=2)
    lines: list[Any] = [
        {"question_id": 1, "class": "dune"},
        {"question_id": 77, "class": "dune"},
        {"question_id": "x", "class": "dune"},
        {"question_id": 5, "class": "dune"},
        {"question_id": 6, "answer": "no idea"},
        {"question_id": 6, "class": 5},
        {"question_id": 6, "answer": "cannot_tell", "class": "dune"},
        {"question_id": 7, "answer": "skip"},
        [],
    ]
    content = "\n".join([*map(json.dumps, lines), "{broken"]).encode()
    done = take_in(store, read_answers("a.jsonl", content), who="ada", content=content)
    assert not done.whole
    assert [(where, one.fate) for where, one in done.receipts] == [
        ("line 1", Fate.REFUSED),
        ("line 2", Fate.REFUSED),
        ("line 4", Fate.ACCEPTED),
    ]
    assert [problem.where for problem in done.problems] == [
        f"line {number}" for number in (3, 5, 6, 7, 9, 10)
    ]
    assert done.left == 1
    assert answered(store) == {5: "dune"}


def test_label_studio_tasks_carry_picture_and_prediction(store: Store) -> None:
    world.ask(store, 4)
    tasks = to_tasks(read_questions(store), base_url="https://desk.example/")
    assert len(tasks) == 4
    first, second, _, unsure = tasks
    with store.reading() as tx:
        digest = tx.questions.get(1).thumbnail
    assert first["data"]["image"] == f"https://desk.example/thumbnails/{digest}"
    assert first["predictions"][0]["result"][0]["value"] == {"choices": ["dune"]}
    assert second["predictions"][0]["result"][0]["value"] == {"choices": ["water"]}
    assert unsure["predictions"] == []
    json.dumps(tasks)


def annotation(choices: list[str], **more: Any) -> dict[str, Any]:
    result = {
        "from_name": "class",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": choices},
    }
    return {"result": [result] if choices else [], "was_cancelled": False, **more}


def test_label_studio_annotations_become_answers(store: Store) -> None:
    world.ask(store, 8)
    tasks = to_tasks(read_questions(store), base_url="http://desk")
    given = [
        [annotation(["dune"])],
        [annotation(["water"]), annotation(["dune"])],
        [annotation(["dune"], was_cancelled=True)],
        [annotation(["cannot tell"])],
        [annotation(["bad image"])],
        [],
        [annotation(["dune", "water"])],
        [annotation([])],
    ]
    for number, (task, marks) in enumerate(zip(tasks, given, strict=True), start=1):
        task |= {"id": number, "annotations": marks}
    content = json.dumps(tasks).encode()
    done = take_in(store, read_answers("project.json", content), who="ls", content=content)
    assert done.counts == {
        "accepted": 4,
        "repeated": 0,
        "conflict": 0,
        "refused": 0,
        "unreadable": 1,
        "left open": 3,
    }
    assert done.problems[0].where == "task 7"
    assert answered(store) == {1: "dune", 2: "dune", 4: None, 5: None}
    with store.reading() as tx:
        assert tx.questions.get(3).state is QuestionState.OPEN, "cancelled means skipped"


def test_label_studios_minimal_form_is_read_too() -> None:
    text = json.dumps(
        [
            {"question_id": 1, "class": "dune", "annotation_id": 5},
            {"question_id": 2, "class": {"choices": ["bad image"]}, "annotation_id": 6},
            {"question_id": 3, "annotation_id": 7},
        ]
    )
    parsed = from_tasks(text)
    assert [one for _, one in parsed.said] == [Said(1, Word.CLASS, "dune"), Said(2, Word.BAD_IMAGE)]
    assert parsed.left == 1


def test_the_interface_names_the_classes() -> None:
    from xml.etree import ElementTree

    root = ElementTree.fromstring(interface(["dune", 'a "b" <c>']))
    values = [choice.get("value") for choice in root.iter("Choice")]
    assert values == ["dune", 'a "b" <c>', "cannot tell", "bad image"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"id,class\n1,dune\n", "no column question_id"),
        ("a.csv", b"", "no column question_id"),
        ("a.csv", b'question_id,class\n1,"dune', "not CSV"),
        ("a.csv", b"\xff\xfe", "not text in UTF-8"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b"{}", "not a list of tasks"),
        ("a.xlsx", b"", "not one of .csv, .jsonl, .json"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(name: str, content: bytes, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        read_answers(name, content)


@given(st.binary(max_size=200), st.sampled_from([".csv", ".jsonl", ".json"]))
def test_any_bytes_are_read_or_refused(content: bytes, ending: str) -> None:
    try:
        parsed = read_answers(f"a{ending}", content)
    except BadFile:
        return
    assert all(isinstance(one, Said) for _, one in parsed.said)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["question_id", "class", "answer", "data", "annotations", "result", "type", "value"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON, st.sampled_from([".jsonl", ".json"]))
def test_any_json_is_read_or_refused(value: Any, ending: str) -> None:
    try:
        read_answers(f"a{ending}", json.dumps(value).encode())
    except BadFile:
        return
