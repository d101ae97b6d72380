"""What a Parquet file says it holds, from its footer alone.

The footer of a file that somebody else wrote is not to be trusted: what contradicts itself is
refused here, so that whoever plans by it neither loops for ever nor runs out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.contract import Columns, Layout, check_schema
from monitor.feed.errors import FeedError, FileCorrupt, FileIncomplete
from monitor.feed.source import FeedFile, Source, one_line, storage_errors

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
SMALLEST = 12
"""Bytes of the shortest thing with a footer: both magics and the footer's length."""

ROWS_PER_BYTE = 100
"""Far beyond any compression of distinct images; a footer that claims more is a garbled one."""

SHARED_IMAGE = 1 << 20
"""What one image of a dictionary may take, where the footer does not tell: a large frame."""

PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError)
"""All that pyarrow was seen to raise for garbled files; OverflowError and Unicode are within."""


@dataclass(frozen=True, slots=True)
class Group:
    """One row group: which rows, and how many bytes of them the monitor would read."""

    index: int
    first_row: int
    rows: int
    stored_bytes: int
    memory_bytes: int
    largest_row: int
    """How many bytes one row may take in memory, as far as the footer tells."""
    start: int
    """Where its first needed byte lies in the file."""
    end: int

    @property
    def end_row(self) -> int:
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Footer:
    """What planning and reading need to know of a file."""

    file: FeedFile
    layout: Layout
    groups: tuple[Group, ...]

    @property
    def rows(self) -> int:
        return self.groups[-1].end_row if self.groups else 0


def read_footer(
    source: Source, file: FeedFile, columns: Columns | None = None, *, need_label: bool = False
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
        parquet = open_parquet(handle, source.where(file.path))
        return describe(parquet, source, file, columns or Columns(), need_label=need_label)


def open_parquet(handle: pa.NativeFile, where: str) -> pq.ParquetFile:
    """Open a handle as Parquet, and tell unfinished from corrupt from unreachable if it is not."""
    try:
        return pq.ParquetFile(handle)
    except PARQUET_ERRORS as error:
        raise _why_no_footer(handle, where, error) from error


def describe(
    parquet: pq.ParquetFile,
    source: Source,
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
        return Footer(file, layout, _groups(parquet.metadata, layout, file.size))
    except PARQUET_ERRORS as error:
        raise FileCorrupt(
            f"{where}: its footer contradicts itself ({one_line(error)}); write the file again"
        ) from error


def _groups(metadata: pq.FileMetaData, layout: Layout, size: int) -> tuple[Group, ...]:
    schema, leaves = metadata.schema, frozenset(layout.leaves())
    needed = [i for i in range(metadata.num_columns) if schema.column(i).path in leaves]
    groups: list[Group] = []
    first_row = 0
    for index in range(metadata.num_row_groups):
        group = _group(metadata.row_group(index), index, needed, first_row, size)
        groups.append(group)
        first_row = group.end_row
    if metadata.num_rows != first_row:
        raise ValueError(f"{metadata.num_rows} rows in all, {first_row} in its groups")
    if first_row > ROWS_PER_BYTE * size:
        raise ValueError(f"{first_row} rows in {size} bytes")
    return tuple(groups)


def _group(
    group: pq.RowGroupMetaData, index: int, needed: list[int], first_row: int, size: int
) -> Group:
    rows = group.num_rows
    stored = memory = end = largest = 0
    start = size
    for i in needed:
        chunk = group.column(i)
        # No column of the contract repeats, so each has one value, or one null, for each row.
        if chunk.num_values != rows or rows < 0:
            raise ValueError(f"{chunk.num_values} values for {rows} rows in row group {index}")
        if chunk.total_compressed_size < 0 or chunk.total_uncompressed_size < 0:
            raise ValueError(f"a negative size in row group {index}")
        offsets = [chunk.data_page_offset, chunk.dictionary_page_offset]
        begin = min((offset for offset in offsets if offset), default=0)
        if begin < 0 or begin + chunk.total_compressed_size > size:
            raise ValueError(f"row group {index} reaches beyond the end of the file")
        start = min(start, begin)
        end = max(end, begin + chunk.total_compressed_size)
        stored += chunk.total_compressed_size
        memory += chunk.total_uncompressed_size
        largest += _largest_value(chunk)
    return Group(index, first_row, rows, stored, memory, largest, start, end)


def _largest_value(chunk: pq.ColumnChunkMetaData) -> int:
    """The mean size of a value, unless most of the chunk is a dictionary whose values rows share.

    A thousand rows may then all be the same image, stored once and delivered a thousand times.
    """
    mean: int = chunk.total_uncompressed_size // max(1, chunk.num_values)
    if not chunk.has_dictionary_page:
        return mean
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    if 2 * dictionary < chunk.total_compressed_size:
        return mean
    return max(mean, min(int(chunk.total_uncompressed_size), SHARED_IMAGE))


def _why_no_footer(handle: pa.NativeFile, where: str, error: BaseException) -> FeedError:
    with storage_errors(where):
        size = handle.size()
        head = handle.read_at(min(4, size), 0)
        tail = handle.read_at(4, size - 4) if size >= SMALLEST else b""
    if ENCRYPTED in (head, tail):
        return FileCorrupt(f"{where}: is encrypted, which conclad cannot read; write it plain")
    if head != MAGIC[: len(head)]:
        return FileCorrupt(f"{where}: is not a Parquet file; take it out of the feed")
    if tail != MAGIC:
        return FileIncomplete(
            f"{where}: has no footer yet ({size} bytes); it is still being written, or its writer "
            "died"
        )
    return FileCorrupt(
        f"{where}: its footer cannot be read ({one_line(error)}); write the file again"
    )
