"""From new files of the feed, seen soon however many lie there, to batches in the ledger.

A full listing is the truth, and takes longer the more files there are. Between two of them a local
folder tells cheaply whether anything came: its own time changes with each new or renamed file.
Only then are its names read, and only what is new among them, or was still being written a moment
ago, is looked at. What such a glance cannot see (an old file that was overwritten, a network
folder whose times lag) the next full listing shows. Buckets are always listed in full.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from monitor.feed.batch_plan import FileBatches, plan_files, same_file
from monitor.feed.contract import Columns
from monitor.feed.errors import (
    FeedError,
    FileGone,
    FileIncomplete,
    SourceMissing,
    SourceUnavailable,
)
from monitor.feed.feed_storage import (
    SUFFIXES,
    FeedFile,
    FeedStorage,
    by_arrival,
    file_problem,
    is_hidden,
    storage_errors,
)
from monitor.feed.unfinished_files import UnfinishedFile, is_overdue, wait_for
from monitor.plain_text import path_problem
from monitor.store import Store, Transaction
from monitor.store.atomic_files import declare, fault_point
from monitor.store.ledger import FilePlan, Listing
from monitor.store.records import FileRow, FileStat, Lease
from monitor.store.states import FileState

#: Looking at the feed takes at most this share of the time.
SHARE = 0.1
#: How often a local folder is glanced at: a fifth of what people notice.
GLANCE_SECONDS = 0.1
#: A file that was written to so lately may not be finished: it is looked at again.
YOUNG_SECONDS = 60.0
#: So many of them at most: after a bulk copy all are young, and the listing will do.
YOUNG_MOST = 1000
#: A folder that changed so lately may change again within the same tick of its clock.
TICK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look showed: the whole feed, or only what seems new."""

    files: tuple[FeedFile, ...]
    is_whole: bool
    refused: tuple[str, ...] = ()
    """Sentences about what is not taken in; a glance passes over it without a word."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """The names in a folder when they were last read."""

    names: frozenset[str]
    modified_ns: int
    read_at: float

    def is_as_it_was(self, modified_ns: int) -> bool:
        settled = self.read_at - self.modified_ns / 1e9 > TICK_SECONDS
        return settled and self.modified_ns == modified_ns


_UNREAD = _Folder(frozenset(), modified_ns=0, read_at=0.0)


class FeedWatch:
    """Looks at a feed again and again, and says when to look next.

    Not for several threads at once.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as place:
    ...     watch = FeedWatch(FeedStorage.at(place), seconds=60)
    ...     first = watch.look()
    ...     _ = pathlib.Path(place, "a.parquet").write_bytes(b"-")
    ...     second = watch.look()
    >>> first.is_whole, second.is_whole, [file.path for file in second.files]
    (True, False, ['a.parquet'])
    """

    def __init__(
        self, source: FeedStorage, *, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._seconds, self._clock = source, seconds, clock
        self._is_local = source.is_local
        self._folders: dict[str, _Folder] = {}
        self._young: dict[str, FeedFile] = {}
        self._whole_due = -float("inf")
        self._due = -float("inf")

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def look(self) -> Sight:
        """List the feed if that is due, else glance at what has changed."""
        began = time.monotonic()
        whole = not self._is_local or began >= self._whole_due
        sight = self._list() if whole else self._glance()
        ended = time.monotonic()
        pause = (ended - began) / SHARE
        if whole:
            self._whole_due = ended + max(self._seconds, pause)
            # In a local folder a long listing does not keep the next glance waiting.
            self._due = ended + GLANCE_SECONDS if self._is_local else self._whole_due
        else:
            self._due = ended + max(GLANCE_SECONDS, pause)
        return sight

    def postpone(self, seconds: float) -> None:
        """After a storage that did not answer."""
        self._due = self._whole_due = time.monotonic() + seconds

    def _list(self) -> Sight:
        if self._is_local:
            # Names first: what comes between them and the listing is then seen twice, never lost.
            self._folders = dict(self._walk(self._source.root))
        found = self._source.survey()
        self._young = {}
        self._mind(found.files)
        return Sight(found.files, is_whole=True, refused=found.refused)

    def _walk(self, folder: str) -> Iterator[tuple[str, _Folder]]:
        """The names of a folder and of all below it; links to folders are not followed."""
        for place, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not is_hidden(name)]
            with contextlib.suppress(FileNotFoundError):
                modified = os.stat(place).st_mtime_ns
                yield place, _Folder(frozenset(folders + files), modified, self._clock())

    def _glance(self) -> Sight:
        with storage_errors(self._source.location):
            fresh = [file for place in list(self._folders) for file in self._fresh(place)]
        changed = list(self._changed())
        self._mind(fresh)
        return Sight((*fresh, *changed), is_whole=False)

    def _fresh(self, place: str) -> Iterator[FeedFile]:
        """Files of a folder whose names were not there before, and those of new folders in it."""
        known = self._folders[place]
        try:
            modified = os.stat(place).st_mtime_ns
            if known.is_as_it_was(modified):
                return
            names = frozenset(os.listdir(place))
        except (FileNotFoundError, NotADirectoryError) as error:
            if place == self._source.root:
                raise SourceMissing(f"{self._source.location}: the folder has vanished") from error
            del self._folders[place]
            return
        self._folders[place] = _Folder(names, modified, self._clock())
        for name in sorted(names - known.names):
            path = os.path.join(place, name)
            if is_hidden(name):
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                self._folders[path] = _UNREAD
                yield from self._fresh(path)
            elif (file := self._stat(path)) is not None:
                yield file

    def _changed(self) -> Iterator[FeedFile]:
        """Young files that somebody has written to since the last look."""
        for path, before in list(self._young.items()):
            now = self._stat(os.path.join(self._source.root, path))
            if now is None or not self._is_young(now):
                del self._young[path]
            if now is not None and now != before:
                self._young[path] = now
                yield now

    def _mind(self, files: Sequence[FeedFile]) -> None:
        """Keep an eye on what may still be written: the latest, if there are many."""
        young = [file for file in files if self._is_young(file)]
        latest = by_arrival(young)[-YOUNG_MOST:]
        self._young.update((file.path, file) for file in latest)
        while len(self._young) > YOUNG_MOST:
            del self._young[next(iter(self._young))]

    def _stat(self, path: str) -> FeedFile | None:
        """The file, if it is one of the feed's."""
        if not path.lower().endswith(SUFFIXES):
            return None
        with contextlib.suppress(FileNotFoundError):
            inner = os.path.relpath(path, self._source.root)
            if path_problem(inner) or file_problem(path, self._source.root):
                return None
            found = os.stat(path)
            if stat.S_ISREG(found.st_mode):
                return FeedFile(inner, found.st_size, found.st_mtime_ns)
        return None

    def _is_young(self, file: FeedFile) -> bool:
        return file.modified_ns is None or self._clock() - file.modified_ns / 1e9 < YOUNG_SECONDS


