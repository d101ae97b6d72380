"""Between the questions and answers of the store and those of the inner loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from monitor.novelty.detector import Detector
from monitor.pipeline.pool_samples import PoolSamples
from monitor.store import Transaction
from monitor.store.errors import NotFound
from monitor.store.pools import PoolEvent
from monitor.store.records import ClassRow, Count, Pool, PoolSample, Question
from monitor.store.states import AnswerKind, ClassOrigin, QuestionState

#: Who answers where a column of the feed takes the place of people.
ORACLE = "oracle"


def recorded_answers(tx: Transaction, pool_id: int, samples: PoolSamples) -> dict[int, str | None]:
    """What was said in the rounds that are over: a class id for each sample, or None.

    Merges since then are followed, so the loop hears of a class under the id it has today. Of a
    class that was retired since then nothing is known any more.
    """
    position = {key: index for index, key in enumerate(samples.keys)}
    standing = tx.answers.standing(pool_id)
    answers: dict[int, str | None] = {}
    for question in tx.questions.of_pool(pool_id):
        if question.state is QuestionState.CLOSED:
            answer = standing.get(question.id)
            row = _living(tx, answer.class_id if answer is not None else None)
            answers[position[question.batch_id, question.spool_row]] = row.id if row else None
    return answers


def confirmable(tx: Transaction, people: int) -> frozenset[str] | None:
    """The classes that enough people have named; None where fewer than that annotate."""
    if tx.answers.people() < people:
        return None
    named: Counter[str] = Counter()
    for class_id, count in tx.answers.people_by_class().items():
        named[tx.classes.resolve(class_id).id] += count
    return frozenset(class_id for class_id, count in named.items() if count >= people)


def open_round(
    tx: Transaction, pool_id: int, round: int, samples: Sequence[PoolSample]
) -> list[Question]:
    """Ask people about these samples; from here on it is their turn."""
    before = tx.pools.get(pool_id).asked
    opened = tx.questions.open(pool_id, round, samples)
    spent = tx.pools.get(pool_id).asked - before
    tx.pools.apply(pool_id, PoolEvent.ROUND_OPENED)
    tx.counters.add([Count("labels_spent", "", "", spent)])
    sources = sorted({question.source_id for question in opened})
    tx.events.append(
        "questions.opened",
        {
            "pool": pool_id,
            "round": round,
            "count": len(opened),
            "open": tx.questions.count_open(),
            "sources": sources,
        },
        source=sources[0] if len(sources) == 1 else None,
    )
    return opened


def is_over(tx: Transaction, pool: Pool, limit: timedelta) -> bool:
    """Whether all questions of the round are answered, or their time is over."""
    return not tx.questions.count_open(pool.id) or _is_late(tx, pool, limit)


def _is_late(tx: Transaction, pool: Pool, limit: timedelta) -> bool:
    asked = tx.questions.of_pool(pool.id, pool.round)
    return bool(asked) and tx.now - asked[0].opened_at >= limit


def close_round(tx: Transaction, pool: Pool, limit: timedelta) -> None:
    """It is the machine's turn again; a question unanswered after ``limit`` ends the asking."""
    late = _is_late(tx, pool, limit)
    closed = tx.questions.close_round(pool.id, pool.round)
    missing = sum(question.answer_id is None for question in closed)
    stopped = {"stopped": "unanswered"} if missing and late else None
    tx.pools.apply(pool.id, PoolEvent.ROUND_CLOSED, evidence=stopped)
    tx.events.append(
        "questions.closed",
        {
            "pool": pool.id,
            "round": pool.round,
            "answered": len(closed) - missing,
            "unanswered": missing,
        },
    )
    tx.counters.add(count_answers(tx, pool.id, pool.round))


def count_answers(tx: Transaction, pool_id: int, round: int) -> list[Count]:
    """How often what looked new was new: the false-novel ratio that people measured."""
    standing = tx.answers.standing(pool_id)
    said = Counter(
        _SAID[standing[question.id].kind]
        for question in tx.questions.of_pool(pool_id, round)
        if question.id in standing and question.score_ratio > 1
    )
    return [Count("false_novel", "", label, number) for label, number in sorted(said.items())]


_SAID = {
    AnswerKind.KNOWN_CLASS: "known",
    AnswerKind.NEW_CLASS: "new",
    AnswerKind.CANNOT_TELL: "cannot_tell",
    AnswerKind.BAD_IMAGE: "cannot_tell",
}


def suggestion(tx: Transaction, guess: str | None, detector: Detector) -> dict[str, Any]:
    """The class that the loop guesses, by its id, as the desk shows it today.

    A class that was merged is shown as what it has become; one that was retired, or is not there
    any more, is no suggestion.
    """
    row = _living(tx, guess)
    if row is None:
        return {"class_id": None, "name": None, "new": False}
    is_known = any(known.id == row.id for known in detector.classes)
    return {"class_id": row.id, "name": row.name, "new": not is_known}


def _living(tx: Transaction, class_id: str | None) -> ClassRow | None:
    """The class that an id means today, if there still is one."""
    if class_id is None:
        return None
    try:
        row = tx.classes.resolve(class_id)
    except NotFound:
        return None
    return row if row.living else None


def answer_from_column(
    tx: Transaction, question: Question, label: str | None, detector: Detector
) -> None:
    """Answer in place of a person, with the label of a column."""
    name = (label or "").strip()
    kind, class_id = AnswerKind.CANNOT_TELL, None
    if name:
        row = tx.classes.ensure(name, ClassOrigin.PERSON)
        known = any(c.id == row.id for c in detector.classes)
        kind = AnswerKind.KNOWN_CLASS if known else AnswerKind.NEW_CLASS
        class_id = row.id
    # The question's number makes it idempotent: told twice, it counts once.
    tx.answers.record(
        question.id, kind, who=ORACLE, client_id=f"{ORACLE}:{question.id}", class_id=class_id
    )
