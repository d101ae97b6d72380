"""The files of a source: found in one stable order, and told apart from those still being written.

A walk holds the names of one folder at a time, so a tree of a million files costs no more memory
than its largest folder's names.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from monitor.ingest.input_formats import FileKind, is_passed_over, kind_by_bytes, kind_of
from monitor.ingest.reader_items import as_text


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source."""

    path: str
    """Absolute. Not a Path: of a hundred thousand files these would cost a second."""
    name: str
    """Below the source's folder, with forward slashes."""
    root: str
    """The source's own name: of its folder, or of the file if that is the source."""
    kind: FileKind


@dataclass(slots=True)
class Walk:
    """All files of a folder, to any depth, in the order of their names.

    Links to folders are followed unless they lead back to a folder on the way. ``avoid`` is a
    folder that is never entered: the feed itself.
    """

    folder: Path
    avoid: Path | None = None
    ignored: Counter[str] = field(default_factory=Counter)
    """Files of kinds that are not ours, by suffix, in the last walk."""
    unreadable: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[SourceFile]:
        self.ignored.clear()
        self.unreadable.clear()
        root = as_text(self.folder.resolve().name or "root")
        yield from self._below(str(self.folder), "", root, (self.folder.resolve(),))

    def count(self) -> int | None:
        """How many images there are; None if some files hold more than one.

        Far quicker than a walk: nothing is sorted and nothing opened.
        """
        total = 0
        folders: list[tuple[str, tuple[Path, ...]]] = [(str(self.folder), (self.folder.resolve(),))]
        while folders:
            folder, above = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if is_passed_over(entry.name):
                            continue
                        if entry.is_dir():
                            real = Path(entry.path).resolve()
                            if real not in above and real != self.avoid:
                                folders.append((entry.path, (*above, real)))
                        elif kind_of(entry.name) is FileKind.IMAGE:
                            total += 1
                        elif (
                            kind_of(entry.name) not in (None, FileKind.STAC)
                            or "." not in entry.name
                        ):
                            return None
            except OSError:
                continue
        return total

    def _below(
        self, folder: str, prefix: str, root: str, above: tuple[Path, ...]
    ) -> Iterator[SourceFile]:
        try:
            with os.scandir(folder) as entries:
                # Names only: the entries of 100,000 files would take ten times the memory.
                names = sorted(
                    entry.name + ("/" if entry.is_dir() else "")
                    for entry in entries
                    if not is_passed_over(entry.name)
                )
        except OSError as error:
            self.unreadable.append(f"{folder}: {error.strerror}")
            return
        for name in names:
            path = f"{folder}/{name}"
            if name.endswith("/"):
                real = Path(path).resolve()
                if real not in above and real != self.avoid:
                    yield from self._below(path.rstrip("/"), prefix + name, root, (*above, real))
                continue
            kind = kind_of(name) or self._look(path, name)
            # In a folder a JSON file is a note beside an image far more often than a STAC item, and
            # an item's scene lies beside it as a file of its own.
            if kind is None or kind is FileKind.STAC:
                self.ignored[Path(name).suffix.lower() or "no suffix"] += 1
            else:
                yield SourceFile(path, as_text(prefix + name), root, kind)

    def _look(self, path: str, name: str) -> FileKind | None:
        """Only of names without a suffix: others say clearly enough that they are not ours."""
        if "." in name:
            return None
        try:
            with open(path, "rb") as file:
                return kind_by_bytes(file.read(512))
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file's state; another one means other content, or that somebody is writing."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Stamp:
        return cls(stat.st_size, stat.st_mtime_ns)

    def __str__(self) -> str:
        return f"{self.size}-{self.modified_ns}"


@dataclass(slots=True)
class Settling:
    """Tells files that lie still from those that somebody is writing.

    A file counts as finished when it was last changed ``seconds`` ago by its own time, or has been
    seen in the same state for so long: clocks of network disks may be wrong.

    >>> settling = Settling(3.0, wall=lambda: 1000.0, monotonic=lambda: 0.0)
    >>> settling.is_still("a", Stamp(1, 990 * 10**9))
    True
    >>> settling.is_still("b", Stamp(1, 999 * 10**9))
    False
    """

    seconds: float
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[str, tuple[Stamp, float]] = field(default_factory=dict)

    def is_still(self, path: str, stamp: Stamp) -> bool:
        age = self.wall() - stamp.modified_ns / 1e9
        if age >= self.seconds:
            self._seen.pop(path, None)
            return True
        before, since = self._seen.get(path, (None, 0.0))
        if before != stamp:
            self._seen[path] = (stamp, self.monotonic())
            return self.seconds <= 0
        if self.monotonic() - since >= self.seconds:
            self._seen.pop(path, None)
            return True
        return False

    def forget(self, path: str) -> None:
        self._seen.pop(path, None)
