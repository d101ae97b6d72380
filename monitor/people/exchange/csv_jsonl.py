"""CSV and JSON lines: one record each question out, one record each answer in.

An export can be filled in with any spreadsheet and given back as it is: the columns ``class`` and
``answer`` are read, the others only name the question.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from monitor.people.answer_questions import Said, Word
from monitor.people.errors import BadAnswer, BadFile
from monitor.people.exchange.parsed_answers import Parsed, Problem, question_number
from monitor.people.exchange.question_records import QuestionRecord

#: Spreadsheets take a cell that begins with one of these for a formula, and would run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

_KINDS = {"known_class": Word.CLASS, "new_class": Word.CLASS}


def to_csv(questions: Iterable[QuestionRecord]) -> str:
    """With a header; cells that a spreadsheet would take for formulas are quoted."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for question in questions:
        record = question.record()
        writer = writer or _begin(out, record)
        writer.writerow({key: _cell(value) for key, value in record.items()})
    return out.getvalue()


def to_jsonl(questions: Iterable[QuestionRecord]) -> str:
    """One JSON object a line, one for each question."""
    return "".join(
        json.dumps(question.record(), ensure_ascii=False) + "\n" for question in questions
    )


def from_csv(text: str) -> Parsed:
    """Rows with neither class nor answer are left open, as an export has them."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        header = reader.fieldnames or []
        if "question_id" not in header:
            found = ", ".join(header) or "nothing"
            raise BadFile(f"line 1: no column question_id (found: {found}); name the columns there")
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise BadFile(f"line {reader.line_num}: not CSV ({error})") from None
    return _parsed((f"line {line}", row) for line, row in rows)


def from_jsonl(text: str) -> Parsed:
    """Answers from one JSON object a line; what cannot be read is named by its line."""
    rows: list[tuple[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append((f"line {number}", json.loads(line)))
        except (ValueError, RecursionError) as error:
            rows.append((f"line {number}", BadAnswer(f"not JSON ({str(error)[:100]})")))
    return _parsed(rows)


def _parsed(rows: Iterable[tuple[str, Any]]) -> Parsed:
    said: list[tuple[str, Said]] = []
    problems: list[Problem] = []
    left = 0
    for where, row in rows:
        try:
            if isinstance(row, BadAnswer):
                raise row
            one = _said(row)
        except BadAnswer as error:
            problems.append(Problem(where, str(error)))
        else:
            if one is None:
                left += 1
            else:
                said.append((where, one))
    return Parsed(tuple(said), tuple(problems), left)


def _said(row: Any) -> Said | None:
    if not isinstance(row, Mapping):
        raise BadAnswer("not a record with names and values")
    number = row.get("question_id")
    question_id = question_number(number, "question_id")
    name, word = _text(row, "class"), _text(row, "answer")
    if not name and word in ("", "skip"):
        return None
    if not word:
        return Said(question_id, Word.CLASS, name)
    try:
        kind = _KINDS.get(word) or Word(word)
    except ValueError:
        words = ", ".join(Word)
        raise BadAnswer(f"answer: {word[:40]!r} is none of {words}") from None
    return Said(question_id, kind, name or None)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadAnswer(f"{key}: {value!r} is not text")
    text = value.strip()
    # Undo what `_cell` did, so that a file goes out and comes back unchanged.
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _begin(out: io.StringIO, record: Mapping[str, Any]) -> csv.DictWriter[str]:
    writer = csv.DictWriter(out, list(record), lineterminator="\n")
    writer.writeheader()
    return writer


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
