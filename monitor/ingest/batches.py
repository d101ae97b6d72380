"""Images collected into Parquet files of the feed, each published whole or not at all.

How a batch becomes a file of the feed, step by step:

1. Row groups are written to `FEED/_ingest/NAME/writing-N.parquet` as images come.
2. The file is closed and flushed to the disk.
3. One transaction of the journal says: batch N will be this file and holds these images.
4. The file is renamed to its name in the feed, and the folder is flushed.
5. The next transaction (or the end of the run) says that batch N is finished.

A run that dies before 3 leaves a file that nobody planned: it is removed, and its images are read
again. One that dies between 3 and 4 leaves a whole file without its name: it gets it. One that dies
after 4 leaves a file with its name, and there is nothing to do but 5.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.ingest.errors import FeedRefused
from monitor.ingest.ingest_journal import Journal
from monitor.ingest.reader_items import Picture

GROUP_ROWS = 256
"""Images of a row group: the pieces in which the monitor hands out work."""
GROUP_BYTES = 16 * 2**20
"""What is held in memory, twice; a frame of a large camera is some megabytes."""

STEPS = ("group", "closed", "planned", "renamed", "flushed")
"""Where a test may interrupt, in the order in which a batch passes them."""

# Arrow's own pool gives pages back with every row group, and the kernel clears them again.
_POOL = pa.system_memory_pool()
_TEXT = pa.string()
_BASE = [
    pa.field("image_id", _TEXT, nullable=False),
    pa.field("captured_at", pa.timestamp("us", tz="UTC")),
    pa.field("source_id", _TEXT, nullable=False),
    pa.field("image", pa.binary(), nullable=False),
    pa.field("label", _TEXT),
]
_BOUNDS = ("min_x", "min_y", "max_x", "max_y")
_DEGREES = ("west", "south", "east", "north")
_GEO = [
    pa.field("scene", _TEXT),
    pa.field("crs", _TEXT),
    pa.field("transform", pa.list_(pa.float64(), 6)),
    *(pa.field(name, pa.float64()) for name in (*_BOUNDS, *_DEGREES)),
]
SCHEMA = pa.schema(_BASE)
GEO_SCHEMA = pa.schema([*_BASE, *_GEO])
"""Of batches in which at least one image is a tile."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is large enough to be published."""

    images: int = 1000
    bytes: int = 128 * 2**20
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Published:
    """A file that has just entered the feed."""

    file: str
    images: int
    bytes: int


def recover(feed: Path, work: Path, journal: Journal) -> None:
    """Finish or undo what a run that died has left; see the steps above."""
    for planned in journal.unfinished():
        waiting, final = _writing(work, planned.number), feed / planned.file
        if waiting.exists():
            _publish(waiting, final)
        if final.exists():
            journal.finish(planned.number)
        else:
            journal.forget(planned.number)
    for left in work.glob("writing-*.parquet"):
        left.unlink()


class Stopped(Exception):
    """Told to stop while waiting for room; the open batch is not published."""


