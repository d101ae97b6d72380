"""What lies in a local feed folder: regular files only, and nothing that leads out of it.

Whoever may write into a feed's folder could otherwise have the monitor read, show and learn from
any file that it can reach, by a link; walk in circles; or wait for ever at a pipe that nobody
writes to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass


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
