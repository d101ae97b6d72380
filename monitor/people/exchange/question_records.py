"""Questions with their answers as plain records, the common ground of all formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from monitor.store.record_states import QuestionState
from monitor.store.records import Answer, Question
from monitor.store.store import Store, Transaction
from monitor.store.tables import answers, chunks, questions

Which = Literal["open", "answered", "all"]

MOST = 100_000
"""Questions in one export; label budgets are hundreds, so this only stops a runaway."""


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """One question, its suggestion as a class, and what was said."""

    question: Question
    suggested_id: str | None
    suggested: str | None
    answer: Answer | None
    answered: str | None
    """The name of the class that was answered, as it is called today."""
    nearest: str | None = None
    """The name of the known class that the image resembles most, as it is called today."""

    def record(self) -> dict[str, Any]:
        """Flat values for JSON and CSV; what is not known is None."""
        question, answer = self.question, self.answer
        return {
            "question_id": question.id,
            "state": str(question.state),
            "pool": question.pool_id,
            "round": question.round,
            "source_id": question.source_id,
            "image_id": question.image_id,
            "captured_at": None
            if question.captured_at is None
            else question.captured_at.isoformat(),
            "score": question.score,
            "score_ratio": question.score_ratio,
            "nearest_class": question.nearest_class,
            "nearest_class_name": self.nearest,
            "suggested_class": self.suggested,
            "class": self.answered,
            "answer": None if answer is None else str(answer.kind),
            "who": None if answer is None else answer.who,
            "answered_at": None if answer is None else answer.at.isoformat(),
            "file": question.file,
            "row": question.row,
            "thumbnail": question.thumbnail,
        }


def read_questions(store: Store, which: Which = "open") -> list[QuestionRecord]:
    """In the order they were asked."""
    states = {
        "open": [QuestionState.OPEN],
        "answered": [QuestionState.ANSWERED, QuestionState.CLOSED],
        "all": list(QuestionState),
    }[which]
    with store.reading() as tx:
        rows = tx.connection.execute(
            select(questions)
            .where(questions.c.state.in_(states))
            .order_by(questions.c.id)
            .limit(MOST)
        ).mappings()
        found = [Question(**dict(row)) for row in rows]
        if which == "answered":
            found = [question for question in found if question.answer_id is not None]
        names = {row.id: row.name for row in tx.classes.all()}
        given = _given(tx, found)
        current = {row.id: tx.classes.resolve(row.id).name for row in tx.classes.all()}
    return [_question(question, names, current, given) for question in found]


def _given(tx: Transaction, found: list[Question]) -> dict[int, Answer]:
    ids = [question.answer_id for question in found if question.answer_id is not None]
    rows = [
        Answer(**dict(row))
        for piece in chunks(ids)
        for row in tx.connection.execute(select(answers).where(answers.c.id.in_(piece))).mappings()
    ]
    return {answer.id: answer for answer in rows}


def _question(
    question: Question,
    names: Mapping[str, str],
    current: Mapping[str, str],
    given: Mapping[int, Answer],
) -> QuestionRecord:
    answer = given.get(question.answer_id) if question.answer_id is not None else None
    suggested_id = question.suggestion.get("class_id")
    class_id = None if answer is None else answer.class_id
    return QuestionRecord(
        question=question,
        suggested_id=suggested_id if suggested_id in names else None,
        suggested=current.get(suggested_id or "", question.suggestion.get("name")),
        answer=answer,
        answered=None if class_id is None else current.get(class_id),
        nearest=current.get(question.nearest_class or "", question.nearest_class),
    )
