"""Whether settled verdicts are whole: against the pools, and against the settlements."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, select

from monitor.store.integrity_findings import Finding, Severity
from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.pools import is_settled
from monitor.store.store import Transaction
from monitor.store.tables import pools, settlements


def settled_findings(tx: Transaction) -> Iterator[Finding]:
    """Pools that were settled in part or cannot be settled, and files that cover other rows."""
    yield from _pools(tx)
    yield from _files(tx)


def _pools(tx: Transaction) -> Iterator[Finding]:
    uneven = (
        select(pools.c.id, pools.c.size, settlements.c.rows)
        .join(settlements, settlements.c.pool_id == pools.c.id)
        .where(settlements.c.revision == 1, settlements.c.rows != pools.c.size)
    )
    for row in tx.connection.execute(uneven):
        yield Finding(
            Severity.ERROR,
            "settled-uneven",
            f"pool {row.id}",
            f"has {row.size} samples, {row.rows} were settled",
        )
    lost = select(pools.c.id).where(
        pools.c.state.in_(FINISHED_POOLS),
        pools.c.spool_dropped_at.is_not(None),
        pools.c.size > 0,
        ~is_settled(),
    )
    for row in tx.connection.execute(lost):
        yield Finding(
            Severity.WARNING,
            "never-settled",
            f"pool {row.id}",
            "its features were dropped before its verdicts were settled; they stay as they were",
        )


def _files(tx: Transaction) -> Iterator[Finding]:
    """Merging drops rows that a later one replaces, so a merged file may have fewer."""
    covered = 0
    for output in tx.outputs.of_kind("settled"):
        total = select(func.sum(settlements.c.rows)).where(
            settlements.c.number.between(output.first, output.last)
        )
        expected = int(tx.connection.execute(total).scalar() or 0)
        covered += expected
        found = output.rows + output.purged
        if found > expected or (found < expected and output.first == output.last):
            yield Finding(
                Severity.ERROR,
                "rows-differ",
                output.name,
                f"covers {output.rows} rows and {output.purged} purged ones, {expected} were "
                "settled",
            )
    total = select(func.sum(settlements.c.rows))
    settled = int(tx.connection.execute(total).scalar() or 0)
    if covered != settled:
        yield Finding(
            Severity.ERROR,
            "rows-uncovered",
            "settled",
            f"the files cover {covered} settled rows, {settled} were committed",
        )
