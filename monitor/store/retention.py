"""Drops features of finished pools; ``source_purge`` removes what somebody asked for.

Every function first lets the database forget, in one transaction, and deletes files after it.
A crash in between leaves files that nobody refers to; ``check`` names them, ``repair`` removes
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, select, update

from monitor.store.atomic_files import declare, fault_point
from monitor.store.exemplars import shown_by_exemplars, thumbnail_name
from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.pools import is_settled
from monitor.store.record_states import QuestionState
from monitor.store.store import Store, Transaction
from monitor.store.tables import pools, questions
from monitor.store.verdict_columns import (
    spool_folder,
)

declare("retention.after_forget_pool")


def drop_spools(store: Store, *, before: datetime) -> list[int]:
    """Delete the features of pools that were finished before this moment and are settled."""
    with store.reading() as tx:
        pool_ids = _finished(tx, before)
    for pool_id in pool_ids:
        drop_spool(store, pool_id)
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


def drop_spool(store: Store, pool_id: int) -> None:
    with store.transaction() as tx:
        tx.pools.drop_members(pool_id)
    fault_point("retention.after_forget_pool")
    store.folder.delete_folder(spool_folder(pool_id))


def drop_thumbnails(store: Store, *, before: datetime) -> int:
    """Delete the pictures of questions that were closed before this moment."""
    with store.transaction() as tx:
        condition = (questions.c.state == QuestionState.CLOSED) & (questions.c.closed_at < before)
        digests = forget_thumbnails(tx, condition)
    for digest in digests:
        store.folder.delete(thumbnail_name(digest))
    return len(digests)


def forget_thumbnails(
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
