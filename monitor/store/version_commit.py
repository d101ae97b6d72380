"""The commit point of updates: a detector version, its classes and its discoveries, together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from monitor.novelty.detector import Detector
from monitor.store.atomic_files import Staged, declare, fault_point
from monitor.store.errors import StoreError, WrongState
from monitor.store.output_columns import (
    DISCOVERIES,
    Span,
    checked,
    output_name,
    read_table,
    stage_table,
)
from monitor.store.pool_and_file_states import ClassOrigin, VersionState
from monitor.store.pools import PoolEvent
from monitor.store.records import Count, Lease, Occurrence, OutputFile, Version
from monitor.store.snapshots import Snapshot, content_hash, publish_snapshot
from monitor.store.store import Store, Transaction

declare(
    "version.start",
    "version.after_snapshot",
    "version.after_stage_discoveries",
    "version.in_transaction",
    "version.after_publish_discoveries",
    "version.before_commit",
    "version.after_commit",
    "release.before_commit",
    "release.after_commit",
)

#: Each retry means that somebody else published a version in between, which takes a person or
#: an inner loop; more than a few in a row cannot be an accident.
RETRIES = 10


@dataclass(frozen=True, slots=True)
class NewClass:
    """A class that the version brings along."""

    id: str
    name: str
    origin: ClassOrigin


@dataclass(frozen=True, slots=True)
class VersionUpdate:
    """A version to be published or held, and everything that moves with it.

    ``key`` says what the version was made for (``fit:<hash of the input>``, ``pool:12``) and
    makes the commit idempotent. ``parent`` is the version it was computed from, which must
    still be the one in use. ``discoveries`` need no version number yet; it is filled in.
    ``notes`` are written with it. ``also`` does what else must happen in the same transaction: a
    person who renames a class changes its row and makes a version, or neither.
    """

    key: str
    detector: Detector
    parent: int | None
    classes: Sequence[NewClass] = ()
    discoveries: pa.Table | None = None
    pool_id: int | None = None
    held: bool = False
    reason: str | None = None
    who: str = "monitor"
    evidence: Mapping[str, Any] = field(default_factory=dict)
    counts: Sequence[Count] = ()
    events: Sequence[Occurrence] = ()
    notes: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    also: Callable[[Transaction], None] | None = None


def commit_version(store: Store, update: VersionUpdate, *, lease: Lease | None = None) -> Version:
    """Enter a detector version, and put it into use unless the gate holds it.

    1. A key that the store knows is done: its version is returned, nothing happens twice.
    2. The snapshot is published under a name that contains its hash, so a try that died can
       never be in the way of the next, whatever that one computes.
    3. The discoveries are staged under a temporary name.
    4. One write transaction begins.
       a. The lease is verified, and that the parent is still the version in use.
       b. If the next number is not the one we prepared for, we roll back and go to 2.
       c. The discoveries get their name: ``discoveries/`` if the version is published,
          ``held/`` if it waits for an operator.
       d. Version, publication, classes, pool, counters and events are written.
    5. The transaction commits: the version exists.
    """
    if update.discoveries is not None:
        checked(update.discoveries, DISCOVERIES)
    for _ in range(RETRIES):
        fault_point("version.start")
        with store.reading() as tx:
            done = tx.versions.by_key(update.key)
            number = tx.versions.next_number()
        if done is not None:
            return done
        folder = f"detectors/v{number:06d}-{content_hash(update.detector)[:16]}"
        snapshot = publish_snapshot(store.folder, folder, update.detector)
        fault_point("version.after_snapshot")
        staged = _stage_discoveries(store, update, number)
        fault_point("version.after_stage_discoveries")
        try:
            with store.transaction(lease) as tx:
                if tx.versions.next_number() == number:
                    version = _record(tx, update, number, snapshot, staged)
                    fault_point("version.before_commit")
                else:
                    version = None
        except BaseException:
            _discard(staged)
            raise
        if version is not None:
            fault_point("version.after_commit")
            return version
        _discard(staged)
        store.folder.delete_folder(folder)
    raise StoreError(f"{update.key}: other versions were published {RETRIES} times in between")


def release_version(store: Store, number: int, *, who: str, reason: str) -> Version:
    """Put a held version into use: an operator has looked and agrees.

    Its discoveries become visible in the same transaction, its pool is resolved.
    """
    held, staged = _held(store, number)
    try:
        with store.transaction() as tx:
            version = tx.versions.get(number)
            if version.state is not VersionState.HELD:
                raise WrongState(f"detector version {number}: is {version.state}, not held")
            _refuse_moved_parent(tx, version.parent)
            version = tx.versions.publish(number, who=who, reason=reason)
            if staged is not None and held is not None:
                staged.publish()
                tx.outputs.replace([held], _output(tx, "discoveries", number, staged, held.rows))
                for class_id in _class_ids(store, held.name):
                    tx.classes.set_created_in(class_id, number)
            _tell_pool(tx, version.pool_id, PoolEvent.VERSION_RELEASED, reason, number)
            tx.events.append("detector.updated", {"version": number, "released_by": who})
            fault_point("release.before_commit")
    except BaseException:
        _discard(staged)
        raise
    fault_point("release.after_commit")
    if held is not None:
        store.folder.delete(held.name)
    return version


def refuse_version(store: Store, number: int, *, who: str, reason: str) -> Version:
    """Turn a held version down: its pool stays unresolved, its discoveries are dropped."""
    held, staged = _held(store, number)
    _discard(staged)
    with store.transaction() as tx:
        version = tx.versions.refuse(number, reason=reason)
        if held is not None:
            tx.outputs.remove(held)
        _tell_pool(tx, version.pool_id, PoolEvent.VERSION_REFUSED, reason, None)
        tx.events.append("detector.refused", {"version": number, "by": who, "reason": reason})
    if held is not None:
        store.folder.delete(held.name)
    return version


def _record(
    tx: Transaction, update: VersionUpdate, number: int, snapshot: Snapshot, staged: Staged | None
) -> Version:
    """Steps 4a (parent), 4c and 4d."""
    _refuse_moved_parent(tx, update.parent)
    fault_point("version.in_transaction")
    if staged is not None and update.discoveries is not None:
        staged.publish()
        kind = "held" if update.held else "discoveries"
        tx.outputs.add(_output(tx, kind, number, staged, update.discoveries.num_rows))
    fault_point("version.after_publish_discoveries")
    version = tx.versions.add(
        key=update.key,
        parent=update.parent,
        snapshot=snapshot.name,
        sha256=snapshot.sha256,
        fingerprint=update.detector.fingerprint.digest(),
        state=VersionState.HELD if update.held else VersionState.PUBLISHED,
        reason=update.reason,
        pool_id=update.pool_id,
        evidence=update.evidence,
    )
    known = {row.id for row in tx.classes.all()}
    for new in update.classes:
        if new.id not in known:
            tx.classes.add(new.name, new.origin, class_id=new.id)
        if not update.held:
            tx.classes.set_created_in(new.id, number)
    if not update.held:
        tx.versions.publish(number, who=update.who, reason=update.reason)
    event = PoolEvent.VERSION_HELD if update.held else PoolEvent.VERSION_PUBLISHED
    _tell_pool(tx, update.pool_id, event, update.reason, number)
    tx.counters.add(update.counts)
    kind = "detector.held" if update.held else "detector.updated"
    tx.events.append(
        kind,
        {
            "version": number,
            "parent": update.parent,
            "pool": update.pool_id,
            "classes": [new.id for new in update.classes],
            "reason": update.reason,
        },
    )
    for occurrence in update.events:
        tx.events.append(occurrence.kind, occurrence.payload, source=occurrence.source)
    for (room, key), note in update.notes.items():
        tx.notes.set(room, key, note)
    if update.also is not None:
        update.also(tx)
    return version


def _refuse_moved_parent(tx: Transaction, parent: int | None) -> None:
    current = tx.versions.current()
    number = None if current is None else current.number
    if number != parent:
        raise WrongState(
            f"the update was computed from detector version {parent}, but version {number} is "
            "in use now; compute it again from that one"
        )


def _tell_pool(
    tx: Transaction, pool_id: int | None, event: PoolEvent, reason: str | None, number: int | None
) -> None:
    if pool_id is not None:
        tx.pools.apply(pool_id, event, reason=reason, resolved_by=number)


def _stage_discoveries(store: Store, update: VersionUpdate, number: int) -> Staged | None:
    found = update.discoveries
    if found is None or found.num_rows == 0:
        return None
    index = found.schema.get_field_index("detector_version")
    numbers = pa.array([number] * found.num_rows, pa.int32())
    numbered = found.set_column(index, DISCOVERIES.field(index), numbers)
    kind = "held" if update.held else "discoveries"
    return stage_table(store.folder, output_name(kind, Span(number, number)), numbered)


def _held(store: Store, number: int) -> tuple[OutputFile | None, Staged | None]:
    with store.reading() as tx:
        held = next((o for o in tx.outputs.of_kind("held") if o.first == number), None)
    if held is None:
        return None, None
    found = read_table(store.folder, held.name)
    name = output_name("discoveries", Span(number, number))
    return held, stage_table(store.folder, name, found)


def _class_ids(store: Store, name: str) -> list[str]:
    column = read_table(store.folder, name, ["class_id"]).column("class_id")
    return sorted(set(column.to_pylist()))


def _output(tx: Transaction, kind: str, number: int, staged: Staged, rows: int) -> OutputFile:
    return OutputFile(
        kind=kind,
        first=number,
        last=number,
        generation=0,
        name=staged.name,
        rows=rows,
        purged=0,
        size=staged.size,
        sha256=staged.sha256,
        committed_at=tx.now,
    )


def _discard(staged: Staged | None) -> None:
    if staged is not None:
        staged.discard()
