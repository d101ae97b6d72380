"""Single image files: their bytes as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from monitor.ingest.capture_times import from_exif, from_nanoseconds
from monitor.ingest.image_names import Named, Reading, name_image
from monitor.ingest.input_formats import as_feed_image
from monitor.ingest.reader_items import Finished, Handed, Item, LeftOut, Picture
from monitor.ingest.source_files import SourceFile, Stamp

LARGEST = 512 * 2**20
"""Bytes of one image. Arrow holds a column of at most 2 GB at a time, and no camera comes near."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A file's bytes, and its state before and after they were read."""

    data: bytes
    stamp: Stamp
    item: Item
    is_steady: bool


def read_whole(file: SourceFile) -> Contents:
    """Raises OSError as the disk does."""
    handle = os.open(file.path, os.O_RDONLY)
    try:
        stamp = Stamp.of(os.fstat(handle))
        # One byte more than there should be: a file that grows meanwhile is not finished.
        data = _read(handle, min(stamp.size, LARGEST) + 1)
        is_all = len(data) == stamp.size or len(data) > LARGEST
        is_steady = is_all and Stamp.of(os.fstat(handle)) == stamp
    finally:
        os.close(handle)
    return Contents(data, stamp, item_of(file, stamp), is_steady)


def _read(handle: int, wanted: int) -> bytes:
    """Network disks may answer with less than they were asked for."""
    data = os.read(handle, wanted)
    if len(data) >= wanted - 1 or not data:
        return data
    parts = [data]
    while part := os.read(handle, wanted - sum(map(len, parts))):
        parts.append(part)
    return b"".join(parts)


def item_of(file: SourceFile, stamp: Stamp) -> Item:
    return Item.of(file.path, str(stamp))


def hand_over(file: SourceFile, contents: Contents, reading: Reading) -> Iterator[Handed]:
    """An image file that is finished."""
    item = contents.item
    named = name_image(file, reading.options)
    if isinstance(named, LeftOut):
        yield named
        return
    found = picture_of(item, named, contents.data, file.path, reading)
    if isinstance(found, LeftOut):
        yield Finished(item)
    elif found.captured_at is None:
        time = from_nanoseconds(contents.stamp.modified_ns)
        found = Picture(item, found.source_id, found.image_id, time, found.image, found.label)
    yield found


def picture_of(
    item: Item, named: Named, data: bytes, where: str, reading: Reading
) -> Picture | LeftOut:
    """Bytes as a picture, with the time of their path or EXIF if there is one."""
    if not data:
        return LeftOut(where, "the file is empty")
    if len(data) > LARGEST:
        return LeftOut(where, f"larger than {LARGEST >> 20} MB, which no image is")
    image = as_feed_image(data)
    if image is None:
        return LeftOut(where, "not an image, whatever its name says")
    time = named.time or from_exif(data, reading.options.zone)
    return Picture(item, named.source_id, named.image_id, time, image, named.label)
