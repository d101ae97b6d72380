"""Clearing up after a process that died in the middle of a commit."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from monitor.store.atomic_files import declare, fault_point
from monitor.store.output_columns import STAGING
from monitor.store.records import Lease
from monitor.store.store import Store, Transaction
from monitor.store.tables import chunks, outputs, pool_members

declare("recover.start", "recover.after_name", "recover.after_remove")


@dataclass(frozen=True, slots=True)
class Recovered:
    """Committed files that got their names, and files of unfinished tries that went."""

    named: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def recover(store: Store, lease: Lease | None = None) -> Recovered:
    """Finish or undo what a dead process left half done; call it first, under the lease.

    1. The write lock is taken and the lease verified: whoever still computes under an older
       lease can no longer commit.
    2. Staged files that the database knows are committed: they get their names.
    3. All other staged files belong to tries that never committed: they are removed.

    Interrupted itself, it can simply be called again.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     print(recover(store))
    Recovered(named=(), removed=())
    """
    fault_point("recover.start")
    with store.transaction() as tx:
        if lease is not None:
            tx.leases.verify(lease)
        waiting = [entry.name for entry in store.folder.list(STAGING)]
        promised = promises(tx, waiting)
        named = [name for staged, name in promised.items() if store.folder.settle(staged, name)]
        fault_point("recover.after_name")
        removed = [staged for staged in waiting if staged not in promised]
        for name in removed:
            store.folder.delete(name)
        fault_point("recover.after_remove")
    return Recovered(tuple(sorted(named)), tuple(sorted(removed)))


def promises(tx: Transaction, staged: list[str]) -> dict[str, str]:
    """Of these staged files, those that were committed, with the names they shall have."""
    found: dict[str, str] = {}
    for table in (outputs, pool_members):
        for piece in chunks(staged):
            rows = tx.connection.execute(
                select(table.c.staged, table.c.name).where(table.c.staged.in_(piece))
            )
            found.update({row.staged: row.name for row in rows})
    return found
