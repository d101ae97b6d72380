"""The commit points of what is learnt: a detector version with its discoveries, settled verdicts.

:func:`commit_version` enters a version, its classes and its discoveries together,
:func:`commit_settled` the settled verdicts of a pool. Both stage their file first; then one
transaction changes the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from monitor.novelty.detector import Detector
from monitor.store.atomic_files import Staged, declare, fault_point
from monitor.store.counters_and_image_account import SourceSteps
from monitor.store.errors import StoreError, TableMismatch, WrongState
from monitor.store.note_and_counter_names import STAGING
from monitor.store.pool_transitions import FINISHED_POOLS, PoolEvent
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.records import Count, Lease, Occurrence, OutputFile, Settlement, Version
from monitor.store.snapshots import Snapshot, content_hash, publish_snapshot
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import (
    DISCOVERIES,
    SETTLED,
    SETTLED_BY,
    SETTLED_VERDICTS,
    Span,
    checked,
    output_name,
    read_table,
    stage_table,
)

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
    "settle.start",
    "settle.after_stage",
    "settle.after_sync",
    "settle.in_transaction",
    "settle.before_commit",
    "settle.after_commit",
    "settle.after_publish",
)

#: Each retry means that somebody else published a version in between, which takes a person or an
#: inner loop, or that a recovery, which runs once when a monitor starts, took our staged file for
#: that of a dead process; more than a few in a row cannot be an accident.
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


def commit_settled(
    store: Store,
    pool_id: int,
    revision: int,
    table: pa.Table,
    *,
    reason: str,
    counts: Sequence[Count] = (),
    steps: Sequence[SourceSteps] = (),
    events: Sequence[Occurrence] = (),
    also: Callable[[Transaction], None] | None = None,
    lease: Lease | None = None,
) -> Settlement:
    """Settle verdicts of a finished pool: all of its images first, some of them again later.

    Revision 1 holds every image of the pool. Later ones hold those whose settled verdict changes
    and follow without a gap; of several rows of an image the last one counts.

    1. A (pool, revision) that the store knows is done: its settlement is returned, nothing
       happens twice.
    2. The rows are staged under a temporary name in ``staging/`` and synced.
    3. One write transaction begins.
       a. The lease is verified, that nobody has settled this revision meanwhile, and that the
          staged file is still there. If it is gone we start again at step 1.
       b. The settlement gets the next number; output (with where its file is staged), settlement,
          counters and events are written, and what ``also`` does.
    4. The transaction commits: the verdicts are settled.
    5. The staged file gets its name, ``settled/s<number>.parquet``.

    A crash before 4 leaves a file in ``staging/`` that ``recover`` removes, one after it a file
    that ``recover`` names. A table without rows makes a settlement without a file.
    """
    _refuse_strange(pool_id, revision, table)
    for _ in range(RETRIES):
        fault_point("settle.start")
        with store.reading() as tx:
            done = _settlement_of(tx, pool_id, revision)
        if done is not None:
            return done
        staged = _stage_settled(store, pool_id, revision, table)
        promised = False
        try:
            fault_point("settle.after_sync")
            with store.transaction(lease) as tx:
                done = _settlement_of(tx, pool_id, revision)
                lost = staged is not None and store.folder.size(staged.temporary) is None
                if done is None and not lost:
                    _refuse_settlement(tx, pool_id, revision)
                    fault_point("settle.in_transaction")
                    made = tx.settlements.add(pool_id, revision, reason=reason, rows=table.num_rows)
                    if staged is not None:
                        staged = _record_settled(tx, made, staged)
                    tx.counters.add(counts, steps)
                    for one in events:
                        tx.events.append(one.kind, one.payload, source=one.source)
                    if also is not None:
                        also(tx)
                    fault_point("settle.before_commit")
                    # From here on only the database knows whether it was committed.
                    promised = True
        except BaseException:
            if staged is not None and not promised:
                staged.discard()
            raise
        if promised:
            fault_point("settle.after_commit")
            if staged is not None:
                staged.settle()
            fault_point("settle.after_publish")
            return made
        if staged is not None:
            staged.discard()
    raise StoreError(
        f"pool {pool_id}: its staged verdicts were removed {RETRIES} times in a row; is a second "
        "monitor running on this state without a lease?"
    )


def _refuse_strange(pool_id: int, revision: int, table: pa.Table) -> None:
    checked(table, SETTLED)
    for column, allowed in (
        ("verdict", SETTLED_VERDICTS),
        ("by", SETTLED_BY),
        ("pool", (pool_id,)),
        ("revision", (revision,)),
    ):
        strange = set(pc.unique(table.column(column)).to_pylist()) - set(allowed)
        if strange:
            raise TableMismatch(
                f"column {column}: has {sorted(strange)[0]!r}, must have "
                f"{' or '.join(map(str, allowed))}"
            )


def _settlement_of(tx: Transaction, pool_id: int, revision: int) -> Settlement | None:
    return next((s for s in tx.settlements.of_pool(pool_id) if s.revision == revision), None)


def _refuse_settlement(tx: Transaction, pool_id: int, revision: int) -> None:
    pool = tx.pools.get(pool_id)
    if pool.state not in FINISHED_POOLS:
        raise WrongState(f"pool {pool_id}: is {pool.state}; its verdicts settle when it has ended")
    last = len(tx.settlements.of_pool(pool_id))
    if revision != last + 1:
        raise WrongState(
            f"pool {pool_id}: was settled {last} times, so the next revision is {last + 1}, "
            f"not {revision}"
        )


def _stage_settled(store: Store, pool_id: int, revision: int, table: pa.Table) -> Staged | None:
    """Step 2. The name that it waits under says what it is; its number comes with the commit."""
    if not table.num_rows:
        return None
    name = f"settled/pool-{pool_id:09d}-{revision}.parquet"
    staged = stage_table(store.folder, name, table, into=STAGING)
    fault_point("settle.after_stage")
    try:
        store.folder.sync(STAGING)
    except BaseException:
        staged.discard()
        raise
    return staged


def _record_settled(tx: Transaction, made: Settlement, staged: Staged) -> Staged:
    """Step 3b for the file; returns it with the name that it will have."""
    named = replace(staged, name=output_name("settled", Span(made.number, made.number)))
    output = _output(tx, "settled", made.number, named, made.rows)
    tx.outputs.add(replace(output, staged=staged.temporary))
    return named


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
