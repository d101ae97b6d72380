"""The account: every image of a listed file has a verdict, a reason, or is known to wait.

    listed images = verdicts + rejected + quarantined + waiting + dropped

for every file, and so for all of them. A file that nobody has opened yet (or that could not be
opened) is counted as a file: how many images it holds is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, case, func, select

from monitor.store.shared_names import IMAGES
from monitor.store.states import BatchState, FileState
from monitor.store.store import Transaction
from monitor.store.tables import batches, counters, files


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the images of one file, or of all.

    >>> Account(listed=10, verdicts=6, rejected=1, quarantined=2, waiting=1).unaccounted
    0
    """

    listed: int = 0
    verdicts: int = 0
    rejected: int = 0
    """With the duplicates."""
    quarantined: int = 0
    waiting: int = 0
    dropped: int = 0
    """Given up by a person."""

    @property
    def unaccounted(self) -> int:
        """Images that have neither a verdict nor a reason nor a place in a queue."""
        placed: int = sum(getattr(self, name) for name in PLACES)
        return self.listed - placed


PLACES = tuple(field.name for field in fields(Account) if field.name != "listed")


def account(tx: Transaction) -> Account:
    """Of the whole feed."""
    listed = tx.connection.execute(select(func.coalesce(func.sum(files.c.rows), 0))).scalar_one()
    row = tx.connection.execute(select(*_places())).one()
    return Account(int(listed), *map(int, row))


def uneven_files(tx: Transaction, limit: int = 1000) -> Iterator[tuple[str, Account]]:
    """Files whose images do not add up; there are none unless something was lost."""
    listed = func.coalesce(files.c.rows, 0)
    together = func.coalesce(func.sum(_settled()), 0)
    found = (
        select(files.c.path, listed.label("listed"), *_places())
        .select_from(files.outerjoin(batches, batches.c.file_id == files.c.id))
        .group_by(files.c.id, files.c.path, files.c.rows)
        .having(listed != together)
        .order_by(files.c.id)
        .limit(limit)
    )
    for path, *numbers in tx.connection.execute(found):
        yield path, Account(*map(int, numbers))


def by_source(tx: Transaction) -> dict[str, Account]:
    """What was committed of each source; waiting images are in files not read yet."""
    found: dict[str, dict[str, int]] = {}
    for row in tx.connection.execute(select(counters).where(counters.c.name == IMAGES)):
        mine = found.setdefault(row.source, {})
        mine[row.label] = mine.get(row.label, 0) + int(row.value)
    return {
        source: Account(
            listed=sum(mine.values()),
            verdicts=mine.get("known", 0) + mine.get("novel", 0),
            rejected=mine.get("rejected", 0) + mine.get("duplicate", 0),
        )
        for source, mine in sorted(found.items())
    }


def unopened(tx: Transaction) -> int:
    """Files whose number of images is not known."""
    condition = (files.c.rows.is_(None)) & (files.c.state != FileState.DROPPED)
    question = select(func.count()).select_from(files).where(condition)
    return int(tx.connection.execute(question).scalar_one())


def _places() -> list[ColumnElement[int]]:
    """Sums over batches, in the order of :data:`PLACES`."""
    verdicts = batches.c.known + batches.c.novel
    rejected = batches.c.rejected + batches.c.duplicates
    sums = {
        "verdicts": verdicts,
        "rejected": rejected,
        "quarantined": _rows_in(BatchState.QUARANTINED),
        "waiting": _rows_in(BatchState.PENDING),
        "dropped": _rows_in(BatchState.DROPPED),
    }
    return [func.coalesce(func.sum(sums[name]), 0).label(name) for name in PLACES]


def _settled() -> ColumnElement[int]:
    done = batches.c.known + batches.c.novel + batches.c.rejected + batches.c.duplicates
    return case((batches.c.state == BatchState.DONE, done), else_=batches.c.rows)


def _rows_in(state: BatchState) -> ColumnElement[int]:
    return case((batches.c.state == state, batches.c.rows), else_=0)
