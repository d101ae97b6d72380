"""From a listing of the feed to batches in the ledger, and those that come next."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from monitor.feed.batch_plan import FileBatches, plan_files, same_file
from monitor.feed.errors import FeedError, FileGone, FileIncomplete, SourceUnavailable
from monitor.feed.feed_storage import FeedFile, FeedStorage, by_arrival
from monitor.feed.input_contract import Columns
from monitor.feed.unfinished_files import UnfinishedFile, is_overdue, wait_for
from monitor.store import Store, Transaction
from monitor.store.atomic_files import declare
from monitor.store.ledger import FilePlan, Listing
from monitor.store.record_states import FileState
from monitor.store.records import Batch, FileRow, FileStat, Lease

declare(
    "intake.before_register", "intake.after_register", "intake.before_plan", "intake.after_plan"
)

#: Files that are planned in one go: the first batches start before ten thousand are planned.
PLANNED_AT_ONCE = 256
#: Files keep their order through an outage: those behind one that cannot be read wait for it this
#: long. One that alone stays away for longer is passed over, and tried again behind the others.
KEPT_IN_ORDER = timedelta(minutes=2)

#: One that stays away for so long while others are read is set aside: uploads and mounts take less.
ALONE = timedelta(minutes=10)

#: Batches that are read at once: enough that quick workers do not ask the ledger every time.
READ_AHEAD = 512

#: A hash that no footer has.
_OTHER = "other"


def quarantine_file(tx: Transaction, file_id: int, path: str, problem: FeedError) -> None:
    """Quarantine a file; one that is gone comes back by itself when it is listed again."""
    tx.files.quarantine(file_id, str(problem), gone=isinstance(problem, FileGone))
    tx.events.append("file.quarantined", {"file": path, "reason": str(problem)})


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What one look at the feed brought."""

    new: int = 0
    batches: int = 0
    problems: tuple[str, ...] = ()
    """Sentences about files that were quarantined or have changed."""
    moved: frozenset[int] = frozenset()
    """Files whose batches are not what they were: whatever is under way of them is void."""
    outage: FeedError | None = None
    """Why some files could not be looked at."""


