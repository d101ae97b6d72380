"""What a Parquet file says it holds, from its footer alone.

The footer of a file that somebody else wrote is not to be trusted: what contradicts itself is
refused here, so that whoever plans by it neither loops for ever nor runs out of memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.contract import Columns, Layout, check_schema
from monitor.feed.errors import FeedError, FileCorrupt, FileIncomplete
from monitor.feed.feed_storage import FeedFile, FeedStorage, one_line, storage_errors

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
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Footer:
    """What planning and reading need to know of a file."""

    file: FeedFile
    layout: Layout
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
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
