"""Clearing up after a process that died in the middle of a commit."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from monitor.store.atomic_files import Folder
from monitor.store.faults import declare, fault_point
from monitor.store.output_files import STAGING, Span
from monitor.store.records import Lease, OutputFile, PoolMember
from monitor.store.repository import chunks
from monitor.store.store import Store, Transaction
from monitor.store.tables import outputs, pool_members

declare("recover.start", "recover.after_name", "recover.after_remove")

#: Folders whose files a batch brings.
BATCH_FOLDERS = ("verdicts", "rejected", "features")


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
    4. So are files that stand under the name of a batch which is still to do. Only conclad
       before layout 2 named files before committing them.

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
        removed = [
            *(staged for staged in waiting if staged not in promised),
            *_named_too_early(store.folder, tx),
        ]
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


def standing(folder: Folder, file: OutputFile | PoolMember) -> str | None:
    """Where a committed file is: under its name, still staged, or (None) nowhere."""
    if folder.size(file.name) is not None:
        return file.name
    if file.staged is not None and folder.size(file.staged) is not None:
        return file.staged
    # Between the two looks its owner may have named it.
    return file.name if folder.size(file.name) is not None else None


def settled(folder: Folder, file: OutputFile | PoolMember) -> str:
    """The final name of a committed file, which it gets now if it has none yet."""
    if file.staged is not None and folder.size(file.name) is None:
        folder.settle(file.staged, file.name)
    return file.name


def _named_too_early(folder: Folder, tx: Transaction) -> list[str]:
    single = {
        entry.name: span.first
        for kind in BATCH_FOLDERS
        for entry in folder.list(kind)
        if (span := Span.parse(entry.name)) is not None and span == Span(span.first, span.first)
    }
    pending = tx.batches.pending_among(single.values())
    return [name for name, batch in single.items() if batch in pending]
