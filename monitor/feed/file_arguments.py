"""Files named on a command line: paths, folders, patterns and addresses, in one stable order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pyarrow import fs

from monitor.feed.errors import SourceError
from monitor.feed.feed_storage import (
    FeedFile,
    FeedStorage,
    check_for_images,
    is_hidden,
    storage_errors,
    without_secrets,
)


def find_files(
    arguments: Sequence[str | os.PathLike[str]],
) -> tuple[FeedStorage, tuple[FeedFile, ...]]:
    """The files that some arguments mean, each once, sorted by path, and the source they lie in.

    An argument is a file, a folder (everything below it, as in a feed), or a pattern with `*`,
    `?`, `[…]` and `**` (any number of folders). Patterns and folders pass over names that start
    with `_` or `.`; a file named outright is always taken. Paths are the filesystem's full ones,
    because the arguments need not share a folder.
    """
    if not arguments:
        raise SourceError("no files were named; give paths, folders or patterns of Parquet files")
    sources = [FeedStorage.at(argument) for argument in arguments]
    kinds = {source.filesystem.type_name for source in sources}
    if len(kinds) > 1:
        raise SourceError(
            f"the files lie on different storages ({', '.join(sorted(kinds))}); name those of one "
            "storage in each run"
        )
    found: dict[str, FeedFile] = {}
    for argument, source in zip(arguments, sources, strict=True):
        files = _meant(os.fspath(argument), source)
        if not files:
            check_for_images(argument)
            shown = without_secrets(text) if "://" in (text := os.fspath(argument)) else text
            raise SourceError(f"{shown}: no Parquet file matches; check the path and its quoting")
        found |= {file.path: file for file in files}
    return FeedStorage("", sources[0].filesystem, ""), tuple(found[path] for path in sorted(found))


def matches(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern part by part; `**` stands for any number of folders.

    >>> [matches(p, "feed/**/*.parquet") for p in ("feed/a.parquet", "feed/x/y/a.parquet", "a")]
    [True, True, False]
    """
    return _fits(path.split("/"), pattern.split("/"))


def _fits(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    head, rest = patterns[0], patterns[1:]
    if head == "**":
        return any(_fits(parts[skip:], rest) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], head) and _fits(parts[1:], rest)


def _meant(argument: str, source: FeedStorage) -> list[FeedFile]:
    with storage_errors(source.location):
        info = source.filesystem.get_file_info(source.root)
    if info.type == fs.FileType.File:
        return [FeedFile(source.root, info.size or 0, info.mtime_ns)]
    if info.type == fs.FileType.Directory:
        return _from_root(source, source.list())
    if not glob.has_magic(argument):
        raise SourceError(f"{source.location}: no such file or folder; check the path")
    return _matching(source)


def _matching(source: FeedStorage) -> list[FeedFile]:
    """Search from the last folder whose name is certain."""
    parts = source.root.split("/")
    certain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder, pattern = "/".join(parts[:certain]), "/".join(parts[certain:])
    below = FeedStorage(source.location, source.filesystem, folder)
    if isinstance(source.filesystem, fs.LocalFileSystem):
        # Not a listing: below the home folder that could mean a million files for "*.parquet".
        top = Path(folder or "/")
        names = [path.relative_to(top) for path in top.glob(pattern) if path.is_file()]
        files = [below.stat(name.as_posix()) for name in names]
    elif folder:
        files = [file for file in below.list(suffixes=("",)) if matches(file.path, pattern)]
    else:
        raise SourceError(f"{source.location}: a pattern cannot stand for a bucket; name one")
    return _from_root(below, [file for file in files if not is_hidden(file.path)])


def _from_root(source: FeedStorage, files: Iterable[FeedFile]) -> list[FeedFile]:
    """With full paths, because the source that is handed out starts at the filesystem's root."""
    return [FeedFile(source.full(file.path), file.size, file.modified_ns) for file in files]
