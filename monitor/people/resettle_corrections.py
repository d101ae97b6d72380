"""Applies corrections that people make after a pool has ended to its settled verdicts.

Renaming, merging, retiring, contradicting and rolling back are events. A note keeps the number of
the last event that has been dealt with. After newer ones the settled pools are gone through in
order, some of them at a call: rows that say something else than what holds today are settled again
with the next revision of their pool. A row that was settled again no longer differs, so being
killed anywhere and doing it twice change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from monitor.store.read_verdicts import standing_rows
from monitor.store.record_states import ClassOrigin
from monitor.store.records import ClassRow, Event, Lease
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import BY_PERSON, KNOWN, NEW, SETTLED, UNDECIDED, table
from monitor.store.version_and_settled_commit import commit_settled

#: Events after which settled verdicts may say something that no longer holds.
CORRECTIONS = (
    "class.renamed",
    "class.merged",
    "class.retired",
    "pseudo_label.wrong",
    "detector.rolled_back",
)

ROOM, KEY = "settled", "corrections"

#: Pools of one call: their settled rows are in memory together, a few hundred thousand at most.
POOLS = 50
#: Events that are dealt with in one pass over the pools; more wait for the next pass.
EVENTS = 1000

_Image = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Resettled:
    """The result of one call; ``more`` says that there is work for another one."""

    pools: int = 0
    rows: int = 0
    more: bool = False


class _Moved(Exception):
    """A purge or settlement happened meanwhile; the computed rows may be outdated."""


def resettle_corrections(
    store: Store, *, lease: Lease | None = None, most: int = POOLS
) -> Resettled:
    """Settle again what corrections since the last time have changed, in at most ``most`` pools.

    Ids are followed through merges and names are those of today. Images of a class that was retired
    become undecided and keep its id, so that a rollback which revives it can give them back. An
    image whose pseudo-label was contradicted becomes undecided without a class. All of these are
    said by a person. Probabilities stay.
    """
    with store.reading() as tx:
        note = tx.notes.get(ROOM, KEY, {"done": 0, "through": None, "pool": 0})
        found = tx.events.after(note["done"], kinds=CORRECTIONS, limit=EVENTS)
        events = [e for e in found if note["through"] is None or e.id <= note["through"]]
        if not events:
            return Resettled()
        through = events[-1].id
        pool_ids = tx.settlements.pools_after(note["pool"], most)
        today = _Today.of(tx, events)
        purged = _purged(tx)
    changed = _changed(standing_rows(store, pool_ids), today) if pool_ids else SETTLED.empty_table()
    reason = ", ".join(sorted({event.kind for event in events}))
    pools = pc.unique(changed.column("pool")).to_pylist()

    ours: list[int] = []

    def refuse_purged(tx: Transaction) -> None:
        if _purged(tx) != purged:
            raise _Moved
        ours.append(tx.settlements.next_number() - 1)

    try:
        for pool_id in pools:
            rows = changed.filter(pc.equal(changed.column("pool"), pool_id))
            with store.reading() as tx:
                revision = len(tx.settlements.of_pool(pool_id)) + 1
            made = commit_settled(
                store,
                pool_id,
                revision,
                _with(rows, revision=revision),
                reason=reason,
                also=refuse_purged,
                lease=lease,
            )
            if made.number not in ours:
                raise _Moved
    except _Moved:
        return Resettled(more=True)
    ended = len(pool_ids) < most
    note = (
        {"done": through, "through": None, "pool": 0}
        if ended
        else {"done": note["done"], "through": through, "pool": pool_ids[-1]}
    )
    with store.transaction(lease) as tx:
        tx.notes.set(ROOM, KEY, note)
    return Resettled(
        len(pools), changed.num_rows, more=not ended or any(e.id > through for e in found)
    )


@dataclass(frozen=True, slots=True)
class _Today:
    """What holds now: which class an id means, and which images are said not to be of one."""

    classes: Mapping[str, ClassRow]
    contradicted: Mapping[_Image, str]
    born_in: Mapping[str, int | None]
    """The pool that a class was discovered in, by its id."""
    version: int

    @classmethod
    def of(cls, tx: Transaction, events: Iterable[Event]) -> _Today:
        classes = {row.id: tx.classes.resolve(row.id) for row in tx.classes.all()}
        pools = {version.number: version.pool_id for version in tx.versions.all()}
        current = tx.versions.current()
        return cls(
            classes=classes,
            contradicted={
                (event.source or "", event.payload["image_id"]): event.payload["class_id"]
                for event in events
                if event.kind == "pseudo_label.wrong"
            },
            born_in={
                row.id: pools.get(row.created_in) if row.created_in is not None else None
                for row in tx.classes.all()
            },
            version=0 if current is None else current.number,
        )

    def settle(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict that a settled row should have today."""
        same = {name: row[name] for name in _SAID}
        means = self.classes.get(row["class_id"] or "")
        if means is None:
            return same
        wrong = self.contradicted.get((row["source_id"], row["image_id"]))
        if wrong is not None and self.classes[wrong].id == means.id:
            return {"verdict": UNDECIDED, "class_id": None, "class_name": None, "by": BY_PERSON}
        same |= {"class_id": means.id, "class_name": means.name}
        if means.retired_at is not None:
            return same | {"verdict": UNDECIDED, "by": BY_PERSON}
        if (row["verdict"], row["by"]) == (UNDECIDED, BY_PERSON):
            # It was retired, and a rollback has brought it back.
            born_here = (
                means.origin is not ClassOrigin.FIT and self.born_in[means.id] == row["pool"]
            )
            return same | {"verdict": NEW if born_here else KNOWN}
        return same


