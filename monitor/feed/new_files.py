"""Seeing new files soon, however many lie there already.

A full listing is the truth, and takes longer the more files there are. Between two of them a local
folder tells cheaply whether anything came: its own time changes with each new or renamed file.
Only then are its names read, and only what is new among them, or was still being written a moment
ago, is looked at. What such a glance cannot see (an old file that was overwritten, a network
folder whose times lag) the next full listing shows; it is made piece by piece between glances, so
that no new file waits for it. Buckets are always listed in full.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from monitor.feed.errors import SourceMissing
from monitor.feed.feed_storage import (
    SUFFIXES,
    FeedFile,
    FeedStorage,
    by_arrival,
    file_problem,
    is_hidden,
    storage_errors,
)
from monitor.plain_text import path_problem

#: Looking at the feed takes at most this share of the time.
SHARE = 0.1
#: A full listing of a local folder, which only shows what glances cannot, takes this share of it.
LISTING_SHARE = 0.02
#: How long a glance waits for a piece of a full listing.
PIECE_SECONDS = 0.01
#: How often a local folder is glanced at: a glance at one that did not change is one call.
GLANCE_SECONDS = 0.05
#: Glances at a large folder to which files are added all the time take at most this share.
GLANCE_SHARE = 0.2
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


class _Listing:
    """A full listing of a local folder that is made in pieces, while glances go on."""

    def __init__(self, source: FeedStorage) -> None:
        self._entries = source.entries()
        self._files: dict[str, FeedFile] = {}
        self._later: dict[str, FeedFile] = {}
        self._refused: list[str] = []
        self.seconds = 0.0

    def go_on(self) -> Sight | None:
        """List for a moment; the whole once it is there."""
        began = time.monotonic()
        for number, entry in enumerate(self._entries):
            if isinstance(entry, FeedFile):
                self._files[entry.path] = entry
            else:
                self._refused.append(entry)
            if number % 32 == 31 and time.monotonic() - began > PIECE_SECONDS:
                self.seconds += time.monotonic() - began
                return None
        self.seconds += time.monotonic() - began
        files = sorted((self._files | self._later).values(), key=attrgetter("path"))
        return Sight(tuple(files), is_whole=True, refused=tuple(sorted(self._refused)))

    def correct(self, files: Sequence[FeedFile]) -> None:
        """What glances saw since is newer than what was listed."""
        self._later.update((file.path, file) for file in files)


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
        self._listing: _Listing | None = None
        self._listing_due = self._due = -float("inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the feed again."""
        return time.monotonic() >= self._due

    @property
    def seconds_until_due(self) -> float:
        """How long to wait before the next look."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> Sight:
        """List the feed if that is due, else glance at what has changed."""
        began = time.monotonic()
        if not self._folders:
            sight = self._list()
            ended = time.monotonic()
            pause = max(self._seconds, (ended - began) / SHARE)
            # In a local folder a long listing does not keep the next glance waiting.
            self._due = ended + (GLANCE_SECONDS if self._is_local else pause)
            self._listing_due = ended + pause
            return sight
        sight = self._glance()
        glanced = time.monotonic()
        if self._listing is None and began >= self._listing_due:
            self._listing = _Listing(self._source)
        if self._listing is not None:
            self._listing.correct(sight.files)
            with storage_errors(self._source.location):
                whole = self._listing.go_on()
            if whole is not None:
                pause = max(self._seconds, self._listing.seconds / LISTING_SHARE)
                self._listing, self._listing_due = None, time.monotonic() + pause
                self._mind_listed(whole.files)
                sight = whole
        self._due = time.monotonic() + max(GLANCE_SECONDS, (glanced - began) / GLANCE_SHARE)
        return sight

    def postpone(self, seconds: float) -> None:
        """After a storage that did not answer: what was known of its folders may not be so."""
        self._folders, self._listing = {}, None
        self._due = time.monotonic() + seconds

    def _list(self) -> Sight:
        if self._is_local:
            # Names first: what comes between them and the listing is then seen twice, never lost.
            with storage_errors(self._source.location):
                self._folders = dict(self._walk(self._source.root))
        found = self._source.survey()
        self._young = {}
        self._mind(found.files)
        return Sight(found.files, is_whole=True, refused=found.refused)

    def _mind_listed(self, files: Sequence[FeedFile]) -> None:
        """Files and folders that no glance has shown, where the times of folders lag."""
        self._mind(files)
        folders = {os.path.dirname(file.path) for file in files}
        for folder in folders:
            place = os.path.join(self._source.root, folder) if folder else self._source.root
            self._folders.setdefault(place, _UNREAD)

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
            place = os.path.join(self._source.root, path)
            # A thousand of them may be young: of one that is as it was a single call tells it.
            now = before if self._is_as_it_was(place, before) else self._stat(place)
            if now is None or not self._is_young(now):
                del self._young[path]
            if now is not None and now != before:
                self._young[path] = now
                yield now

    def _is_as_it_was(self, place: str, before: FeedFile) -> bool:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(place)
            return (found.st_size, found.st_mtime_ns) == (before.size, before.modified_ns)
        return False

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
