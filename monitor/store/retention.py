"""Letting go: what is no longer needed, and what somebody asked to have removed.

Every function first lets the database forget, in one transaction, and deletes files after it.
A crash in between leaves files that nobody refers to; ``check`` names them, ``repair`` removes
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, select, update

from monitor.store.errors import WrongState
from monitor.store.exemplars import forget_exemplars, shown_by_exemplars
from monitor.store.faults import declare, fault_point
from monitor.store.output_files import (
    KINDS,
    Span,
    output_name,
    read_table,
    spool_folder,
    stage_table,
)
from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.records import OutputFile, Pool
from monitor.store.recovery import settled
from monitor.store.settlements import is_settled
from monitor.store.states import QuestionState
from monitor.store.store import Store, Transaction
from monitor.store.tables import pools, questions
from monitor.store.thumbnails import thumbnail_name

declare(
    "retention.after_forget_pool",
    "purge.after_stage",
    "purge.before_commit",
    "purge.after_commit",
    "purge.after_thumbnails",
)


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, and which pools still hold features of the source."""

    rows: dict[str, int]
    thumbnails: int
    pools: tuple[int, ...]
    kept_pools: tuple[int, ...]


def drop_spools(store: Store, *, before: datetime) -> list[int]:
    """Delete the features of pools that were finished before this moment and are settled."""
    with store.reading() as tx:
        pool_ids = _finished(tx, before)
    for pool_id in pool_ids:
        _drop_spool(store, pool_id)
    return pool_ids


def _finished(tx: Transaction, before: datetime) -> list[int]:
    rows = tx.connection.execute(
        select(pools.c.id)
        .where(
            pools.c.state.in_(FINISHED_POOLS),
            pools.c.finished_at < before,
            pools.c.spool_dropped_at.is_(None),
            is_settled(),
        )
        .order_by(pools.c.id)
    )
    return [int(row.id) for row in rows]


def _drop_spool(store: Store, pool_id: int) -> None:
    with store.transaction() as tx:
        tx.pools.drop_members(pool_id)
    fault_point("retention.after_forget_pool")
    store.folder.delete_folder(spool_folder(pool_id))


def drop_thumbnails(store: Store, *, before: datetime) -> int:
    """Delete the pictures of questions that were closed before this moment."""
    with store.transaction() as tx:
        condition = (questions.c.state == QuestionState.CLOSED) & (questions.c.closed_at < before)
        digests = _forget_thumbnails(tx, condition)
    for digest in digests:
        store.folder.delete(thumbnail_name(digest))
    return len(digests)


def purge(store: Store, source: str, *, before: datetime) -> Purged:
    """Remove what is kept of a source's images captured before a moment.

    Rows of the outputs go (files are rewritten as ``~1``, ``~2``, … and the older ones
    deleted), pictures of its questions and of classes go, and the features of settled pools
    go. Rejected rows carry no capture time; they go when their file was committed before the
    moment. Pools that still wait for people or to be settled keep their features and are named in
    the result: finish them, then purge again. Counts, answers and the 16 byte digests against
    duplicates stay; no image can be had from them.
    """
    rows = {kind: _purge_outputs(store, kind, source, before) for kind in KINDS}
    with store.transaction() as tx:
        condition = (questions.c.source_id == source) & (
            questions.c.captured_at.is_(None) | (questions.c.captured_at < before)
        )
        digests = _forget_thumbnails(tx, condition, forget_exemplars(tx, source, before))
    for digest in digests:
        store.folder.delete(thumbnail_name(digest))
    fault_point("purge.after_thumbnails")
    with store.reading() as tx:
        holding = [pool.id for pool in _spooled(tx) if _holds(store, tx, pool.id, source, before)]
        finished = tuple(pool for pool in holding if tx.settlements.of_pool(pool))
    for pool_id in finished:
        _drop_spool(store, pool_id)
    return Purged(
        rows=rows,
        thumbnails=len(digests),
        pools=finished,
        kept_pools=tuple(pool for pool in holding if pool not in finished),
    )


def _spooled(tx: Transaction) -> list[Pool]:
    found = tx.connection.execute(
        select(pools.c.id).where(pools.c.spool_dropped_at.is_(None), pools.c.size > 0)
    )
    return [tx.pools.get(row.id) for row in found.all()]


def _holds(store: Store, tx: Transaction, pool_id: int, source: str, before: datetime) -> bool:
    columns = ["source_id", "captured_at"]
    return any(
        pc.any(_matches(read_table(store.folder, name, columns), source, before)).as_py()
        for name in (settled(store.folder, member) for member in tx.pools.members(pool_id))
    )


def _matches(found: pa.Table, source: str, before: datetime) -> pa.ChunkedArray:
    """Rows of the source captured before the moment; without a capture time, all of its rows."""
    same = pc.fill_null(pc.equal(found.column("source_id"), source), False)
    if "captured_at" not in found.schema.names:
        return same
    early = pc.less(found.column("captured_at"), pa.scalar(before, _captured_type(found)))
    return pc.and_(same, pc.fill_null(early, True))


def _captured_type(found: pa.Table) -> pa.DataType:
    return found.schema.field("captured_at").type


def _forget_thumbnails(
    tx: Transaction, condition: ColumnElement[bool], others: Sequence[str] = ()
) -> list[str]:
    """Clear the references; returns the pictures, with ``others``, that nothing refers to now."""
    wanted = [
        *others,
        *(
            str(row.thumbnail)
            for row in tx.connection.execute(
                select(questions.c.thumbnail).where(condition, questions.c.thumbnail.is_not(None))
            )
        ),
    ]
    tx.connection.execute(update(questions).where(condition).values(thumbnail=None))
    kept = shown_by_exemplars(tx)
    return [
        digest
        for digest in dict.fromkeys(wanted)
        if digest not in kept and not tx.questions.shows(digest)
    ]


def _purge_outputs(store: Store, kind: str, source: str, before: datetime) -> int:
    with store.reading() as tx:
        outputs = tx.outputs.of_kind(kind)
    return sum(_purge_output(store, output, source, before) for output in outputs)


def _purge_output(store: Store, output: OutputFile, source: str, before: datetime) -> int:
    """Rewrite one file without the rows, by the same steps as a compaction."""
    timed = "captured_at" in KINDS[output.kind].schema.names
    if not timed and output.committed_at >= before:
        return 0
    found = read_table(store.folder, settled(store.folder, output))
    matches = _matches(found, source, before)
    gone = int(pc.sum(matches).as_py() or 0)
    if gone == 0:
        return 0
    span = Span(output.first, output.last, output.generation + 1)
    name = output_name(output.kind, span)
    staged = stage_table(store.folder, name, found.filter(pc.invert(matches)))
    fault_point("purge.after_stage")
    new = replace(
        output,
        generation=span.generation,
        name=name,
        rows=output.rows - gone,
        purged=output.purged + gone,
        size=staged.size,
        sha256=staged.sha256,
        staged=None,
    )
    try:
        with store.transaction() as tx:
            if not tx.outputs.replace([output], new):
                raise WrongState(
                    f"{output.name}: was merged into another file meanwhile; purge again"
                )
            staged.publish()
            fault_point("purge.before_commit")
    except BaseException:
        staged.discard()
        raise
    fault_point("purge.after_commit")
    store.folder.delete(output.name)
    return gone
