"""Frames of cameras until they are in the feed: nobody can ask a camera for them again.

Each frame is appended to one file before it is collected into a batch, and the file is emptied when
a batch is published. A process that is killed leaves its frames there, and the next one begins with
them. They are not flushed to the disk one by one, so a power cut may cost the last seconds.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from monitor.ingest.reader_items import Item, Picture

_LENGTHS = struct.Struct("<II")


class Spool:
    """A file of frames.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = Spool(Path(folder) / "spool")
    ...     spool.append(Picture(Item(b"k", b"s"), "cam", "1", None, b"frame"))
    ...     spool.close()
    ...     [picture.image for picture in Spool(Path(folder) / "spool").left()]
    [b'frame']
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._is_read = False

    def append(self, picture: Picture) -> None:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        time = picture.captured_at and picture.captured_at.isoformat()
        header = json.dumps(
            [
                picture.item.key.hex(),
                picture.item.stamp.hex(),
                picture.source_id,
                picture.image_id,
                time,
            ]
        ).encode()
        # One write: what a kill cuts off is a tail that does not have its length.
        self._file.write(_LENGTHS.pack(len(header), len(picture.image)) + header + picture.image)

    def clear(self) -> None:
        """Everything in it is in the feed, unless it is still being read."""
        if not self._is_read and self._path.exists():
            os.truncate(self._path, 0)

    def left(self) -> Iterator[Picture]:
        """What the last run left, up to the first frame that is not whole."""
        if not self._path.exists():
            return
        self._is_read, whole = True, 0
        with self._path.open("rb") as file:
            while picture := _next(file):
                yield picture
                whole = file.tell()
        # Frames that came after half a one could not be found again.
        os.truncate(self._path, whole)
        self._is_read = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _next(file: BinaryIO) -> Picture | None:
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    header_size, image_size = _LENGTHS.unpack(lengths)
    header, image = file.read(header_size), file.read(image_size)
    if len(image) < image_size:
        return None
    key, stamp, source_id, image_id, time = json.loads(header)
    item = Item(bytes.fromhex(key), bytes.fromhex(stamp))
    captured_at = datetime.fromisoformat(time) if time else None
    return Picture(item, source_id, image_id, captured_at, image)
