"""Questions with their answers as plain records, the common ground of all formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from monitor.store.records import Answer, Query
from monitor.store.repository import chunks
from monitor.store.states import QueryState
from monitor.store.store import Store, Transaction
from monitor.store.tables import answers, queries

Which = Literal["open", "answered", "all"]

MOST = 100_000
"""Questions in one export; label budgets are hundreds, so this only stops a runaway."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question, its suggestion as a class, and what was said."""

    query: Query
    suggested_id: str | None
    suggested: str | None
    answer: Answer | None
    answered: str | None
    """The name of the class that was answered, as it is called today."""
    nearest: str | None = None
    """The name of the known class that the image resembles most, as it is called today."""

    def record(self) -> dict[str, Any]:
        """Flat values for JSON and CSV; what is not known is None."""
        query, answer = self.query, self.answer
        return {
            "query_id": query.id,
            "state": str(query.state),
            "pool": query.pool_id,
            "round": query.round,
            "source_id": query.source_id,
            "image_id": query.image_id,
            "captured_at": None if query.captured_at is None else query.captured_at.isoformat(),
            "score": query.score,
            "score_ratio": query.score_ratio,
            "nearest_class": query.nearest_class,
            "nearest_class_name": self.nearest,
            "suggested_class": self.suggested,
            "class": self.answered,
            "answer": None if answer is None else str(answer.kind),
            "who": None if answer is None else answer.who,
            "answered_at": None if answer is None else answer.at.isoformat(),
            "file": query.file,
            "row": query.row,
            "thumbnail": query.thumbnail,
        }


def read_questions(store: Store, which: Which = "open") -> list[Question]:
    """In the order they were asked."""
    states = {
        "open": [QueryState.OPEN],
        "answered": [QueryState.ANSWERED, QueryState.CLOSED],
        "all": list(QueryState),
    }[which]
    with store.reading() as tx:
        rows = tx.connection.execute(
            select(queries).where(queries.c.state.in_(states)).order_by(queries.c.id).limit(MOST)
        ).mappings()
        found = [Query(**dict(row)) for row in rows]
        if which == "answered":
            found = [query for query in found if query.answer_id is not None]
        names = {row.id: row.name for row in tx.classes.all()}
        given = _given(tx, found)
        current = {row.id: tx.classes.resolve(row.id).name for row in tx.classes.all()}
    return [_question(query, names, current, given) for query in found]


def _given(tx: Transaction, found: list[Query]) -> dict[int, Answer]:
    ids = [query.answer_id for query in found if query.answer_id is not None]
    rows = [
        Answer(**dict(row))
        for piece in chunks(ids)
        for row in tx.connection.execute(select(answers).where(answers.c.id.in_(piece))).mappings()
    ]
    return {answer.id: answer for answer in rows}


def _question(
    query: Query,
    names: Mapping[str, str],
    current: Mapping[str, str],
    given: Mapping[int, Answer],
) -> Question:
    answer = given.get(query.answer_id) if query.answer_id is not None else None
    suggested_id = query.suggestion.get("class_id")
    class_id = None if answer is None else answer.class_id
    return Question(
        query=query,
        suggested_id=suggested_id if suggested_id in names else None,
        suggested=current.get(suggested_id or "", query.suggestion.get("name")),
        answer=answer,
        answered=None if class_id is None else current.get(class_id),
        nearest=current.get(query.nearest_class or "", query.nearest_class),
    )
