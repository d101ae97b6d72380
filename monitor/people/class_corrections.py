"""Corrections of classes. Each makes a detector version; ids never move.

A class that people have named, but no detector knows yet, is corrected without a version: the
next one will know it under its new name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monitor.novelty.detector import Detector
from monitor.people.class_names import clean_name
from monitor.people.errors import NotPossible
from monitor.people.version_manifest import knowledge_of
from monitor.store.errors import ClassNameTaken, WrongState
from monitor.store.records import ClassRow, Count, Occurrence, Version
from monitor.store.snapshots import load_snapshot
from monitor.store.store import Store, Transaction
from monitor.store.version_and_settled_commit import VersionUpdate, commit_version

TRIES = 5
"""An inner loop may publish while we compute. It does so once in many minutes, so a second try
meets nobody; several in a row mean that something is wrong."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a correction did; ``version`` is None where no detector knew the class yet."""

    what: str
    class_id: str
    version: int | None


def operation_id() -> str:
    """A fresh id; a client that may send twice makes its own and sends it twice."""
    return uuid.uuid4().hex


def rename(
    store: Store, class_id: str, name: str, *, who: str, operation: str | None = None
) -> Changed:
    """Give a class another name."""
    name = clean_name(name)

    def change(tx: Transaction) -> None:
        tx.classes.rename(class_id, name)

    with store.reading() as tx:
        row = living(tx, class_id)
        taken = tx.classes.find(name)
    if taken is not None and taken.id != class_id:
        raise ClassNameTaken(
            f"class {name!r}: {taken.id} already has this name; merge the two if they are one"
        )
    if row.name == name:
        return Changed(f"{name!r} is its name already", class_id, None)
    return _apply(
        store,
        key=f"rename:{operation or operation_id()}",
        event="class.renamed",
        class_id=class_id,
        what=f"{row.name} renamed to {name}",
        names={"from": row.name, "to": name},
        involved=[class_id],
        make=lambda detector: detector.renamed(class_id, name),
        change=change,
        who=who,
    )


def merge(
    store: Store, others: Sequence[str], into: str, *, who: str, operation: str | None = None
) -> Changed:
    """Make one class of several; it keeps the id and the name of ``into``."""
    gone = [other for other in dict.fromkeys(others) if other != into]
    if not gone:
        raise NotPossible("merging needs at least two classes; name those that become one")

    def change(tx: Transaction) -> None:
        for other in gone:
            tx.classes.merge(other, into)

    with store.reading() as tx:
        target = living(tx, into)
        rows = [living(tx, other) for other in gone]
        known = knowledge_of(store, tx.versions.current()).classes
    in_detector = [row for row in rows if row.id in known]
    if in_detector and into not in known:
        raise NotPossible(
            f"no detector knows {target.name!r} yet; merge it into {in_detector[0].name!r} "
            "instead, then rename that"
        )
    names = ", ".join(row.name for row in rows)
    return _apply(
        store,
        key=f"merge:{operation or operation_id()}",
        event="class.merged",
        class_id=into,
        what=f"{names} merged into {target.name}",
        names={"merged": [row.id for row in rows], "into": target.name},
        involved=[row.id for row in in_detector],
        make=lambda detector: detector.merged(into, [row.id for row in in_detector]),
        change=change,
        who=who,
    )


def retire(store: Store, class_id: str, *, who: str, operation: str | None = None) -> Changed:
    """Retire a class: similar images count as new again."""

    def make(detector: Detector) -> Detector:
        if len(detector.classes) == 1:
            raise NotPossible(
                f"{row.name!r} is the only class; a detector that knows nothing cannot tell what "
                "is new"
            )
        return detector.without_class(class_id)

    def change(tx: Transaction) -> None:
        tx.classes.retire(class_id)

    with store.reading() as tx:
        row = living(tx, class_id)
    return _apply(
        store,
        key=f"retire:{operation or operation_id()}",
        event="class.retired",
        class_id=class_id,
        what=f"{row.name} retired",
        names={"name": row.name},
        involved=[class_id],
        make=make,
        change=change,
        who=who,
    )


def living(tx: Transaction, class_id: str) -> ClassRow:
    """The class, if it can still be changed; the error says what became of it otherwise."""
    row = tx.classes.get(class_id)
    if not row.living:
        fate = f"was merged into {row.merged_into}" if row.merged_into else "was retired"
        raise WrongState(f"class {class_id!r} ({row.name}): {fate}; roll back to undo that")
    return row


def _apply(
    store: Store,
    *,
    key: str,
    event: str,
    class_id: str,
    what: str,
    names: dict[str, object],
    involved: Sequence[str],
    make: Callable[[Detector], Detector],
    change: Callable[[Transaction], None],
    who: str,
) -> Changed:
    operation = key.partition(":")[2]
    payload = {"class_id": class_id, "who": who, "operation": operation, **names}
    with store.reading() as tx:
        done = tx.versions.by_key(key)
        known = knowledge_of(store, tx.versions.current()).classes
    if done is not None:
        return Changed(done.reason or what, class_id, done.number)
    if not any(one in known for one in involved):
        with store.transaction() as tx:
            change(tx)
            tx.events.append(event, payload)
        return Changed(what, class_id, None)
    version = publish_change(
        store,
        key=key,
        make=make,
        reason=what,
        who=who,
        events=[Occurrence(event, payload)],
        also=change,
    )
    return Changed(what, class_id, version.number)


def publish_change(
    store: Store,
    *,
    key: str,
    make: Callable[[Detector], Detector],
    reason: str,
    who: str,
    events: Sequence[Occurrence],
    also: Callable[[Transaction], None],
    counts: Sequence[Count] = (),
) -> Version:
    """Make a version out of the one in use, and again if that has changed meanwhile."""
    for remaining in reversed(range(TRIES)):
        with store.reading() as tx:
            current = tx.versions.current()
        if current is None:
            raise NotPossible("there is no detector yet; fit one with conclad fit --data FILES")
        detector = load_snapshot(store.folder, current.snapshot, sha256=current.sha256)
        update = VersionUpdate(
            key=key,
            detector=make(detector),
            parent=current.number,
            reason=reason,
            who=who,
            evidence={"by": who, "change": reason},
            events=events,
            counts=counts,
            also=also,
        )
        try:
            return commit_version(store, update)
        except WrongState:
            with store.reading() as tx:
                moved = tx.versions.current() != current
            if not moved or not remaining:
                raise
    raise AssertionError("the last try returns or raises")
