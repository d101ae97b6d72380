"""Where a feed lives, and what is in it: listing over any filesystem that pyarrow knows.

A listing is path, size and time of each file and opens none of them. What is new is decided by
comparing paths with what is already known, never by a time, so a file that arrives late with an
old time is as new as any other.

Of a local folder only regular files are taken, and nothing that leads out of it. Whoever may write
into a feed's folder could otherwise have the monitor read, show and learn from any file that it can
reach, by a link; walk in circles; or wait for ever at a pipe that nobody writes to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from monitor.feed.errors import (
    FeedError,
    FileGone,
    FileRefused,
    SourceError,
    SourceMissing,
    SourceUnavailable,
)
from monitor.plain_text import path_problem, visible


@dataclass(frozen=True, slots=True)
class FeedFolderEntry:
    """One name of a folder that might be a file of the feed."""

    path: str
    """Relative to the root, with forward slashes; may hold any bytes, as surrogates."""
    found: os.stat_result | None
    """None if it is not to be read."""
    problem: str = ""


def walk_folder(root: str, suffixes: tuple[str, ...]) -> Iterator[FeedFolderEntry]:
    """The files of a folder and of all below it, in no order; hidden names are passed over.

    Folders behind links are not entered: what they lead to inside the feed is found anyway, and
    what lies outside is none of it, so the walk always ends.
    """
    real_root = os.path.realpath(root)
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = os.scandir(os.path.join(root, folder))
        except (FileNotFoundError, NotADirectoryError):
            if not folder:
                raise
            continue  # removed since it was listed
        with entries:
            for entry in entries:
                if entry.name.startswith(("_", ".")):
                    continue
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                elif entry.is_symlink() and os.path.isdir(entry.path):
                    yield FeedFolderEntry(path, None, "is a link to a folder; move the folder here")
                elif entry.name.lower().endswith(suffixes):
                    with contextlib.suppress(FileNotFoundError):
                        yield _named_like_a_file(path, entry, real_root)


def _named_like_a_file(path: str, entry: os.DirEntry[str], real_root: str) -> FeedFolderEntry:
    if entry.is_symlink():
        problem = link_problem(entry.path, real_root)
        if problem is None and not os.path.exists(entry.path):
            problem = "is a link that leads nowhere"
        if problem is not None:
            return FeedFolderEntry(path, None, problem)
    found = entry.stat()
    if not stat.S_ISREG(found.st_mode):
        return FeedFolderEntry(path, None, "is no regular file")
    return FeedFolderEntry(path, found)


def link_problem(path: str, real_root: str) -> str | None:
    """Why a path that may be a link is not followed; None if it stays inside the root."""
    target = os.path.realpath(path)
    if os.path.commonpath([target, real_root]) == real_root:
        return None
    return "is a link that leads out of the feed; move the file here"


def file_problem(path: str, root: str) -> str | None:
    """Why a file that was listed may not be opened now; None if it may, or is not there.

    Between a listing and its opening, whoever writes the feed may have put something else there.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None  # said by whoever opens it
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return "is no regular file"
    return link_problem(path, os.path.realpath(root)) if root else None


SUFFIXES = (".parquet", ".pq")
"""Files of other names in a feed's folders are not ours: notes, checksums, uploads in progress."""


@dataclass(frozen=True, slots=True)
class FeedFile:
    """One file as a listing shows it.

    A listing compares path, size and time. A file whose time alone has changed may be the same
    all the same: the hash of its footer says so (:func:`monitor.feed.batch_plan.same_file`).

    >>> FeedFile("cam-7/0003.parquet", 1024, 1_700_000_000_000_000_000).path
    'cam-7/0003.parquet'
    """

    path: str
    """Relative to the source's root, with forward slashes."""
    size: int
    modified_ns: int | None
    """Nanoseconds since 1970; None where the filesystem keeps no times."""
    digest: str | None = field(default=None, compare=False, repr=False)
    """Hash of the footer, once somebody has read it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a listing found."""

    files: tuple[FeedFile, ...]
    """Sorted by path."""
    refused: tuple[str, ...]
    """Sentences about names that cannot be taken in, links that lead away, and special files."""


