"""A folder of images where a feed should be: what people have before they know about Parquet."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.feed.errors import SourceError
from monitor.feed.feed_storage import SUFFIXES, is_hidden

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
OTHERS = (".zip", ".tar", ".tar.gz", ".tgz", ".mp4", ".mkv", ".avi", ".mov")
ENTRIES = 10_000
"""Names looked at. A folder of images shows itself within the first few; a feed of a million files
shall not be walked for the question."""


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
