"""Seeing new files soon, however many lie there already.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
