"""Every class with what is behind it, for people who look after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from monitor.people.class_pictures import answered_pictures, distinct
from monitor.people.version_manifest import knowledge_of
from monitor.store.exemplars import Exemplar, all_exemplars
from monitor.store.record_states import ClassOrigin
from monitor.store.records import ClassRow
from monitor.store.store import Store


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
        answered, asked = answered_pictures(tx)
    known = knowledge_of(store, current).classes
    # What was merged shows with the class it became part of.
    shown: dict[str, list[Exemplar]] = {}
    by_id = {row.id: row for row in rows}
    standing_answers: Counter[str] = Counter()
    for row in rows:
        standing_answers[_final(row, by_id).id] += answered.get(row.id, 0)
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
                answers=standing_answers[row.id],
                exemplars=distinct(shown.get(row.id, [])) if row.living else (),
            )
        )
    return sorted(views, key=lambda view: list(Standing).index(view.standing))


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
