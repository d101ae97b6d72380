"""Files that are either wholly there or not there, on any pyarrow filesystem.

A file is first *staged* under a temporary name that starts with a dot (Parquet readers skip
those), made durable, and then *published* under its name in one step. On a local disk that is
write, fsync, rename, fsync of the folder; on an object store the copy to the final key is
atomic by itself and durable when it returns.

Before and after every durable action there is a *fault point*, a named place at which a test can
kill the process. It costs one look into the environment and does nothing else, unless
``CONCLAD_FAULT`` names it: then the process dies as if the power had gone (SIGKILL: no cleanup, no
``finally``). ``name:3`` dies at the third pass. Modules declare their points when they are
imported, so a test can walk over all of them and a mistyped name fails at once instead of never
firing.

>>> declare("example.before_write")
>>> fault_point("example.before_write")
>>> "example.before_write" in declared()
True
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from monitor.errors import ErrorKind, kind_of
from monitor.store.errors import DiskUnavailable, StoreAddress
from monitor.store.file_modes import FILE_MODE, FOLDER_MODE

if TYPE_CHECKING:
    from pyarrow import fs as pafs


VARIABLE = "CONCLAD_FAULT"

_declared: set[str] = set()
_passes: Counter[str] = Counter()


def declare(*names: str) -> None:
    """Register names; declaring one twice is harmless (modules may be reloaded)."""
    _declared.update(names)


def declared(prefix: str = "") -> tuple[str, ...]:
    """All names of the modules imported so far that start with ``prefix``, sorted."""
    return tuple(sorted(name for name in _declared if name.startswith(prefix)))


def fault_point(name: str) -> None:
    """Die here if the environment says so."""
    if name not in _declared:
        raise LookupError(f"fault point {name!r} was never declared")
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    target, _, turn = wanted.partition(":")
    if target != name:
        return
    _passes[name] += 1
    if _passes[name] == int(turn or 1):
        os.kill(os.getpid(), signal.SIGKILL)


#: Read files in pieces of this size when hashing: large enough to be cheap per call, small
#: enough that the check of a large state stays flat in memory.
CHUNK = 1 << 20
#: Objects of a bucket that are renamed at once.
MOVES_AT_ONCE = 16

_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One file of a listing, its name relative to the folder."""

    name: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished, durable file that readers do not see yet."""

    folder: Folder
    name: str
    temporary: str
    size: int
    sha256: str

    def publish(self) -> None:
        """Give the file its name, replacing what was there, in one step."""
        with self.folder._disk_errors():
            self.folder._move(self.temporary, self.name)

    def settle(self) -> bool:
        """Give the file the name that a transaction has promised it (``Folder.settle``)."""
        return self.folder.settle(self.temporary, self.name)

    def publish_new(self) -> None:
        """Give the file its name unless the name is taken (``FileExistsError``)."""
        with self.folder._disk_errors():
            self.folder._move_new(self.temporary, self.name)

    def discard(self) -> None:
        self.folder.delete(self.temporary)


class _HashingSink(io.RawIOBase):
    """Counts and hashes what passes through, so that nothing is read back to know its hash."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sink.write(view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size