declare(
    "intake.before_register", "intake.after_register", "intake.before_plan", "intake.after_plan"
)

#: Files that are planned in one go: the first batches start before ten thousand are planned.
PLANNED_AT_ONCE = 256
#: Files keep their order through an outage: those behind one that cannot be read wait for it this
#: long. One that alone stays away for longer is passed over, and tried again behind the others.
KEPT_IN_ORDER = timedelta(minutes=2)

#: A hash that no footer has.
_OTHER = "other"


def set_file_aside(tx: Transaction, file_id: int, path: str, problem: FeedError) -> None:
    """Quarantine a file; one that is gone comes back by itself when it is listed again."""
    tx.files.quarantine(file_id, str(problem), gone=isinstance(problem, FileGone))
    tx.events.append("file.quarantined", {"file": path, "reason": str(problem)})


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What one look at the feed brought."""

    new: int = 0
    batches: int = 0
    problems: tuple[str, ...] = ()
    """Sentences about files that were set aside or have changed."""
    moved: frozenset[int] = frozenset()
    """Files whose batches are not what they were: whatever is under way of them is void."""
    outage: FeedError | None = None
    """Why some files could not be looked at."""


class FileIntake:
    """Enters new files and cuts them into batches; bad ones are set aside with their reason.

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
        fault_point("intake.before_register")
        with self._store.transaction(self._lease) as tx:
            found = tx.files.register(
                [FileStat(f.path, f.size, f.modified_ns, f.digest) for f in by_arrival(files)]
            )
            for file in found.changed:
                tx.events.append("file.changed", {"file": file.path, "reason": file.reason})
            for file in found.replaced:
                tx.events.append("file.replaced", {"file": file.path})
            for file in found.returned:
                tx.events.append("file.returned", {"file": file.path})
        fault_point("intake.after_register")
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
        away = [plan.problem for plan in plans if isinstance(plan.problem, SourceUnavailable)]
        outage = away[0] if away else None
        if not good and not bad:
            return IntakeResult(outage=outage)
        fault_point("intake.before_plan")
        with self._store.transaction(self._lease) as tx:
            batches = tx.files.plan_many(good)
            for file, problem in bad:
                set_file_aside(tx, file.id, file.path, problem)
        fault_point("intake.after_plan")
        problems = tuple(str(problem) for _, problem in bad)
        return IntakeResult(batches=len(batches), problems=problems, outage=outage)

    def _due(self, tx: Transaction, final: bool) -> list[FileRow]:
        """New files, those that were unfinished at the last look behind the others."""
        found = tx.files.in_state(FileState.NEW, limit=PLANNED_AT_ONCE + len(self._waiting))
        fresh = [file for file in found if file.id not in self._waiting]
        return fresh[:PLANNED_AT_ONCE] or ([] if final else found[:PLANNED_AT_ONCE])

    def _holds_others(self, file: FileRow, now: datetime) -> bool:
        """Whether what follows a file that cannot be reached waits for it."""
        away = now - self._away.setdefault(file.id, now)
        return timedelta() <= away < KEPT_IN_ORDER

    def _is_worth_waiting(self, file: FileRow, plan: FileBatches, now: datetime) -> bool:
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