_SAID = ("verdict", "class_id", "class_name", "by")


def _changed(rows: pa.Table, today: _Today) -> pa.Table:
    """The rows that say something else than what holds today, as they should be."""
    kept = []
    for row in _suspects(rows, today).to_pylist():
        wanted = today.settle(row)
        if any(row[name] != wanted[name] for name in _SAID):
            kept.append({**row, **wanted, "detector_version": today.version})
    return table(SETTLED, {name: [row[name] for row in kept] for name in SETTLED.names})


def _suspects(rows: pa.Table, today: _Today) -> pa.Table:
    """Rows that can differ, found column by column: most rows of a pool never do."""
    coded = rows.column("class_id").combine_chunks().dictionary_encode()
    known = [today.classes.get(one) for one in coded.dictionary.to_pylist()]
    ids = pa.array([None if one is None else one.id for one in known], pa.string())
    names = pa.array([None if one is None else one.name for one in known], pa.string())
    retired = pa.array(
        [one is not None and one.retired_at is not None for one in known], pa.bool_()
    )
    said = pc.and_(
        pc.equal(rows.column("verdict"), UNDECIDED), pc.equal(rows.column("by"), BY_PERSON)
    )
    images = pa.array([image for _, image in today.contradicted], pa.string())
    differs = pc.or_(
        pc.or_(
            _unequal(ids.take(coded.indices), rows.column("class_id")),
            _unequal(names.take(coded.indices), rows.column("class_name")),
        ),
        pc.or_(
            pc.is_in(rows.column("image_id"), value_set=images),
            pc.xor(pc.fill_null(retired.take(coded.indices), False), said),
        ),
    )
    return rows.filter(pc.and_(pc.is_valid(rows.column("class_id")), differs))


def _unequal(one: Any, other: Any) -> Any:
    return pc.fill_null(pc.not_equal(one, other), True)


def _with(rows: pa.Table, *, revision: int) -> pa.Table:
    at = SETTLED.get_field_index("revision")
    column = pa.array([revision] * rows.num_rows, pa.int32())
    return rows.set_column(at, SETTLED.field(at), column)


def _purged(tx: Transaction) -> int:
    return sum(output.purged for output in tx.outputs.of_kind("settled"))
