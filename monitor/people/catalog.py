"""Every class with what is behind it, for people who look after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select

from monitor.people.knowing import knowledge_of
from monitor.store.exemplars import Exemplar, all_exemplars, exemplars_of, keep_exemplars
from monitor.store.rows import ClassRow
from monitor.store.schema import answers, queries
from monitor.store.states import ClassOrigin, QueryState
from monitor.store.store import Store, Transaction

PICTURES = 8
"""Pictures that stand for a class once those of its questions are gone; as many as a fit keeps."""


class Standing(StrEnum):
    """Where a class is in its life."""

    KNOWN = "known"
    NAMED = "named"
    """People use the name; no detector knows it yet."""
    RETIRED = "retired"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class ClassView:
    """A class as the classes page shows it."""

    id: str
    name: str
    standing: Standing
    origin: ClassOrigin
    created_at: datetime
    created_in: int | None
    merged_into: str | None
    images: int
    """Samples that its subspaces were fitted on."""
    human: int
    pseudo: int
    answers: int
    """Standing answers that name it."""
    exemplars: tuple[Exemplar, ...]


def list_classes(store: Store) -> list[ClassView]:
    """All classes there ever were: living ones first, each in order of appearance."""
    with store.reading() as tx:
        current = tx.versions.current()
        rows = tx.classes.all()
        pictures = all_exemplars(tx)
        answered, asked = _answered(tx)
    known = knowledge_of(store, current).classes
    # What was merged shows with the class it became part of.
    shown: dict[str, list[Exemplar]] = {}
    by_id = {row.id: row for row in rows}
    for row in rows:
        found = [*pictures.get(row.id, []), *asked.get(row.id, [])]
        shown.setdefault(_final(row, by_id).id, []).extend(found)
    views = []
    for row in rows:
        entry = known.get(row.id)
        standing = _standing(row, entry is not None)
        views.append(
            ClassView(
                id=row.id,
                name=row.name,
                standing=standing,
                origin=row.origin,
                created_at=row.created_at,
                created_in=row.created_in,
                merged_into=row.merged_into,
                images=entry.fitted if entry else 0,
                human=entry.human if entry else 0,
                pseudo=entry.pseudo if entry else 0,
                answers=answered.get(row.id, 0),
                exemplars=_distinct(shown.get(row.id, [])) if row.living else (),
            )
        )
    return sorted(views, key=lambda view: list(Standing).index(view.standing))


def keep_answered_pictures(store: Store, most: int = PICTURES) -> int:
    """Let pictures of ended questions stand for the class that was answered; returns how many.

    Pictures of questions are deleted in time, those of a class stay with it.
    """
    kept = 0
    with store.transaction() as tx:
        _, asked = _answered(tx, ended=True)
        for class_id, pictures in asked.items():
            shown = exemplars_of(tx, class_id)
            known = {one.thumbnail for one in shown}
            fresh = [one for one in _distinct(pictures) if one.thumbnail not in known]
            fresh = fresh[: max(0, most - len(shown))]
            if fresh:
                keep_exemplars(tx, class_id, [*shown, *fresh])
                kept += len(fresh)
    return kept


def _answered(
    tx: Transaction, *, ended: bool = False
) -> tuple[Counter[str], dict[str, list[Exemplar]]]:
    """How many standing answers name each class, and the pictures that they were given to.

    With ``ended`` only answers that can no longer be taken back.
    """
    states = [QueryState.CLOSED] if ended else list(QueryState)
    counts: Counter[str] = Counter()
    pictures: dict[str, list[Exemplar]] = {}
    found = tx.connection.execute(
        select(
            answers.c.class_id,
            queries.c.thumbnail,
            queries.c.source_id,
            queries.c.image_id,
            queries.c.captured_at,
        )
        .join(queries, queries.c.answer_id == answers.c.id)
        .where(answers.c.class_id.is_not(None), queries.c.state.in_(states))
        .order_by(answers.c.id.desc())
    )
    for class_id, thumbnail, source_id, image_id, captured_at in found:
        counts[class_id] += 1
        if thumbnail is not None:
            picture = Exemplar(thumbnail, "person", source_id, image_id, captured_at)
            pictures.setdefault(class_id, []).append(picture)
    return counts, pictures


def _final(row: ClassRow, by_id: Mapping[str, ClassRow]) -> ClassRow:
    while row.merged_into is not None:
        row = by_id[row.merged_into]
    return row


def _standing(row: ClassRow, is_known: bool) -> Standing:
    if row.merged_into is not None:
        return Standing.MERGED
    if row.retired_at is not None:
        return Standing.RETIRED
    return Standing.KNOWN if is_known else Standing.NAMED


def _distinct(exemplars: list[Exemplar]) -> tuple[Exemplar, ...]:
    return tuple({one.thumbnail: one for one in exemplars}.values())
