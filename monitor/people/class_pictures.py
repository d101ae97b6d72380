"""The pictures that show people what a class looks like: which ones stay, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import select

from monitor.store.exemplars import (
    Exemplar,
    all_exemplars,
    exemplars_of,
    keep_exemplars,
    shown_by_exemplars,
    thumbnail_name,
)
from monitor.store.record_states import QuestionState
from monitor.store.store import Store, Transaction
from monitor.store.tables import answers, questions
from monitor.store.verdict_columns import BY_PSEUDO_LABEL

PICTURES = 8
"""Pictures of a class that outlast those of its questions; as many as a fit keeps."""


def keep_answered_pictures(store: Store, most: int = PICTURES) -> int:
    """Let pictures of ended questions stand for the class that was answered; returns how many.

    Pictures of questions are deleted in time, those of a class stay with it.
    """
    kept = 0
    with store.transaction() as tx:
        _, asked = answered_pictures(tx, ended=True)
        for class_id, pictures in asked.items():
            shown = exemplars_of(tx, class_id)
            known = {one.thumbnail for one in shown}
            fresh = [one for one in distinct(pictures) if one.thumbnail not in known]
            certain = [one for one in shown if one.by != BY_PSEUDO_LABEL]
            fresh = fresh[: max(0, most - len(certain))]
            if fresh:
                keep_exemplars(tx, class_id, [*shown, *fresh])
                kept += len(fresh)
    return kept


def drop_conclusions(store: Store, before: datetime, most: int = PICTURES) -> int:
    """Leave old classes a few pictures of their own conclusions; returns how many are deleted.

    They are there to be contradicted, which people do while a discovery is young. Later they
    stay only as far as they are needed to show what the class looks like.
    """
    gone: list[str] = []
    with store.transaction() as tx:
        born = {row.id: row.created_at for row in tx.classes.all()}
        for class_id, shown in all_exemplars(tx).items():
            # The least certain were kept first, and are let go first.
            old = [one for one in shown if one.by == BY_PSEUDO_LABEL and born[class_id] < before]
            surplus = old[: max(0, len(shown) - most)]
            if surplus:
                keep_exemplars(tx, class_id, [one for one in shown if one not in surplus])
                gone += [one.thumbnail for one in surplus]
        used = shown_by_exemplars(tx)
        unused = {one for one in gone if one not in used and not tx.questions.shows(one)}
    for digest in unused:
        store.folder.delete(thumbnail_name(digest))
    return len(unused)


def pictures_of(tx: Transaction, class_id: str) -> tuple[Exemplar, ...]:
    """Every picture of a class, kept or of an answer, also those of what was merged into it."""
    # What was merged into the class kept its pictures under its own id.
    members = [row.id for row in tx.classes.all() if tx.classes.resolve(row.id).id == class_id]
    _, asked = answered_pictures(tx, of=members)
    return distinct([one for id in members for one in (*exemplars_of(tx, id), *asked.get(id, []))])


def answered_pictures(
    tx: Transaction, *, ended: bool = False, of: Collection[str] | None = None
) -> tuple[Counter[str], dict[str, list[Exemplar]]]:
    """How many standing answers name each class, and the pictures that they were given to.

    With ``ended`` only answers that can no longer be taken back, with ``of`` only those that name
    these classes.
    """
    named = answers.c.class_id.is_not(None) if of is None else answers.c.class_id.in_(of)
    states = [QuestionState.CLOSED] if ended else list(QuestionState)
    counts: Counter[str] = Counter()
    pictures: dict[str, list[Exemplar]] = {}
    found = tx.connection.execute(
        select(
            answers.c.class_id,
            questions.c.thumbnail,
            questions.c.source_id,
            questions.c.image_id,
            questions.c.captured_at,
        )
        .join(questions, questions.c.answer_id == answers.c.id)
        .where(named, questions.c.state.in_(states))
        .order_by(answers.c.id.desc())
    )
    for class_id, thumbnail, source_id, image_id, captured_at in found:
        counts[class_id] += 1
        if thumbnail is not None:
            picture = Exemplar(thumbnail, "person", source_id, image_id, captured_at)
            pictures.setdefault(class_id, []).append(picture)
    return counts, pictures


def distinct(exemplars: list[Exemplar]) -> tuple[Exemplar, ...]:
    """Each picture once; what people said before what the detector concluded by itself."""
    found: dict[str, Exemplar] = {}
    for one in sorted(exemplars, key=lambda one: one.by == BY_PSEUDO_LABEL):
        found.setdefault(one.thumbnail, one)
    return tuple(found.values())