class FileIntake:
    """Enters new files and cuts them into batches; bad ones are quarantined with their reason.

    Registering and planning are transactions of their own, each harmless to repeat.
    """

    def __init__(
        self, store: Store, source: FeedStorage, columns: Columns, *, rows: int, lease: Lease | None
    ) -> None:
        self._store = store
        self._source = source
        self._columns = columns
        self._rows = rows
        self._lease = lease
        # Hashes of path, size and time of what the last listing held: what is unchanged need
        # not be looked up again, however many files there are.
        self._listed: set[int] = set()
        self._waiting: dict[int, UnfinishedFile] = {}
        self._away: dict[int, datetime] = {}
        # When a file of the feed could last be read, whatever was in it.
        self._read_at: datetime | None = None

    @property
    def unfinished(self) -> int:
        """Files that somebody still seems to write."""
        return len(self._waiting)

    def register(
        self, listing: Iterable[FeedFile], *, whole: bool = True, again: bool = False
    ) -> IntakeResult:
        """Enter what is new in a listing, and speak up about what has changed.

        Not ``whole`` is a listing of some files, which says nothing about the others. ``again``
        looks at files also if the last listing showed them just so.
        """
        files = list(listing)
        fresh = [file for file in files if again or hash(file) not in self._listed]
        found = self._enter(fresh) if fresh else Listing((), (), 0)
        identified, outage = self._identify(found.unsure, {file.path: file for file in fresh})
        unsure = {file.path for file in found.unsure} if outage is not None else set()
        if whole:
            self._listed = {hash(file) for file in files if file.path not in unsure}
        else:
            self._listed.update(hash(file) for file in fresh if file.path not in unsure)
        changed = (*found.changed, *identified.changed)
        replaced = (*found.replaced, *identified.replaced)
        returned = (*found.returned, *identified.returned)
        return IntakeResult(
            new=len(found.new) + len(replaced) + len(returned),
            problems=(
                *(f"{f.path}: {f.reason}; a feed's files must not change" for f in changed),
                *(
                    f"{f.path}: was replaced before it was read; it is read as it is"
                    for f in replaced
                ),
                *(f"{f.path}: is there again" for f in returned),
            ),
            moved=frozenset(file.id for file in (*changed, *replaced)),
            outage=outage,
        )

    def _identify(
        self, unsure: Sequence[FileRow], listed: Mapping[str, FeedFile]
    ) -> tuple[Listing, FeedError | None]:
        """Tell touched files from replaced ones, by their footers."""
        known: list[FeedFile] = []
        for file in unsure:
            before = FeedFile(file.path, file.size, file.mtime_ns, file.digest)
            now = listed[file.path]
            try:
                is_same = same_file(self._source, before, now)
            except FileGone:
                continue  # the next listing will tell
            except SourceUnavailable as error:
                return Listing((), (), 0), error
            known.append(replace(now, digest=file.digest if is_same else _OTHER))
        return (self._enter(known) if known else Listing((), (), 0)), None

    def _enter(self, files: Iterable[FeedFile]) -> Listing:
        with self._store.step("intake", "register", self._lease) as tx:
            found = tx.files.register(
                [FileStat(f.path, f.size, f.modified_ns, f.digest) for f in by_arrival(files)]
            )
            for file in found.changed:
                tx.events.append("file.changed", {"file": file.path, "reason": file.reason})
            for file in found.replaced:
                tx.events.append("file.replaced", {"file": file.path})
            for file in found.returned:
                tx.events.append("file.returned", {"file": file.path})
        return found

    def plan(self, *, final: bool = False) -> IntakeResult:
        """Cut some new files into batches; ``final`` does not wait for unfinished ones."""
        with self._store.reading() as tx:
            now = tx.now
            files = self._due(tx, final)
        if not files:
            return IntakeResult()
        stats = [FeedFile(f.path, f.size, f.mtime_ns) for f in files]
        plans = list(plan_files(self._source, stats, self._columns, rows_per_batch=self._rows))
        good: list[FilePlan] = []
        bad: list[tuple[FileRow, FeedError]] = []
        for file, plan in zip(files, plans, strict=True):
            if isinstance(plan.problem, SourceUnavailable) and self._holds_others(file, now):
                break
            if plan.problem is None:
                self._waiting.pop(file.id, None)
                self._away.pop(file.id, None)
                ranges = tuple((spec.first_row, spec.rows) for spec in plan.batches)
                good.append(FilePlan(file.id, plan.rows, ranges, plan.digest))
            elif not self._is_worth_waiting(file, plan, now):
                bad.append((file, plan.problem))
            if not isinstance(plan.problem, SourceUnavailable):
                self._read_at = now
        away = [plan.problem for plan in plans if isinstance(plan.problem, SourceUnavailable)]
        outage = away[0] if away else None
        if not good and not bad:
            return IntakeResult(outage=outage)
        with self._store.step("intake", "plan", self._lease) as tx:
            batches = tx.files.plan_many(good)
            for file, problem in bad:
                quarantine_file(tx, file.id, file.path, problem)
        problems = tuple(str(problem) for _, problem in bad)
        return IntakeResult(batches=len(batches), problems=problems, outage=outage)

    def look_again(self) -> IntakeResult:
        """Enter what was unfinished as it is now: whoever wrote it may be through."""
        now: list[FeedFile] = []
        for waiting in self._waiting.values():
            with contextlib.suppress(FeedError):  # the next listing will tell
                found = self._source.stat(waiting.file.path)
                if found != waiting.file:
                    now.append(found)
        return self.register(now, whole=False, again=True) if now else IntakeResult()

    def _due(self, tx: Transaction, final: bool) -> list[FileRow]:
        """New files, those that were unfinished at the last look behind the others.

        At the end only such of them as have changed since.
        """
        found = tx.files.in_state(FileState.NEW, limit=PLANNED_AT_ONCE + len(self._waiting))
        fresh = [file for file in found if file.id not in self._waiting]
        rest = [file for file in found if not (final and self._is_as_it_was(file))]
        return (fresh or rest)[:PLANNED_AT_ONCE]

    def _is_as_it_was(self, file: FileRow) -> bool:
        """Whether a file was unfinished at the last look, and nobody has written to it since."""
        waiting = self._waiting.get(file.id)
        return waiting is not None and waiting.file == FeedFile(file.path, file.size, file.mtime_ns)

    def _holds_others(self, file: FileRow, now: datetime) -> bool:
        """Whether what follows a file that cannot be reached waits for it."""
        away = now - self._away.setdefault(file.id, now)
        return timedelta() <= away < KEPT_IN_ORDER

    def _is_worth_waiting(self, file: FileRow, plan: FileBatches, now: datetime) -> bool:
        """Whether a file without a footer may still get one."""
        if isinstance(plan.problem, SourceUnavailable):
            self._waiting.setdefault(file.id, wait_for(plan.file, None, now))
            since = self._away.setdefault(file.id, now)
            is_alone = self._read_at is not None and self._read_at > since
            return not is_alone or now - since < ALONE
        if not isinstance(plan.problem, FileIncomplete | FileGone):
            return False
        waiting = wait_for(plan.file, self._waiting.get(file.id), now)
        if is_overdue(waiting, now):
            del self._waiting[file.id]
            return False
        self._waiting[file.id] = waiting
        return True


class PendingBatches:
    """The batches that come next, with their files: the ledger, read some way ahead.

    ``under_way`` are the numbers of those that were taken and are not committed yet, at any time.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     PendingBatches(store, under_way=()).take(3)
    []
    """

    def __init__(self, store: Store, *, under_way: Collection[int]) -> None:
        self._store, self._under_way = store, under_way
        self._ahead: deque[tuple[Batch, FileRow]] = deque()
        self._has_more = True

    def read_again(self) -> None:
        """The ledger may hold more than when it was last read."""
        self._has_more = True

    def has(self, count: int) -> bool:
        """Whether so many batches wait."""
        if len(self._ahead) < count and self._has_more:
            self._read(count)
        return len(self._ahead) >= count

    def take(self, count: int) -> list[tuple[Batch, FileRow]]:
        """So many of the next batches, or as many as there are; from here on they are under way."""
        self.has(count)
        return [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]

    def remove_file(self, file_id: int) -> None:
        """Forget the batches of a file that was quarantined."""
        self._ahead = deque(pair for pair in self._ahead if pair[0].file_id != file_id)

    def _read(self, count: int) -> None:
        limit = max(count, READ_AHEAD) + len(self._under_way)
        known = {file.id: file for _, file in self._ahead}
        with self._store.reading() as tx:
            found = tx.batches.pending(limit)
            batches = [batch for batch in found if batch.id not in self._under_way]
            missing = {batch.file_id for batch in batches} - set(known)
            known |= {file.id: file for file in tx.files.get_many(missing)}
        self._ahead = deque((batch, known[batch.file_id]) for batch in batches)
        self._has_more = len(found) == limit
