"""Files to features as one stream: read, decoded and embedded a part at a time, in order.

A *part* is some thousand rows of one file and becomes one output file. Parts depend on the input
alone, so a run that was interrupted finds the very same parts again and skips those it finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from monitor.backbones.embed_images import Embedded, Reuse, embed_frames, embed_parts_of
from monitor.backbones.engine import Engine, Features
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader, read_pieces
from monitor.feed.errors import FeedError
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.input_contract import Columns, RejectedRow, Row, RowIdentity
from monitor.jobs.score_batch import CopiedRow

# Small enough that an interruption costs a minute or two of a CPU's work, large enough that a
# million images leave a hundred files and not four thousand.
ROWS_PER_PART = 8192


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive batches of one file."""

    file: FeedFile
    specs: tuple[PlannedBatch, ...]

    @property
    def first_row(self) -> int:
        return self.specs[0].first_row

    @property
    def rows(self) -> int:
        return sum(spec.rows for spec in self.specs)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some rows of a part, embedded; the last piece of a part says so.

    ``failed`` is set when the rest of the part could not be read: then none of it counts.
    """

    part: Part
    rows: tuple[RowIdentity, ...]
    features: Features
    rejected: tuple[RejectedRow, ...]
    last: bool
    failed: FeedError | None = None
    copies: tuple[CopiedRow, ...] = ()


def cut_into_parts(specs: Iterable[PlannedBatch], rows_per_part: int = ROWS_PER_PART) -> list[Part]:
    """Gather the batches of one file, in order, into parts of at most so many rows.

    >>> file = FeedFile("a.parquet", 1, 1)
    >>> [part.rows for part in cut_into_parts([PlannedBatch(file, i * 4, 4) for i in range(3)], 8)]
    [8, 4]
    """
    parts: list[Part] = []
    waiting: list[PlannedBatch] = []
    for spec in specs:
        if waiting and sum(w.rows for w in waiting) + spec.rows > rows_per_part:
            parts.append(Part(waiting[0].file, tuple(waiting)))
            waiting = []
        waiting.append(spec)
    if waiting:
        parts.append(Part(waiting[0].file, tuple(waiting)))
    return parts


def embed_parts(
    parts: Iterable[Part],
    source: FeedStorage,
    engine: Engine,
    columns: Columns,
    *,
    default_source: str | None = None,
    reuse: Reuse = "never",
) -> Iterator[Piece]:
    """Every row of every part, embedded, copied or rejected, in order, a few batches at a time.

    A file that fails half way ends its part with ``failed`` set, its further parts likewise, and
    the stream goes on with the next file.
    """
    with BatchReader(source, columns, default_source=default_source) as reader:
        reading = _Reading(reader)
        stream = reading.images(parts)

        def embed(part: list[tuple[_Key, bytes]]) -> Embedded[_Key]:
            return embed_frames(part, engine, reuse, _together, stats=False)

        for found in embed_parts_of(_cut(stream, engine.batch), embed, engine.workers):
            yield from _pieces(found, reading)
            yield from reading.finished(engine.fingerprint.dimension)
        yield from reading.finished(engine.fingerprint.dimension)


@dataclass(frozen=True, slots=True)
class _Key:
    """A row on its way: of which part, and with which other rows it may be compared."""

    part: int
    read: int
    """Rows that were read together: of one batch, or of a piece of it where images are large."""
    row: RowIdentity


def _together(key: _Key) -> tuple[int, str]:
    return key.read, key.row.source_id


def _cut(images: Iterable[tuple[_Key, bytes]], size: int) -> Iterator[list[tuple[_Key, bytes]]]:
    """What was read together stays together; small batches share a part."""
    part: list[tuple[_Key, bytes]] = []
    for key, image in images:
        if len(part) >= size and part[-1][0].read != key.read:
            yield part
            part = []
        part.append((key, image))
    if part:
        yield part


@dataclass(slots=True)
class _Open:
    """A part on its way: rows handed to the engine against rows that came back."""

    part: Part
    handed: int = 0
    returned: int = 0
    is_read: bool = False
    rejected: list[RejectedRow] = field(default_factory=list)
    failed: FeedError | None = None


class _Reading:
    """Reads ahead of the engine and remembers which parts are under way."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._first = 0
        self._open: deque[_Open] = deque()
        self._bad_files: dict[FeedFile, FeedError] = {}
        self._read = 0

    def images(self, parts: Iterable[Part]) -> Iterator[tuple[_Key, bytes]]:
        for index, part in enumerate(parts):
            way = _Open(part, failed=self._bad_files.get(part.file))
            self._open.append(way)
            try:
                for spec in part.specs if way.failed is None else ():
                    for rows in read_pieces(self._reader, spec):
                        self._read += 1
                        way.rejected += [row for row in rows if isinstance(row, RejectedRow)]
                        good = [row for row in rows if isinstance(row, Row)]
                        way.handed += len(good)
                        for row in good:
                            yield _Key(index, self._read, row.identity), row.image
            except FeedError as error:
                way.failed = self._bad_files[part.file] = error
            way.is_read = True

    def at(self, index: int) -> _Open:
        return self._open[index - self._first]

    def finished(self, dimension: int) -> Iterator[Piece]:
        """The last pieces of the parts from which nothing more will come."""
        while (
            self._open and self._open[0].is_read and self._open[0].handed == self._open[0].returned
        ):
            way = self._open.popleft()
            self._first += 1
            nothing = np.empty((0, dimension), np.float32)
            yield Piece(way.part, (), nothing, tuple(way.rejected), True, way.failed)


def _pieces(found: Embedded[_Key], reading: _Reading) -> Iterator[Piece]:
    """One batch of the engine, split where it crosses from a part to the next."""
    for index in sorted({key.part for key in found.keys} | {key.part for key, _ in found.rejected}):
        yield from reading.finished(found.features.shape[1])
        chosen = [i for i, key in enumerate(found.keys) if key.part == index]
        places = {i: place for place, i in enumerate(chosen)}
        rejected = tuple(key.row.rejected(why) for key, why in found.rejected if key.part == index)
        copies = tuple(
            CopiedRow(key.row, places[other]) for key, other in found.copies if other in places
        )
        way = reading.at(index)
        way.returned += len(chosen) + len(rejected) + len(copies)
        rows = tuple(found.keys[i].row for i in chosen)
        yield Piece(way.part, rows, found.features[chosen], rejected, False, copies=copies)