@dataclass(frozen=True, slots=True)
class FeedStorage:
    """A folder or bucket of Parquet files; small, immutable, and fit to be sent to an actor.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FeedStorage.at(folder).list()
    ()
    """

    location: str
    """As a person would name it in a message; without credentials or query."""
    filesystem: fs.FileSystem
    root: str

    @classmethod
    def at(cls, location: str | os.PathLike[str]) -> FeedStorage:
        """The source at a path or URI: `/data/feed`, `feed`, `file://…`, `s3://…`, `gs://…`.

        An S3-compatible server is named in the URI, as in
        `s3://bucket/feed?endpoint_override=localhost:9000&scheme=http`, or by AWS_ENDPOINT_URL.
        """
        text = os.fspath(location)
        if not text:
            raise SourceError("the feed has no location; set feed.path in ray_config.yaml")
        if "://" not in text:
            return cls(text, fs.LocalFileSystem(), str(Path(text).expanduser().absolute()))
        shown = without_secrets(text)
        try:
            filesystem, root = fs.FileSystem.from_uri(text)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(
                f"{shown}: cannot be opened as a feed ({one_line(error)}); feed.path takes a "
                "local path or a file://, s3:// or gs:// address"
            ) from error
        return cls(shown, filesystem, root.rstrip("/"))

    def list(self, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[FeedFile, ...]:
        """Every file of the feed, sorted by path.

        Ignores names that start with `_` or `.` at any level below the root, as all tools that
        write Parquet folders expect, and what :meth:`survey` refuses.
        """
        return self.survey(suffixes).files

    def survey(self, suffixes: tuple[str, ...] = SUFFIXES) -> Survey:
        """The files, and what bears the name of one and is not taken in."""
        with storage_errors(self.location):
            entries = tuple(self.entries(suffixes))
        files = [entry for entry in entries if isinstance(entry, FeedFile)]
        refused = [entry for entry in entries if isinstance(entry, str)]
        return Survey(tuple(sorted(files, key=attrgetter("path"))), tuple(sorted(refused)))

    def is_there(self) -> bool:
        """Whether the folder or bucket itself answers."""
        try:
            return bool(self.filesystem.get_file_info(self.root).type == fs.FileType.Directory)
        except (OSError, pa.ArrowException):
            return False

    def entries(self, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[FeedFile | str]:
        """The files and the sentences of a survey one by one, in no order."""
        kind = self.filesystem.get_file_info(self.root).type
        if kind == fs.FileType.NotFound:
            raise SourceMissing(
                f"{self.location}: no such folder; create or mount it, or correct feed.path "
                "in ray_config.yaml"
            )
        if kind == fs.FileType.File:
            raise SourceError(
                f"{self.location}: is a file, where a feed is a folder; name the folder that "
                "holds it"
            )
        yield from self._local(suffixes) if self.is_local else self._remote(suffixes)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def _local(self, suffixes: tuple[str, ...]) -> Iterator[FeedFile | str]:
        for entry in walk_folder(self.root, suffixes):
            problem = path_problem(entry.path) or entry.problem
            if problem or entry.found is None:
                yield f"{visible(self.where(entry.path))}: {problem}"
            else:
                yield FeedFile(entry.path, entry.found.st_size, entry.found.st_mtime_ns)

    def _remote(self, suffixes: tuple[str, ...]) -> Iterator[FeedFile | str]:
        start = len(self.root) + 1 if self.root else 0
        selector = fs.FileSelector(self.root, recursive=True)
        for info in self.filesystem.get_file_info(selector):
            path = info.path[start:]
            # An object store may list the folder itself as an empty object whose name ends in "/".
            if info.type != fs.FileType.File or not path.lower().endswith(suffixes):
                continue
            if is_hidden(path):
                continue
            if problem := path_problem(path):
                yield f"{visible(self.where(path))}: {problem}"
            else:
                yield FeedFile(path, info.size or 0, info.mtime_ns)

    def stat(self, path: str) -> FeedFile:
        """One file as it is now."""
        self._check_local(path)
        with storage_errors(self.where(path)):
            info = self.filesystem.get_file_info(self.full(path))
        if info.type != fs.FileType.File:
            raise self._why_absent(path)
        return FeedFile(path, info.size or 0, info.mtime_ns)

    def open(self, path: str) -> pa.NativeFile:
        """The file, ready for reads at any position."""
        self._check_local(path)
        try:
            with storage_errors(self.where(path)):
                return self.filesystem.open_input_file(self.full(path))
        except FileGone as error:
            raise self._why_absent(path) from error

    def _check_local(self, path: str) -> None:
        """Links out of the feed and pipes are refused also if they came after the listing."""
        problem = file_problem(self.full(path), self.root) if self.is_local else None
        if problem is not None:
            raise FileRefused(f"{self.where(path)}: {problem}")

    def _why_absent(self, path: str) -> FeedError:
        """Whether a file is gone, or its folder is: an unmounted one is missing, or empty."""
        folder = path.rpartition("/")[0]
        with storage_errors(self.location):
            place = self.full(folder) if folder else self.root
            selector = fs.FileSelector(place, allow_not_found=True)
            neighbours = [
                info
                for info in self.filesystem.get_file_info(selector)
                if info.type == fs.FileType.File and info.base_name.lower().endswith(SUFFIXES)
            ]
        if neighbours:
            return FileGone(f"{self.where(path)}: is no longer there; the feed's files must stay")
        return SourceMissing(
            f"{self.where(path)}: neither the file nor any other of its folder is there; is the "
            "folder mounted?"
        )

    def full(self, path: str) -> str:
        """The path as the filesystem wants it."""
        return f"{self.root.rstrip('/')}/{path}" if self.root else path

    def where(self, path: str) -> str:
        """The file as a person would name it."""
        return f"{self.location.rstrip('/')}/{path}" if self.location else path


@dataclass(frozen=True, slots=True)
class Changes:
    """What a listing holds that is not known yet, holds differently, or no longer holds."""

    new: tuple[FeedFile, ...]
    changed: tuple[FeedFile, ...]
    gone: tuple[str, ...]


def compare(listing: Iterable[FeedFile], known: Mapping[str, FeedFile]) -> Changes:
    """Compare a listing with the files that are already known, by path, in the listing's order.

    >>> a, b = FeedFile("a", 1, 1), FeedFile("b", 1, 1)
    >>> compare([a, b], {"b": FeedFile("b", 2, 1), "c": FeedFile("c", 1, 1)})
    Changes(new=(FeedFile(path='a', size=1, modified_ns=1),), \
changed=(FeedFile(path='b', size=1, modified_ns=1),), gone=('c',))
    """
    new: list[FeedFile] = []
    changed: list[FeedFile] = []
    listed: set[str] = set()
    for file in listing:
        listed.add(file.path)
        before = known.get(file.path)
        if before is None:
            new.append(file)
        elif before != file:
            changed.append(file)
    gone = tuple(path for path in known if path not in listed)
    return Changes(tuple(new), tuple(changed), gone)


def by_arrival(files: Iterable[FeedFile]) -> tuple[FeedFile, ...]:
    """In the order of their times, then of their paths, so that no source starves another."""
    return tuple(sorted(files, key=lambda file: (file.modified_ns or 0, file.path)))


def is_hidden(path: str) -> bool:
    """Whether any part of a relative path starts with `_` or `.`.

    >>> [is_hidden(path) for path in ("a/b.parquet", "a/_tmp/b.parquet", ".b.parquet")]
    [False, True, True]
    """
    return path.startswith(("_", ".")) or "/_" in path or "/." in path


def without_secrets(uri: str) -> str:
    """A URI fit for messages and logs: neither user and password nor the query.

    >>> without_secrets("s3://key:secret@bucket/feed?region=eu-west-1")
    's3://bucket/feed'
    """
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def one_line(error: BaseException) -> str:
    """A library's message without line breaks, and short enough for a column of text."""
    return visible(" ".join(str(error).split()), 300) or type(error).__name__


#: What libraries of object stores write into every error of their own.
_REMOTE = ("AWS Error", "google::cloud", "curlCode")


def is_of_storage(error: BaseException) -> bool:
    """Whether the storage failed, and not the content: pyarrow raises OSError for both.

    >>> is_of_storage(OSError("AWS Error NETWORK_CONNECTION during GetObject operation"))
    True
    >>> is_of_storage(OSError("Couldn't deserialize thrift")), is_of_storage(OSError(5, "I/O"))
    (False, True)
    """
    if not isinstance(error, OSError):
        return False
    return error.errno is not None or any(words in str(error) for words in _REMOTE)


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Say in our words what a filesystem raised, so that callers can tell gone from unreachable."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileGone(f"{where}: is no longer there; the feed's files must stay") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(
            f"{where}: the storage did not answer ({one_line(error)}); check that it can be "
            "reached and read with these credentials"
        ) from error


IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
OTHERS = (".zip", ".tar", ".tar.gz", ".tgz", ".mp4", ".mkv", ".avi", ".mov")
ENTRIES = 10_000
"""Names looked at. A folder of images shows itself within the first few; a feed of a million files
should not be walked for the question."""


def check_for_images(location: str | os.PathLike[str]) -> None:
    """Raise the sentence that names `conclad ingest` if a folder holds images and no Parquet.

    Says nothing about buckets, about folders that are not there, and about empty ones.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.jpg").write_bytes(b"")
    ...     check_for_images(folder)
    Traceback (most recent call last):
    ...
    monitor.feed.errors.SourceError: ...: holds images and no Parquet; bring them into a feed: \
conclad ingest ... --to ...-feed
    """
    text = os.fspath(location)
    folder = Path(text).expanduser()
    if "://" in text or not folder.is_dir():
        return
    what = _found(folder)
    if what is not None:
        shown = text.rstrip("/")
        raise SourceError(
            f"{text}: holds {what} and no Parquet; bring them into a feed: conclad ingest {shown} "
            f"--to {shown}-feed"
        )


def _found(folder: Path) -> str | None:
    seen, found = 0, None
    for _, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in names:
            lower, seen = name.lower(), seen + 1
            if is_hidden(name):
                continue
            if lower.endswith(SUFFIXES):
                return None
            if lower.endswith(IMAGES):
                found = "images"
            elif lower.endswith(OTHERS):
                found = found or "archives or video"
        if seen > ENTRIES:
            break
    return found
