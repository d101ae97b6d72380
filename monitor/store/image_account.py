"""The account: every image of a listed file has a verdict, a reason, or is known to wait.

    listed images = verdicts + rejected + quarantined + waiting + dropped

for every file, and so for all of them. A file that nobody has opened yet (or that could not be
opened) is counted as a file: how many images it holds is not known.

:class:`Counts` says how many files, batches, pools and questions are in which state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, case, func, select

from monitor.store.pool_and_file_states import (
    QUARANTINED_FILES,
    BatchState,
    FileState,
    PoolState,
    QuestionState,
)
from monitor.store.shared_names import IMAGES
from monitor.store.tables import Repository, batches, files, outputs, pools, questions

if TYPE_CHECKING:
    from monitor.store.store import Transaction


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


class Counts(Repository):
    """How many of everything are in which state, at this moment."""

    def files_by_state(self) -> dict[FileState, int]:
        rows = self._connection.execute(select(files.c.state, func.count()).group_by(files.c.state))
        return {state: int(count) for state, count in rows}

    def pools_by_state(self) -> dict[PoolState, int]:
        rows = self._connection.execute(select(pools.c.state, func.count()).group_by(pools.c.state))
        return {state: int(count) for state, count in rows}

    def pending_batches(self) -> int:
        return self._count(batches.c.state == BatchState.PENDING)

    def new_files(self, most: int) -> int:
        """Files that nobody has opened yet; counted up to ``most``, since there may be millions."""
        some = select(files.c.id).where(files.c.state == FileState.NEW).limit(most).subquery()
        return int(self._connection.execute(select(func.count()).select_from(some)).scalar_one())

    def open_questions(self, pool_id: int | None = None) -> int:
        """Those that wait for an answer, of one pool or of all."""
        is_open = questions.c.state == QuestionState.OPEN
        return self._count(
            is_open if pool_id is None else is_open & (questions.c.pool_id == pool_id)
        )

    def questions_since(self, moment: datetime) -> int:
        """How many questions were asked since a moment: what a weekly budget counts."""
        return self._count(questions.c.opened_at > moment)

    def output_files(self, kind: str) -> int:
        """Committed files of a kind, such as ``verdicts``."""
        return self._count(outputs.c.kind == kind)

    def quarantined(self) -> dict[str, int]:
        """Files, batches and images that have neither a verdict nor a reason."""
        is_quarantined = batches.c.state == BatchState.QUARANTINED
        images = select(func.coalesce(func.sum(batches.c.rows), 0)).where(is_quarantined)
        return {
            "files": self._count(files.c.state.in_(QUARANTINED_FILES)),
            "batches": self._count(is_quarantined),
            "images": int(self._connection.execute(images).scalar_one()),
        }

    def _count(self, condition: ColumnElement[bool]) -> int:
        statement = select(func.count()).where(condition)
        return int(self._connection.execute(statement).scalar_one())


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
    for row in tx.counters.all(IMAGES):
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
