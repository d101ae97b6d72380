"""The state is readable by its owner only, whatever the umask was.

A state folder holds data about images and people: features, pictures, answers, hashes of
tokens. Files are made for their owner alone. What was made wider (by hand, by a copy, by a volume)
is named, and closed when somebody asks for it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from monitor.errors import ErrorKind, kind_of
from monitor.store.errors import DiskUnavailable, StoreAddress

log = logging.getLogger(__name__)

FILE_MODE = 0o600
FOLDER_MODE = 0o700

#: Rights of the group and of everybody else.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; one that is there stays as it is."""
    for missing in reversed([one for one in path.parents if not one.exists()]):
        missing.mkdir(FOLDER_MODE, exist_ok=True)
    path.mkdir(FOLDER_MODE, exist_ok=True)


def make_private_file(path: Path) -> None:
    """An empty file, unless there is one; SQLite gives its logs the rights of its file."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, FILE_MODE))


def make_database_file(path: Path) -> None:
    """The file and its folder, for their owner alone; one that others may read is named.

    A folder that was there keeps its rights: others often look into it on purpose. Where all may
    write, somebody else may put a database of their own in the place of ours.
    """
    _make_folder(path.parent)
    try:
        if path.parent.stat().st_mode & stat.S_IWOTH:
            log.warning(
                "%s: every user of this machine may replace what is in it; 'conclad doctor "
                "--repair' closes the state to them",
                path.parent,
            )
        if not path.exists():
            make_private_file(path)
        elif is_wide(path):
            log.warning(
                "%s: other users of this machine may read it; 'conclad doctor --repair' closes "
                "the state to them",
                path,
            )
    except OSError:
        return  # opening it says what is wrong, in the words of the database


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path)
    except OSError as error:
        problem = DiskUnavailable if kind_of(error) is ErrorKind.DISK else StoreAddress
        raise problem(
            f"{path}: the state folder cannot be made ({error.strerror}); "
            "choose another with state.dir, or correct its permissions"
        ) from error


def is_wide(path: Path) -> bool:
    """Whether others than its owner may do anything with it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> is_wide(folder)
    False
    >>> folder.chmod(0o750)
    >>> is_wide(folder)
    True
    """
    return bool(path.lstat().st_mode & _OTHERS)


def wide_paths(root: Path) -> Iterator[Path]:
    """What others may read or write: the folder itself, and whatever is in it."""
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            try:
                if not path.is_symlink() and is_wide(path):
                    yield path
            except FileNotFoundError:  # merged or deleted since it was listed
                continue


def close_paths(paths: Iterable[Path]) -> list[Path]:
    """Take the rights of others away; returns those of which we are not the owner."""
    kept = []
    for path in paths:
        try:
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_OTHERS)
        except FileNotFoundError:
            continue
        except PermissionError:
            kept.append(path)
    return kept
