"""How files are cut into batches: by rows and bytes, along row groups, from footers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

from pyarrow import fs

from monitor.feed.contract import Columns
from monitor.feed.errors import FeedError
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.parquet_footer import Footer, RowGroup, read_footer

ROWS_PER_BATCH = 256
"""Several forward passes of a backbone, and still a second or so of work on one core."""

BYTES_PER_BATCH = 256 << 20
"""What one batch may take in memory before decoding; only frames above a megabyte reach it."""

REMOTE_THREADS = 16
"""Footers in a bucket are waits of some 20 ms each, so they are read side by side."""

LOCAL_THREADS = 2
"""On a local disk they are work for the interpreter, and more threads would only hinder it."""

FILES_AHEAD = 1024
"""Footers requested before the first is used; bounds the memory for a listing of any length."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Some rows of one file: all that another process needs to read the very same rows.

    >>> PlannedBatch(FeedFile("cam-7/0003.parquet", 1024, 1), first_row=256, rows=256).end_row
    512
    """

    file: FeedFile
    first_row: int
    rows: int

    @property
    def end_row(self) -> int:
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class FileBatches:
    """The batches of one file, or the reason why there are none."""

    file: FeedFile
    batches: tuple[PlannedBatch, ...] = ()
    problem: FeedError | None = None

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def digest(self) -> str | None:
        """The hash of the file's footer, if it has any batches."""
        return self.batches[0].file.digest if self.batches else None


def plan_batches(
    source: FeedStorage,
    file: FeedFile,
    columns: Columns | None = None,
    *,
    rows_per_batch: int = ROWS_PER_BATCH,
    bytes_per_batch: int = BYTES_PER_BATCH,
    need_label: bool = False,
) -> tuple[PlannedBatch, ...]:
    """Cut one file into batches, reading its footer only.

    Raises FileIncomplete (try again), FileCorrupt or ContractError (set it aside), FileGone, or
    SourceUnavailable (nothing is known about the file).
    """
    footer = read_footer(source, file, columns, need_label=need_label)
    return cut(footer, rows_per_batch, bytes_per_batch)


def plan_files(
    source: FeedStorage,
    files: Iterable[FeedFile],
    columns: Columns | None = None,
    *,
    rows_per_batch: int = ROWS_PER_BATCH,
    bytes_per_batch: int = BYTES_PER_BATCH,
    need_label: bool = False,
    threads: int | None = None,
) -> Iterator[FileBatches]:
    """Plan many files side by side, in their order; a bad file is a plan with a problem."""
    plan = partial(
        _plan,
        source,
        columns=columns,
        rows_per_batch=rows_per_batch,
        bytes_per_batch=bytes_per_batch,
        need_label=need_label,
    )
    is_local = isinstance(source.filesystem, fs.LocalFileSystem)
    workers = threads or (LOCAL_THREADS if is_local else REMOTE_THREADS)
    rest = iter(files)
    with ThreadPoolExecutor(workers, thread_name_prefix="footer") as pool:
        while ahead := list(islice(rest, FILES_AHEAD)):
            yield from pool.map(plan, ahead)


def cut(footer: Footer, rows_per_batch: int, bytes_per_batch: int) -> tuple[PlannedBatch, ...]:
    """Cut a file along its row groups.

    Whole small groups share a batch; a large one is cut into parts of nearly equal size, so that
    1,025 rows by 1,024 become two halves and not a batch and a crumb. No part of a group shares a
    batch with another group: reading it would touch both. Groups of no rows vanish.
    """
    if rows_per_batch < 1 or bytes_per_batch < 1:
        raise ValueError("a batch needs at least one row and one byte")
    specs: list[PlannedBatch] = []
    first = rows = held = 0
    for group in footer.groups:
        if not group.rows:
            continue
        held += group.memory_bytes
        if rows and rows + group.rows <= rows_per_batch and held <= bytes_per_batch:
            rows += group.rows
            continue
        if rows:
            specs.append(PlannedBatch(footer.file, first, rows))
        first, rows, held = group.first_row, group.rows, group.memory_bytes
        limit = _limit(group, rows_per_batch, bytes_per_batch)
        if group.rows > limit:
            specs.extend(_split(footer.file, group, limit))
            rows = 0
    if rows:
        specs.append(PlannedBatch(footer.file, first, rows))
    return tuple(specs)


def _limit(group: RowGroup, rows_per_batch: int, bytes_per_batch: int) -> int:
    """How many rows like those of this group make a full batch."""
    row_bytes = max(1, group.memory_bytes // max(1, group.rows))
    return max(1, min(rows_per_batch, bytes_per_batch // row_bytes))


def _split(file: FeedFile, group: RowGroup, limit: int) -> Iterator[PlannedBatch]:
    parts = -(-group.rows // limit)
    for part in range(parts):
        begin, end = group.rows * part // parts, group.rows * (part + 1) // parts
        yield PlannedBatch(file, group.first_row + begin, end - begin)


def _plan(
    source: FeedStorage,
    file: FeedFile,
    *,
    columns: Columns | None,
    rows_per_batch: int,
    bytes_per_batch: int,
    need_label: bool,
) -> FileBatches:
    try:
        batches = plan_batches(
            source,
            file,
            columns,
            rows_per_batch=rows_per_batch,
            bytes_per_batch=bytes_per_batch,
            need_label=need_label,
        )
    except FeedError as problem:
        return FileBatches(file, problem=problem)
    return FileBatches(file, batches)
