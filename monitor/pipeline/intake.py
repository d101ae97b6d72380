"""From a listing of the feed to batches in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from monitor.feed.contract import Columns
from monitor.feed.errors import FileGone, FileIncomplete, SourceUnavailable
from monitor.feed.plan import Plan, plan_files
from monitor.feed.source import FeedFile, Source, by_arrival
from monitor.feed.waiting import Waiting, is_overdue, wait_for
from monitor.store import Store, Transaction
from monitor.store.faults import declare, fault_point
from monitor.store.ledger import FilePlan, Listing
from monitor.store.rows import File, FileStat, Lease
from monitor.store.states import FileState

declare(
    "intake.before_register", "intake.after_register", "intake.before_plan", "intake.after_plan"
)

#: Files that are planned in one go: the first batches start before ten thousand are planned.
PLANNED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Taken:
    """What one look at the feed brought."""

    new: int = 0
    batches: int = 0
    problems: tuple[str, ...] = ()
    """Sentences about files that were set aside or have changed."""


class Intake:
    """Enters new files and cuts them into batches; bad ones are set aside with their reason.

    Registering and planning are transactions of their own, each harmless to repeat.
    """

    def __init__(
        self, store: Store, source: Source, columns: Columns, *, rows: int, lease: Lease | None
    ) -> None:
        self._store = store
        self._source = source
        self._columns = columns
        self._rows = rows
        self._lease = lease
        # Hashes of path, size and time of what the last listing held: what is unchanged need
        # not be looked up again, however many files there are.
        self._listed: set[int] = set()
        self._waiting: dict[int, Waiting] = {}

    @property
    def unfinished(self) -> int:
        """Files that somebody still seems to write."""
        return len(self._waiting)

    def register(self, listing: Iterable[FeedFile], *, whole: bool = True) -> Taken:
        """Enter what is new in a listing, and speak up about what has changed.

        Not ``whole`` is a listing of some files, which says nothing about the others.
        """
        files = list(listing)
        fresh = [file for file in files if hash(file) not in self._listed]
        found = self._enter(fresh) if fresh else Listing((), (), 0)
        if whole:
            self._listed = {hash(file) for file in files}
        else:
            self._listed.update(hash(file) for file in fresh)
        return Taken(
            new=len(found.new),
            problems=tuple(
                f"{f.path}: {f.reason}; a feed's files must not change" for f in found.changed
            ),
        )

    def _enter(self, files: Iterable[FeedFile]) -> Listing:
        fault_point("intake.before_register")
        with self._store.transaction() as tx:
            self._verify(tx)
            found = tx.files.register(
                [FileStat(f.path, f.size, f.modified_ns) for f in by_arrival(files)]
            )
            for file in found.changed:
                tx.events.append("file.changed", {"file": file.path, "reason": file.reason})
        fault_point("intake.after_register")
        return found

    def plan(self, *, final: bool = False) -> Taken:
        """Cut some new files into batches; ``final`` does not wait for unfinished ones."""
        with self._store.reading() as tx:
            now = tx.now
            files = self._due(tx, final)
        if not files:
            return Taken()
        stats = [FeedFile(f.path, f.size, f.mtime_ns) for f in files]
        plans = list(plan_files(self._source, stats, self._columns, rows_per_batch=self._rows))
        good: list[FilePlan] = []
        bad: list[tuple[File, str]] = []
        for file, plan in zip(files, plans, strict=True):
            if plan.problem is None:
                self._waiting.pop(file.id, None)
                ranges = tuple((spec.first_row, spec.rows) for spec in plan.batches)
                good.append(FilePlan(file.id, plan.rows, ranges))
            elif not self._is_worth_waiting(file, plan, now):
                bad.append((file, str(plan.problem)))
        if not good and not bad:
            return Taken()
        fault_point("intake.before_plan")
        with self._store.transaction() as tx:
            self._verify(tx)
            batches = tx.files.plan_many(good)
            for file, reason in bad:
                tx.files.quarantine(file.id, reason)
                tx.events.append("file.quarantined", {"file": file.path, "reason": reason})
        fault_point("intake.after_plan")
        return Taken(batches=len(batches), problems=tuple(reason for _, reason in bad))

    def _due(self, tx: Transaction, final: bool) -> list[File]:
        """New files, those that were unfinished at the last look behind the others."""
        found = tx.files.in_state(FileState.NEW, limit=PLANNED_AT_ONCE + len(self._waiting))
        fresh = [file for file in found if file.id not in self._waiting]
        return fresh[:PLANNED_AT_ONCE] or ([] if final else found[:PLANNED_AT_ONCE])

    def _is_worth_waiting(self, file: File, plan: Plan, now: datetime) -> bool:
        """Whether a file without a footer may still get one."""
        if isinstance(plan.problem, SourceUnavailable):
            self._waiting.setdefault(file.id, wait_for(plan.file, None, now))
            return True
        if not isinstance(plan.problem, FileIncomplete | FileGone):
            return False
        waiting = wait_for(plan.file, self._waiting.get(file.id), now)
        if is_overdue(waiting, now):
            del self._waiting[file.id]
            return False
        self._waiting[file.id] = waiting
        return True

    def _verify(self, tx: Transaction) -> None:
        if self._lease is not None:
            tx.leases.verify(self._lease)
