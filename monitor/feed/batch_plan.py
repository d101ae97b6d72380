"""How files are cut into batches: by rows and bytes, along row groups, from footers alone.

The footer of a file that somebody else wrote is not to be trusted: what contradicts itself is
refused here, so that whoever plans by it neither loops for ever nor runs out of memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from monitor.feed.errors import FeedError, FileCorrupt, FileIncomplete, SourceUnavailable
from monitor.feed.feed_storage import (
    FeedFile,
    FeedStorage,
    is_of_storage,
    one_line,
    storage_errors,
)
from monitor.feed.input_contract import Columns, Layout, check_schema

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
SMALLEST = 12
"""Bytes of the shortest thing with a footer: both magics and the footer's length."""

ROWS_PER_BYTE = 100
"""Far beyond any compression of distinct images; a footer that claims more is a garbled one."""

PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError)
"""All that pyarrow was seen to raise for garbled files; OverflowError and Unicode are within."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: which rows, and about how many bytes they take."""

    index: int
    first_row: int
    rows: int
    memory_bytes: int
    """Of all columns, uncompressed, as the writer says; at least their share of the file."""

    @property
    def end_row(self) -> int:
        """The row after its last one."""
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Footer:
    """What planning and reading need to know of a file."""

    file: FeedFile
    layout: Layout
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """Of the whole file."""
        return self.groups[-1].end_row if self.groups else 0


def read_footer(
    source: FeedStorage, file: FeedFile, columns: Columns | None = None, *, need_label: bool = False
) -> Footer:
    """Read and check one footer: one open and one or two small reads, whatever the file's size."""
    with source.open(file.path) as handle:
        with storage_errors(source.where(file.path)):
            size = handle.size()
        if size != file.size:
            raise FileIncomplete(
                f"{source.where(file.path)}: has {size} bytes where the listing said {file.size}, "
                "so it is still being written; list the feed again"
            )
        where = source.where(file.path)
        parquet = open_parquet(handle, where)
        known = replace(file, digest=footer_digest(handle, parquet, where))
        return describe(parquet, source, known, columns or Columns(), need_label=need_label)


def footer_digest(handle: pa.NativeFile, parquet: pq.ParquetFile, where: str) -> str:
    """The hash of a file's footer as it lies there.

    A footer holds the sizes and places of all column chunks and the writer's statistics of them:
    with the size of the file it stands for the content, and costs one small read.
    """
    with storage_errors(where):
        size = handle.size()
        length = min(parquet.metadata.serialized_size + 8, size)
        return hashlib.sha256(handle.read_at(length, size - length)).hexdigest()


def same_file(source: FeedStorage, before: FeedFile, now: FeedFile) -> bool:
    """Whether a file whose time has changed is still what it was: same size, same footer.

    Raises SourceUnavailable if that cannot be found out now.
    """
    if before.size != now.size:
        return False
    if before.modified_ns == now.modified_ns:
        return True
    if before.digest is None:
        return False
    where = source.where(now.path)
    try:
        with source.open(now.path) as handle:
            return footer_digest(handle, open_parquet(handle, where), where) == before.digest
    except (FileIncomplete, FileCorrupt):
        return False


def open_parquet(handle: pa.NativeFile, where: str) -> pq.ParquetFile:
    """Open a handle as Parquet, and tell unfinished from corrupt from unreachable if it is not."""
    try:
        return pq.ParquetFile(handle)
    except PARQUET_ERRORS as error:
        raise _why_no_footer(handle, where, error) from error


def describe(
    parquet: pq.ParquetFile,
    source: FeedStorage,
    file: FeedFile,
    columns: Columns,
    *,
    need_label: bool = False,
) -> Footer:
    """Check an open file's schema and row groups against the contract and against each other."""
    where = source.where(file.path)
    try:
        schema = parquet.schema_arrow
    except PARQUET_ERRORS as error:
        raise FileCorrupt(f"{where}: its schema cannot be read ({one_line(error)})") from error
    layout = check_schema(schema, columns, where=where, need_label=need_label)
    try:
        return Footer(file, layout, _groups(parquet.metadata, file.size))
    except PARQUET_ERRORS as error:
        raise FileCorrupt(
            f"{where}: its footer contradicts itself ({one_line(error)}); write the file again"
        ) from error


def _groups(metadata: pq.FileMetaData, size: int) -> tuple[RowGroup, ...]:
    """The row groups, by what the footer says of each as a whole.

    It would say more of each column, but pyarrow ends the process, without an exception, when
    the statistics of a column are garbled and one merely asks for it.
    """
    total = metadata.num_rows
    if not 0 <= total <= ROWS_PER_BYTE * size:
        raise ValueError(f"{total} rows in {size} bytes")
    groups: list[RowGroup] = []
    first_row = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        rows, stated = group.num_rows, group.total_byte_size
        if rows < 0 or stated < 0:
            raise ValueError(f"{rows} rows of {stated} bytes in row group {index}")
        share = size * rows // max(1, total)
        groups.append(RowGroup(index, first_row, rows, max(stated, share)))
        first_row += rows
    if first_row != total:
        raise ValueError(f"{total} rows in all, {first_row} in its groups")
    return tuple(groups)


def _why_no_footer(handle: pa.NativeFile, where: str, error: BaseException) -> FeedError:
    with storage_errors(where):
        if is_of_storage(error):
            raise error
        size = handle.size()
        head = handle.read_at(min(4, size), 0)
        tail = handle.read_at(4, size - 4) if size >= SMALLEST else b""
        footer = _footer_bytes(handle, size) if tail == MAGIC else b""
    if ENCRYPTED in (head, tail):
        return FileCorrupt(f"{where}: is encrypted, which conclad cannot read; write it plain")
    if head != MAGIC[: len(head)]:
        return FileCorrupt(f"{where}: is not a Parquet file; take it out of the feed")
    if tail != MAGIC:
        return FileIncomplete(
            f"{where}: has no footer yet ({size} bytes); it is still being written, or its writer "
            "died"
        )
    if _can_be_read(footer):
        # It was not the content: what came from the storage was not what lies there.
        return SourceUnavailable(f"{where}: came damaged from the storage ({one_line(error)})")
    return FileCorrupt(
        f"{where}: its footer cannot be read ({one_line(error)}); write the file again"
    )


def _footer_bytes(handle: pa.NativeFile, size: int) -> bytes:
    """The footer as it lies there; nothing if its length cannot be."""
    length = int.from_bytes(handle.read_at(4, size - 8), "little") + 8
    return bytes(handle.read_at(length, size - length)) if length <= size - 4 else b""


def _can_be_read(footer: bytes) -> bool:
    try:
        pq.read_metadata(pa.BufferReader(MAGIC + footer))
    except PARQUET_ERRORS:
        return False
    return True


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
        """The row after its last one."""
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class FileBatches:
    """The batches of one file, or the reason why there are none."""

    file: FeedFile
    batches: tuple[PlannedBatch, ...] = ()
    problem: FeedError | None = None

    @property
    def rows(self) -> int:
        """Of all its batches."""
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

    Raises FileIncomplete (try again), FileCorrupt or ContractError (quarantine it), FileGone, or
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
    threads: int | None = None,
) -> Iterator[FileBatches]:
    """Plan many files side by side, in their order; a bad file is a plan with a problem."""
    plan = partial(_plan, source, columns=columns, rows_per_batch=rows_per_batch)
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
) -> FileBatches:
    try:
        batches = plan_batches(source, file, columns, rows_per_batch=rows_per_batch)
    except FeedError as problem:
        return FileBatches(file, problem=problem)
    return FileBatches(file, batches)