class BatchWriter:
    """One batch at a time: `add` images, `publish` when it is time."""

    def __init__(
        self,
        feed: Path,
        work: Path,
        journal: Journal,
        *,
        limits: Limits,
        name: str,
        wait_for_room: Callable[[int], bool],
        published: Callable[[Published], None],
        clock: Callable[[], float],
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._feed, self._work, self._journal = feed, work, journal
        self._limits, self._name = limits, name
        self._wait_for_room, self._published = wait_for_room, published
        self._clock, self._step = clock, step
        self._writer: pq.ParquetWriter | None = None
        self._beside = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._is_geo = False
        self._number = 0
        self._group: list[tuple[str, Picture]] = []
        self._group_bytes = 0
        self._began = 0.0
        self._images = 0
        self._bytes = 0

    def add(self, image_id: str, picture: Picture) -> None:
        """Take one image, and publish the batch if that made it large enough."""
        if self._writer is not None and picture.place is not None and not self._is_geo:
            self.publish()
        if not self._images:
            self._began = self._clock()
        self._group.append((image_id, picture))
        self._group_bytes += len(picture.image)
        self._images += 1
        self._bytes += len(picture.image)
        if len(self._group) >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()
        if self._images >= self._limits.images or self._bytes >= self._limits.bytes:
            self.publish()

    @property
    def is_empty(self) -> bool:
        return not self._images

    def is_due(self) -> bool:
        """Whether the batch has waited as long as it may."""
        return bool(self._images) and self._clock() - self._began >= self._limits.seconds

    def publish(self) -> None:
        """Write what there is to the feed; steps 2 to 4."""
        if not self._images:
            return
        self._write_group()
        self._wait_for_writing()
        assert self._writer is not None
        waiting = _writing(self._work, self._number)
        self._writer.close()
        self._writer = None
        _flush(waiting)
        self._step("closed")
        # A folder for each day: a year of a live camera is a million files.
        file = f"{datetime.now(UTC):%Y-%m-%d}/ingest-{self._name}-{self._number:08d}.parquet"
        self._journal.plan(self._number, file)
        self._step("planned")
        _publish(waiting, self._feed / file, self._step)
        self._published(Published(file, self._images, self._bytes))
        self._images = self._bytes = 0

    def finish(self) -> None:
        """The last batch is published; step 5."""
        if self._number:
            self._journal.finish(self._number)

    def close(self) -> None:
        """Let go of everything; a batch that was not published is not."""
        self._beside.shutdown()

    def _write_group(self) -> None:
        if not self._group:
            return
        if not self._wait_for_room(self._group_bytes):
            raise Stopped
        if self._writer is None:
            self._number = self._journal.next_number()
            self._is_geo = any(picture.place for _, picture in self._group)
            self._writer = _open(_writing(self._work, self._number), self._is_geo)
        self._wait_for_writing()
        self._writing = self._beside.submit(_write, self._writer, self._group)
        self._group, self._group_bytes = [], 0
        self._step("group")

    def _wait_for_writing(self) -> None:
        """The next row group is read while the last one is written, and no further ahead."""
        if self._writing is None:
            return
        try:
            self._writing.result()
        except OSError as error:
            raise FeedRefused(
                f"{self._feed}: cannot be written ({error.strerror or error}); make room, then run "
                "the same command again: it goes on from here"
            ) from error
        self._writing = None


def _open(path: Path, is_geo: bool) -> pq.ParquetWriter:
    schema = GEO_SCHEMA if is_geo else SCHEMA
    repeating = [name for name in ("source_id", "label", "scene", "crs") if name in schema.names]
    others = [name for name in schema.names if name not in ("image", "transform")]
    # Images are compressed already, do not repeat, and have no order worth a statistic.
    return pq.ParquetWriter(
        path,
        schema,
        compression=dict.fromkeys(others, "zstd") | {"image": "none"},
        use_dictionary=repeating,
        write_statistics=others,
        memory_pool=_POOL,
    )


def _write(writer: pq.ParquetWriter, group: list[tuple[str, Picture]]) -> None:
    writer.write_batch(_record_batch(group, writer.schema))


def _record_batch(group: list[tuple[str, Picture]], schema: pa.Schema) -> pa.RecordBatch:
    pictures = [picture for _, picture in group]
    columns: dict[str, list[object]] = {
        "image_id": [image_id for image_id, _ in group],
        "captured_at": [picture.captured_at for picture in pictures],
        "source_id": [picture.source_id for picture in pictures],
        "image": [picture.image for picture in pictures],
        "label": [picture.label for picture in pictures],
    }
    if len(schema) > len(SCHEMA):
        places = [picture.place for picture in pictures]
        columns["scene"] = [place and place.scene for place in places]
        columns["crs"] = [place and place.crs for place in places]
        columns["transform"] = [place and place.transform for place in places]
        for at, name in enumerate(_BOUNDS):
            columns[name] = [place and place.bounds[at] for place in places]
        for at, name in enumerate(_DEGREES):
            columns[name] = [place and place.degrees and place.degrees[at] for place in places]
    arrays = [pa.array(columns[field.name], field.type, memory_pool=_POOL) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _publish(waiting: Path, final: Path, step: Callable[[str], None] = lambda name: None) -> None:
    is_new = not final.parent.exists()
    final.parent.mkdir(parents=True, exist_ok=True)
    waiting.rename(final)
    step("renamed")
    _flush(final.parent)
    if is_new:
        _flush(final.parent.parent)
    step("flushed")


def _writing(work: Path, number: int) -> Path:
    return work / f"writing-{number:08d}.parquet"


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
