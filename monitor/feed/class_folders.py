"""A folder of class folders: what people have before they know about Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from monitor.feed.feed_storage import is_hidden

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff")


def class_folder(files: Sequence[str | os.PathLike[str]]) -> Path | None:
    """The folder that was named, if it is one of class folders and not of Parquet files."""
    if len(files) != 1 or not os.path.isdir(files[0]):
        return None
    folder = Path(files[0])
    return folder if next(class_images(folder), None) is not None else None


def class_images(folder: Path) -> Iterator[Path]:
    """The images of all class folders, in the order of their paths."""
    for path in sorted(folder.glob("*/**/*")):
        name = path.relative_to(folder).as_posix()
        if is_image(path) and not is_hidden(name):
            yield path


def is_image(path: Path) -> bool:
    """By its name: whether it really is one is found out when it is read."""
    return path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