class Folder:
    """A folder on some filesystem; every path is relative to it.

    >>> import tempfile
    >>> folder = Folder.local(tempfile.mkdtemp())
    >>> folder.write("notes/hello.txt", b"hello").size
    5
    >>> [entry.name for entry in folder.list("notes")]
    ['notes/hello.txt']
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem | None,
        root: str,
        *,
        private: bool = True,
        mark: str | None = None,
    ) -> None:
        """Without a ``filesystem`` the folder is on a local disk.

        ``mark`` is a path that is there for as long as the folder is: without it the disk is away,
        and nothing is made in its place.
        """
        filesystem, root = _unwrap(filesystem, root)
        self._remote = filesystem
        self.root = root.rstrip("/")
        self.private = private
        self.is_local = filesystem is None
        self._mark = mark

    @cached_property
    def filesystem(self) -> pafs.FileSystem:
        if self._remote is not None:
            return self._remote
        # Here rather than above: status reads a local folder without pyarrow.
        from pyarrow import fs as pafs

        return pafs.LocalFileSystem()

    @classmethod
    def local(cls, path: str | Path, *, private: bool = True) -> Folder:
        return cls(None, str(Path(path).absolute()), private=private)

    @classmethod
    def at(
        cls,
        where: str | Path,
        filesystem: pafs.FileSystem | None = None,
        *,
        private: bool = True,
    ) -> Folder:
        """From a path, a URI such as ``s3://bucket/prefix``, or a path on ``filesystem``.

        Files of a ``private`` folder on a local disk are their owner's alone; those of another
        have the rights that the umask leaves.
        """
        if filesystem is not None:
            return cls(filesystem, str(where), private=private)
        if isinstance(where, str) and "://" in where:
            from pyarrow import fs as pafs

            try:
                found, path = pafs.FileSystem.from_uri(where)
            except (OSError, ValueError) as error:
                raise StoreAddress(f"{where}: cannot be opened as a folder ({error})") from error
            return cls(found, path, private=private)
        return cls.local(where, private=private)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def child(self, name: str) -> Folder:
        return Folder(self._remote, self.path(name), private=self.private, mark=self._mark)

    def marked(self, mark: str) -> Folder:
        """The same folder, which is away where this path is not there; only of a local disk."""
        own = mark if self.is_local else None
        return Folder(self._remote, self.root, private=self.private, mark=own)

    def __str__(self) -> str:
        return self.root

    def make_mark(self) -> None:
        """Make what marks a local folder, if it is a folder; once, when the state is opened."""
        if self._mark is not None and not os.path.exists(self._mark):
            with self._disk_errors():
                mode = FOLDER_MODE if self.private else 0o777
                _make_durable_folder(Path(self._mark), mode)

    # -- reading ---------------------------------------------------------------------------

    def size(self, name: str) -> int | None:
        """The size in bytes, or None when there is no such file."""
        with self._disk_errors():
            info = self.filesystem.get_file_info(self.path(name))
        if not info.is_file:
            self._check_mark()
        return int(info.size) if info.is_file else None

    def read(self, name: str) -> bytes:
        with self._disk_errors():
            if self.is_local:
                return Path(self.path(name)).read_bytes()
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())

    def sha256(self, name: str) -> str:
        digest = hashlib.sha256()
        with self._disk_errors(), self.filesystem.open_input_stream(self.path(name)) as stream:
            while piece := stream.read(CHUNK):
                digest.update(piece)
        return digest.hexdigest()

    def list(self, name: str = "", *, recursive: bool = True) -> list[FolderEntry]:
        """The files below ``name``, temporaries included, sorted; none if there is no folder."""
        from pyarrow import fs as pafs

        selector = pafs.FileSelector(self.path(name), allow_not_found=True, recursive=recursive)
        cut = len(self.root) + 1
        with self._disk_errors():
            infos = self.filesystem.get_file_info(selector)
        if not infos:
            self._check_mark()
        found = [
            FolderEntry(info.path[cut:], int(info.size), _utc(info.mtime))
            for info in infos
            if info.is_file
        ]
        return sorted(found, key=lambda entry: entry.name)

    # -- writing ---------------------------------------------------------------------------

    def stage(
        self, name: str, write: Callable[[IO[bytes]], None], *, into: str | None = None
    ) -> Staged:
        """Let ``write`` fill a durable temporary file that can later become ``name``.

        It waits beside its name, or in the folder ``into``; there the caller makes its
        temporary name durable as well (:meth:`sync`), once for all files of a step.
        """
        temporary = _temporary_name(name, into)
        try:
            with self._disk_errors(), self._sink(temporary) as raw:
                sink = _HashingSink(raw)
                write(sink)  # type: ignore[arg-type]
        except BaseException:
            with contextlib.suppress(OSError, DiskUnavailable):
                self.delete(temporary)
            raise
        return Staged(self, name, temporary, sink.size, sink.digest.hexdigest())

    def stage_bytes(
        self, name: str, data: bytes | memoryview, *, into: str | None = None
    ) -> Staged:
        def write(sink: IO[bytes]) -> None:
            sink.write(data)

        return self.stage(name, write, into=into)

    def write(self, name: str, data: bytes) -> Staged:
        staged = self.stage_bytes(name, data)
        staged.publish()
        return staged

    def settle(self, temporary: str, name: str) -> bool:
        """Give a file its final name; returns whether it has it now.

        Harmless to repeat, from any process: whoever comes second finds it done. Nothing is
        synced, because a power cut leaves the file under one of the two names, and the promise
        in the database says which one it will have.
        """
        with self._disk_errors():
            if not self.is_local:
                # Asked first: buckets answer a missing source with errors of many kinds.
                if self.size(temporary) is None:
                    return self.size(name) is not None
                self.filesystem.move(self.path(temporary), self.path(name))
                return True
            self._make_parent(name)
            try:
                os.replace(self.path(temporary), self.path(name))
            except FileNotFoundError:
                return self.size(name) is not None
            return True

    def sync(self, name: str) -> None:
        """Make the names inside a local folder durable; object stores have nothing to do."""
        if self.is_local:
            with self._disk_errors():
                _sync(Path(self.path(name)))

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is as good as removed."""
        with contextlib.suppress(FileNotFoundError), self._disk_errors():
            self.filesystem.delete_file(self.path(name))

    def delete_folder(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._disk_errors():
            self.filesystem.delete_dir(self.path(name))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[pafs.NativeFile]:
        """A file, open for reads at any position."""
        with self._disk_errors(), self.filesystem.open_input_file(self.path(name)) as file:
            yield file

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Say in our words that the disk or bucket is full, read-only or away.

        Buckets give no error numbers: whatever they raise but "not found" is theirs.
        """
        try:
            yield
        except FileNotFoundError:
            self._check_mark()
            raise
        except FileExistsError:
            raise
        except OSError as error:
            theirs = not self.is_local and error.errno is None
            # Whoever took the permission away may give it back, as with a read-only disk.
            away = kind_of(error) is ErrorKind.DISK or isinstance(error, PermissionError)
            if not theirs and not away:
                raise
            raise DiskUnavailable(
                f"{self.root}: the state's disk takes no more ({' '.join(str(error).split())}); "
                "free some space on it, or make it writable again"
            ) from error

    def _check_mark(self) -> None:
        """Raise where not a file is missing, but the whole folder: renamed, or not mounted."""
        if self._mark is not None and not os.path.exists(self._mark):
            raise DiskUnavailable(
                f"{self.root}: the folder of the state is away ({self._mark} is not there); mount "
                "it, or bring it back"
            )

    @contextlib.contextmanager
    def _sink(self, name: str) -> Iterator[IO[bytes]]:
        path = self.path(name)
        if not self.is_local:
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            with self.filesystem.open_output_stream(path) as stream:
                yield stream
            return
        self._make_parent(name)
        mode = FILE_MODE if self.private else 0o666
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _make_parent(self, name: str) -> None:
        parent = Path(self.path(name)).parent
        if not parent.is_dir():
            self._check_mark()
            _make_durable_folder(parent, FOLDER_MODE if self.private else 0o777)

    def _move(self, source: str, target: str) -> None:
        if not self.is_local:
            self.filesystem.move(self.path(source), self.path(target))
            return
        os.replace(self.path(source), self.path(target))
        _sync(Path(self.path(target)).parent)

    def _move_new(self, source: str, target: str) -> None:
        if not self.is_local:
            # Object stores have no move-unless-exists through pyarrow; the writer lease is
            # what keeps two processes from publishing the same name at the same moment.
            if self.size(target) is not None:
                raise FileExistsError(self.path(target))
            self.filesystem.move(self.path(source), self.path(target))
            return
        os.link(self.path(source), self.path(target))
        os.unlink(self.path(source))
        _sync(Path(self.path(target)).parent)


def settle_all(files: Sequence[Staged]) -> None:
    """Give files their promised names; in a bucket side by side, because each takes its time."""
    if len(files) < 2 or files[0].folder.is_local:
        for file in files:
            file.settle()
        return
    with ThreadPoolExecutor(min(len(files), MOVES_AT_ONCE), "settle") as pool:
        # The list, so that an error of any of them is raised here.
        list(pool.map(Staged.settle, files))


def is_temporary(name: str) -> bool:
    """Whether this is the name of a file that was staged and never published."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(_SUFFIX)


def _sync(path: Path) -> None:
    """Make the names inside a local folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_durable_folder(path: Path, mode: int) -> None:
    """Create a folder whose own name survives a power cut too; cheap when it exists."""
    if path.is_dir():
        return
    _make_durable_folder(path.parent, mode)
    path.mkdir(mode, exist_ok=True)
    _sync(path.parent)


def _temporary_name(name: str, into: str | None) -> str:
    parent, slash, last = name.rpartition("/")
    if into is not None:
        parent, slash, last = into, "/", name.replace("/", "-")
    return f"{parent}{slash}.{last}.{uuid.uuid4().hex[:12]}{_SUFFIX}"


def _utc(moment: datetime | None) -> datetime:
    # Some stores give folders no time; the epoch makes such a file count as old.
    return moment.astimezone(UTC) if moment else datetime.fromtimestamp(0, UTC)


def _unwrap(filesystem: pafs.FileSystem | None, root: str) -> tuple[pafs.FileSystem | None, str]:
    """See through sub-tree filesystems, so that a local disk below one is still fsynced."""
    if filesystem is None:
        return None, root
    from pyarrow import fs as pafs

    while isinstance(filesystem, pafs.SubTreeFileSystem):
        root = f"{filesystem.base_path.rstrip('/')}/{root.lstrip('/')}"
        filesystem = filesystem.base_fs
    return None if isinstance(filesystem, pafs.LocalFileSystem) else filesystem, root
