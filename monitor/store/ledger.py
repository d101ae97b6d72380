"""The ledger: which files are known, how they were cut into batches, what is still to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from monitor.plain_text import visible
from monitor.store.errors import NotFound, WrongState
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import Batch, FileRow, FileStat
from monitor.store.tables import Repository, batches, chunks, files


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing of the feed brought."""

    new: tuple[FileRow, ...]
    changed: tuple[FileRow, ...]
    """Files that differ from what was read of them: a person must hear of it."""
    unchanged: int
    replaced: tuple[FileRow, ...] = ()
    """Files that differ and of which nothing had been read: they are new again."""
    returned: tuple[FileRow, ...] = ()
    """Files that were gone and are there again."""
    unsure: tuple[FileRow, ...] = ()
    """Files whose time alone differs. Nothing was changed about them: whoever knows the hash of
    their footers registers them again with it."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How a file of so many rows is cut: (first row, number of rows) of each batch."""

    file_id: int
    rows: int
    ranges: tuple[tuple[int, int], ...]
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of the rows of a batch, and which detector version said so."""

    batch: Batch
    detector_version: int
    known: int
    novel: int
    rejected: int
    duplicates: int

    def settled(self, at: datetime) -> Batch:
        """The batch as the ledger has it from then on."""
        values = {name: getattr(self, name) for name in _OUTCOME}
        return replace(self.batch, state=BatchState.DONE, settled_at=at, **values)


_OUTCOME = ("detector_version", "known", "novel", "rejected", "duplicates")


class Files(Repository):
    """The files of the feed."""

    def register(self, listing: Iterable[FileStat]) -> Listing:
        """Enter what is new, and notice what was seen before but is different now.

        What has not been read is read as it is now. A file of which something was read is moved
        to ``changed``: its rest is quarantined, and a person must hear of it (the caller writes
        the event). A file whose time alone differs is the same if its footer is.
        """
        new: list[FileStat] = []
        touched: list[tuple[FileRow, FileStat]] = []
        returned: list[FileRow] = []
        unsure: list[FileRow] = []
        unchanged = 0
        for piece in chunks(listing):
            known = {file.path: file for file in self.by_paths([stat.path for stat in piece])}
            for stat in piece:
                file = known.get(stat.path)
                if file is None:
                    new.append(stat)
                elif (same := _same(file, stat)) is None:
                    unsure.append(file)
                elif not same:
                    touched.append((file, stat))
                elif file.state is FileState.GONE:
                    returned.append(self._restore(file, stat))
                else:
                    unchanged += 1
                    if file.mtime_ns != stat.mtime_ns:
                        self._set(file.id, mtime_ns=stat.mtime_ns)
        changed = [(file, self._touch(file, stat)) for file, stat in touched]
        return Listing(
            new=tuple(self._enter(new)),
            changed=tuple(now for _, now in changed if now.state is FileState.CHANGED),
            unchanged=unchanged,
            replaced=tuple(
                now for before, now in changed if now.state is FileState.NEW and before.rows
            ),
            returned=tuple(returned),
            unsure=tuple(unsure),
        )

    def _enter(self, stats: Sequence[FileStat]) -> list[FileRow]:
        if not stats:
            return []
        first = self._next_id(files.c.id)
        entered = [
            FileRow(
                id=first + offset,
                path=stat.path,
                size=stat.size,
                mtime_ns=stat.mtime_ns,
                digest=None,
                rows=None,
                state=FileState.NEW,
                reason=None,
                tries=0,
                first_seen_at=self._now,
                updated_at=self._now,
            )
            for offset, stat in enumerate({stat.path: stat for stat in stats}.values())
        ]
        self._connection.execute(insert(files), [_values(file) for file in entered])
        return entered

    def _touch(self, file: FileRow, stat: FileStat) -> FileRow:
        """Another file has this name now."""
        of_file = batches.c.file_id == file.id
        was_read = self._connection.execute(
            select(exists().where(of_file, batches.c.state == BatchState.DONE))
        ).scalar()
        reason = _difference(file, stat)
        values = {"size": stat.size, "mtime_ns": stat.mtime_ns}
        if was_read:
            self.quarantine(file.id, reason)
            self._set(file.id, state=FileState.CHANGED, **values)
        else:
            self._connection.execute(delete(batches).where(of_file))
            self._set(
                file.id, state=FileState.NEW, reason=None, rows=None, digest=None, tries=0, **values
            )
        return self.get(file.id)

    def _restore(self, file: FileRow, stat: FileStat) -> FileRow:
        """A file that was gone is there again: it continues where it stopped."""
        self._connection.execute(
            update(batches)
            .where(batches.c.file_id == file.id, batches.c.state == BatchState.QUARANTINED)
            .values(state=BatchState.PENDING, reason=None, settled_at=None, tries=0)
        )
        state = FileState.NEW if file.rows is None else FileState.PLANNED
        self._set(file.id, state=state, reason=None, mtime_ns=stat.mtime_ns)
        return self.get(file.id)

    def by_paths(self, paths: Sequence[str]) -> list[FileRow]:
        return self._all(FileRow, select(files).where(files.c.path.in_(paths)))

    def get(self, file_id: int) -> FileRow:
        found = self._first(FileRow, select(files).where(files.c.id == file_id))
        if found is None:
            raise NotFound(f"file {file_id}: not in the ledger")
        return found

    def get_many(self, file_ids: Iterable[int]) -> list[FileRow]:
        """Those of the files that are in the ledger."""
        found: list[FileRow] = []
        for piece in chunks(sorted(set(file_ids))):
            found += self._all(FileRow, select(files).where(files.c.id.in_(piece)))
        return found

    def in_state(self, state: FileState, *, limit: int = 1000, after: int = 0) -> list[FileRow]:
        """In the order they were first seen; pass the last id as ``after`` to go on."""
        return self._all(
            FileRow,
            select(files)
            .where(files.c.state == state, files.c.id > after)
            .order_by(files.c.id)
            .limit(limit),
        )

    def quarantine(self, file_id: int, reason: str, *, gone: bool = False) -> None:
        """Quarantine a file with its unfinished batches; a ``gone`` one returns by itself."""
        state = FileState.GONE if gone else FileState.QUARANTINED
        reason = visible(reason)
        self._set(file_id, state=state, reason=reason)
        self._connection.execute(
            update(batches)
            .where(batches.c.file_id == file_id, batches.c.state == BatchState.PENDING)
            .values(state=BatchState.QUARANTINED, reason=reason, settled_at=self._now)
        )

    def plan(self, file_id: int, rows: int, ranges: Iterable[tuple[int, int]]) -> list[Batch]:
        """Cut a file into batches of (first row, number of rows); a file is planned once."""
        return self.plan_many([FilePlan(file_id, rows, tuple(ranges))])

    def plan_many(self, plans: Sequence[FilePlan]) -> list[Batch]:
        """The same for many files at once, in a few statements however many they are.

        Rows that were read before stay as they are: only the others are planned.
        """
        self._refuse_planned([plan.file_id for plan in plans])
        read = self._settled([plan.file_id for plan in plans])
        cuts = [
            (plan.file_id, start, count)
            for plan in plans
            for whole in plan.ranges
            for start, count in unread(whole, read.get(plan.file_id, ()))
        ]
        first = self._next_id(batches.c.id)
        planned = [
            {**_EMPTY_BATCH, "id": number, "file_id": file_id, "first_row": start, "rows": count}
            for number, (file_id, start, count) in enumerate(cuts, start=first)
        ]
        if planned:
            self._connection.execute(insert(batches), planned)
        if plans:
            self._connection.execute(
                update(files)
                .where(files.c.id == bindparam("file"))
                .values(
                    rows=bindparam("count"),
                    digest=bindparam("footer"),
                    state=bindparam("next"),
                    reason=None,
                    updated_at=self._now,
                ),
                [
                    {
                        "file": plan.file_id,
                        "count": max(plan.rows, _end(read.get(plan.file_id, ()))),
                        "footer": plan.digest,
                        "next": FileState.PLANNED if plan.ranges else FileState.DONE,
                    }
                    for plan in plans
                ],
            )
            if read:
                self.finish_if_done(read)
        return [Batch(**values) for values in planned]

    def _settled(self, file_ids: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """By file, the rows that need not be planned again: first row and number, in order."""
        found: dict[int, list[tuple[int, int]]] = {}
        for piece in chunks(file_ids):
            rows = self._connection.execute(
                select(batches.c.file_id, batches.c.first_row, batches.c.rows)
                .where(batches.c.file_id.in_(piece))
                .order_by(batches.c.file_id, batches.c.first_row)
            )
            for row in rows:
                found.setdefault(row.file_id, []).append((row.first_row, row.rows))
        return found

    def _refuse_planned(self, file_ids: Sequence[int]) -> None:
        found = self.get_many(file_ids)
        for file in found:
            if file.state is not FileState.NEW:
                raise WrongState(f"{file.path}: is {file.state}, only a new file can be planned")
        for missing in set(file_ids) - {file.id for file in found}:
            raise NotFound(f"file {missing}: not in the ledger")

    def finish_if_done(self, file_ids: Iterable[int]) -> None:
        """Mark the planned ones among these files done that have no batch left to do."""
        for piece in chunks(sorted(set(file_ids))):
            self._connection.execute(_FINISH_FILES, {"ids": piece, "moment": self._now})

    def _set(self, file_id: int, **values: Any) -> None:
        self._connection.execute(
            update(files).where(files.c.id == file_id).values(updated_at=self._now, **values)
        )


class Batches(Repository):
    """The row ranges of the files, in feed order."""

    def get(self, batch_id: int) -> Batch:
        found = self._first(Batch, select(batches).where(batches.c.id == batch_id))
        if found is None:
            raise NotFound(f"batch {batch_id}: not in the ledger")
        return found

    def get_many(self, batch_ids: Iterable[int]) -> dict[int, Batch]:
        """By number; every one of them must be in the ledger."""
        wanted = list(dict.fromkeys(batch_ids))
        found: dict[int, Batch] = {}
        for piece in chunks(wanted):
            rows = self._connection.execute(_BY_IDS, {"ids": piece})
            found.update({row.id: Batch(*row) for row in rows})
        for missing in wanted:
            if missing not in found:
                raise NotFound(f"batch {missing}: not in the ledger")
        return found

    def of_file(self, file_id: int) -> list[Batch]:
        return self._all(
            Batch,
            select(batches).where(batches.c.file_id == file_id).order_by(batches.c.first_row),
        )

    def pending(self, limit: int) -> list[Batch]:
        """The next work in feed order."""
        return self._all(
            Batch,
            select(batches)
            .where(batches.c.state == BatchState.PENDING)
            .order_by(batches.c.file_id, batches.c.first_row)
            .limit(limit),
        )

    def pending_among(self, batch_ids: Iterable[int]) -> set[int]:
        """Those of the batches that are still to do."""
        return {
            row.id
            for piece in chunks(set(batch_ids))
            for row in self._connection.execute(_PENDING_BY_IDS, {"ids": piece})
        }

    def start(self, batch_ids: Sequence[int]) -> None:
        """Count one more try of each, before the work is given out.

        Durable before the work, so that a batch which kills its worker (and ours) is
        recognised after the restart.
        """
        if batch_ids:
            self._connection.execute(
                update(batches)
                .where(batches.c.id == bindparam("batch"))
                .values(tries=batches.c.tries + 1),
                [{"batch": batch_id} for batch_id in batch_ids],
            )

    def acquit(self, batch_id: int | None = None) -> None:
        """Forget the tries of a batch, or of all that are still to do."""
        which = _PENDING if batch_id is None else batches.c.id == batch_id
        self._connection.execute(update(batches).where(which, batches.c.tries > 0).values(tries=0))

    def quarantine(self, batch_id: int, reason: str) -> None:
        """Give a batch up; the rest of its file continues."""
        batch = self.get(batch_id)
        if batch.state is BatchState.DONE:
            raise WrongState(f"batch {batch_id}: is committed and cannot be quarantined")
        self._connection.execute(
            update(batches)
            .where(batches.c.id == batch_id)
            .values(state=BatchState.QUARANTINED, reason=visible(reason), settled_at=self._now)
        )
        Files(self._connection, self._now).finish_if_done([batch.file_id])

    def split(self, batch_id: int) -> tuple[Batch, Batch]:
        """Halve a batch that is still to do, so that what is wrong with it costs fewer rows."""
        batch = self.get(batch_id)
        if batch.state is not BatchState.PENDING or batch.rows < 2:
            raise WrongState(f"batch {batch_id}: is {batch.state} with {batch.rows} rows")
        half = batch.rows // 2
        first = replace(batch, rows=half, tries=0)
        second = replace(
            first,
            id=self._next_id(batches.c.id),
            first_row=batch.first_row + half,
            rows=batch.rows - half,
        )
        self._connection.execute(
            update(batches).where(batches.c.id == batch_id).values(rows=half, tries=0)
        )
        self._connection.execute(
            insert(batches), [{name: getattr(second, name) for name in Batch.__slots__}]
        )
        return first, second

    def finish(self, outcomes: Sequence[BatchOutcome]) -> None:
        """Mark batches done, and the files that have nothing left."""
        if not outcomes:
            return
        moment = {"batch_settled_at": self._now}
        self._connection.execute(
            _FINISH,
            [
                {
                    "batch": done.batch.id,
                    **moment,
                    **{f"batch_{n}": getattr(done, n) for n in _OUTCOME},
                }
                for done in outcomes
            ],
        )
        Files(self._connection, self._now).finish_if_done(done.batch.file_id for done in outcomes)

    def first_pending_between(self, first: int, last: int) -> int | None:
        """The lowest batch number of the range that is still to do, if there is one."""
        return self._connection.execute(
            select(func.min(batches.c.id)).where(
                batches.c.id.between(first, last), batches.c.state == BatchState.PENDING
            )
        ).scalar()


# Built once: these run with every commit, and building costs more than running them.

_IDS: BindParameter[Sequence[int]] = bindparam("ids", expanding=True)
_PENDING = batches.c.state == BatchState.PENDING
_BY_IDS = select(*(batches.c[name] for name in Batch.__slots__)).where(batches.c.id.in_(_IDS))
_PENDING_BY_IDS = select(batches.c.id).where(batches.c.id.in_(_IDS), _PENDING)
_FINISH = (
    update(batches)
    .where(batches.c.id == bindparam("batch"))
    .values(
        state=BatchState.DONE,
        **{name: bindparam(f"batch_{name}") for name in ("settled_at", *_OUTCOME)},
    )
)
_FINISH_FILES = (
    update(files)
    .where(
        files.c.id.in_(_IDS),
        files.c.state == FileState.PLANNED,
        ~exists().where(batches.c.file_id == files.c.id, _PENDING),
    )
    .values(state=FileState.DONE, updated_at=bindparam("moment"))
)

_EMPTY_BATCH: dict[str, Any] = {
    "state": BatchState.PENDING,
    "reason": None,
    "tries": 0,
    "detector_version": None,
    "known": 0,
    "novel": 0,
    "rejected": 0,
    "duplicates": 0,
    "settled_at": None,
}


def _values(file: FileRow) -> dict[str, Any]:
    return {name: getattr(file, name) for name in FileRow.__slots__}


def unread(whole: tuple[int, int], read: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a range (first row, number) that none of the other ranges covers.

    >>> unread((0, 10), [(2, 3), (8, 4)])
    [(0, 2), (5, 3)]
    """
    start, end = whole[0], whole[0] + whole[1]
    left: list[tuple[int, int]] = []
    for first, count in read:
        if first + count <= start or first >= end:
            continue
        if first > start:
            left.append((start, first - start))
        start = max(start, first + count)
    if start < end:
        left.append((start, end - start))
    return left


def _end(ranges: Sequence[tuple[int, int]]) -> int:
    return max((first + count for first, count in ranges), default=0)


def _same(file: FileRow, stat: FileStat) -> bool | None:
    """Whether a file is what it was; None if only its footer could tell."""
    if file.size != stat.size:
        return False
    if file.digest is not None and stat.digest is not None:
        return file.digest == stat.digest  # a copy with the same bytes may carry another time
    if file.mtime_ns == stat.mtime_ns:
        return True
    return None if file.digest is not None and stat.digest is None else False


def _difference(file: FileRow, stat: FileStat) -> str:
    if file.size != stat.size:
        return f"was {file.size} bytes when read, is {stat.size} now"
    return "was modified after it had been read"
