"""Between the questions and answers of the store and those of the inner loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from monitor.novelty.detector import Detector
from monitor.pipeline.samples import PoolSamples
from monitor.store import Transaction
from monitor.store.rows import Count, Query, Sample
from monitor.store.states import AnswerKind, ClassOrigin, PoolState, QueryState

#: Who answers where a column of the feed takes the place of people.
ORACLE = "oracle"


def recorded_answers(tx: Transaction, pool_id: int, samples: PoolSamples) -> dict[int, str | None]:
    """What was said in the rounds that are over: a class id for each sample, or None.

    Merges since then are followed, so the loop hears of a class under the id it has today.
    """
    position = {key: index for index, key in enumerate(samples.keys)}
    standing = tx.answers.standing(pool_id)
    answers: dict[int, str | None] = {}
    for query in tx.queries.of_pool(pool_id):
        if query.state is QueryState.CLOSED:
            answer = standing.get(query.id)
            said = answer.class_id if answer is not None else None
            index = position[query.batch_id, query.spool_row]
            answers[index] = tx.classes.resolve(said).id if said is not None else None
    return answers


def open_round(tx: Transaction, pool_id: int, round: int, samples: Sequence[Sample]) -> list[Query]:
    """Ask people about these samples; from here on it is their turn."""
    before = tx.pools.get(pool_id).asked
    opened = tx.queries.open(pool_id, round, samples)
    spent = tx.pools.get(pool_id).asked - before
    tx.pools.move(pool_id, PoolState.WAITING)
    tx.counters.add([Count("labels_spent", "", "", spent)])
    sources = sorted({query.source_id for query in opened})
    tx.events.append(
        "queries.opened",
        {
            "pool": pool_id,
            "round": round,
            "count": len(opened),
            "open": tx.queries.count_open(),
            "sources": sources,
        },
        source=sources[0] if len(sources) == 1 else None,
    )
    return opened


def what_answers_said(tx: Transaction, pool_id: int, round: int) -> list[Count]:
    """How often what looked new was new: the false-novel ratio that people measured."""
    standing = tx.answers.standing(pool_id)
    said = Counter(
        _SAID[standing[query.id].kind]
        for query in tx.queries.of_pool(pool_id, round)
        if query.id in standing and query.score_ratio > 1
    )
    return [Count("false_novel", "", label, number) for label, number in sorted(said.items())]


_SAID = {
    AnswerKind.KNOWN_CLASS: "known",
    AnswerKind.NEW_CLASS: "new",
    AnswerKind.CANNOT_TELL: "cannot_tell",
    AnswerKind.BAD_IMAGE: "cannot_tell",
}


def suggestion(tx: Transaction, guess: str | None, detector: Detector) -> dict[str, Any]:
    """The loop's guess, a name of a known class or the id of a new one, as the desk shows it."""
    if guess is None:
        return {"class_id": None, "name": None, "new": False}
    known = {key: c for c in detector.classes for key in (c.name, c.id)}
    if guess in known:
        return {"class_id": known[guess].id, "name": known[guess].name, "new": False}
    row = tx.classes.resolve(guess)
    return {"class_id": row.id, "name": row.name, "new": True}


def tell(tx: Transaction, query: Query, label: str | None, detector: Detector) -> None:
    """Answer in place of a person, with the label of a column."""
    name = (label or "").strip()
    kind, class_id = AnswerKind.CANNOT_TELL, None
    if name:
        row = tx.classes.ensure(name, ClassOrigin.PERSON)
        known = any(c.id == row.id for c in detector.classes)
        kind = AnswerKind.KNOWN_CLASS if known else AnswerKind.NEW_CLASS
        class_id = row.id
    # The query's number makes it idempotent: told twice, it counts once.
    tx.answers.record(
        query.id, kind, who=ORACLE, client_id=f"{ORACLE}:{query.id}", class_id=class_id
    )
