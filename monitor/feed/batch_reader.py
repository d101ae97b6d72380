"""Rows of a file, some at a time, never the file whole.

Reading starts at a row group, takes only the columns of the contract, and goes on in small
chunks, so a file of one enormous row group takes no more memory than any other. Parquet cannot
be entered in the middle of a row group; :class:`BatchReader` therefore keeps its place, and
batches asked for in order cost one pass over the file, whatever the size of its groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.batch_plan import (
    PARQUET_ERRORS,
    Footer,
    PlannedBatch,
    RowGroup,
    describe,
    open_parquet,
    same_file,
)
from monitor.feed.errors import FileChanged
from monitor.feed.feed_storage import (
    FeedFile,
    FeedStorage,
    is_of_storage,
    one_line,
    storage_errors,
)
from monitor.feed.input_contract import (
    Columns,
    RejectedRow,
    Row,
    fallback_source,
    image_bytes,
    rows_of,
)
from monitor.images.reject_reasons import Reason

CHUNK_BYTES = 32 << 20
"""What one step of reading may hold; a few hundred ordinary frames."""

CHUNK_ROWS = 128
"""Larger steps save little."""

EXPANDED_BYTES = 128 << 20
"""What one step may hold if all its rows share the one image of a dictionary, of which the footer
counts a single copy: then a row may be as large as its whole row group. Large row groups are
therefore read a row at a time, which costs ten microseconds each."""

BLOWN_UP_BYTES, BLOWN_UP_TIMES = 256 << 20, 50
"""Of a file that holds more than this, and so many times its own size, no more is read: images
hardly compress any further, and readers of Parquet take memory for whole pages and dictionaries.
Row groups beyond it by the footer are not read at all; where rows share the images of a dictionary
it shows only in what is read, of which each group has its part."""

GROUP_BYTES = 16 << 20
"""The least part of a row group: thousands of rows may share the picture of a camera without a
signal."""

PREFETCH_BYTES = 64 << 20
"""Row groups up to this size are fetched in one go, which object stores reward."""

BUFFER_BYTES = 4 << 20
"""Larger ones are streamed through buffers of this size, one for each column."""

PROBES, PROBE_BYTES = 4, 1 << 16
"""A storage that is away fails at the first byte; that it answers here and there is enough."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """What became of each row of a batch: `len(rows) + len(rejected) == spec.rows`, always."""

    spec: PlannedBatch
    rows: tuple[Row, ...]
    rejected: tuple[RejectedRow, ...]


PIECE_BYTES = 64 << 20
"""Encoded images that are in memory at once: a batch holds more only if its images are few and
large, and is then read in pieces."""


def read_pieces(reader: BatchReader, spec: PlannedBatch) -> Iterator[list[Row | RejectedRow]]:
    """The rows of a batch, all at once or, where images are large, in pieces.

    Between two pieces the reader may be used for something else. The pieces depend on the batch
    alone.
    """
    first = spec.first_row
    while first < spec.end_row:
        piece: list[Row | RejectedRow] = []
        held = 0
        for row in reader.iter_rows(replace(spec, first_row=first, rows=spec.end_row - first)):
            piece.append(row)
            held += len(row.image) if isinstance(row, Row) else 0
            if held > PIECE_BYTES:
                break
        first += len(piece)
        yield piece


@dataclass(frozen=True, slots=True)
class _OpenFile:
    handle: pa.NativeFile
    parquet: pq.ParquetFile
    footer: Footer
    source_id: str


class BatchReader:
    """Reads batches of a source, keeping its place in the file it read last. For one thread.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> from monitor.feed.batch_plan import plan_batches
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pa.table({"image_id": ["1", None], "image": [b"jpeg", b"jpeg"]})
    ...     pq.write_table(table, f"{folder}/a.parquet")
    ...     source = FeedStorage.at(folder)
    ...     [spec] = plan_batches(source, source.list()[0])
    ...     with BatchReader(source) as reader:
    ...         batch = reader.read(spec)
    >>> [row.image_id for row in batch.rows], [str(row.reason) for row in batch.rejected]
    (['1'], ['bad_id'])
    """

    def __init__(
        self,
        source: FeedStorage,
        columns: Columns | None = None,
        *,
        default_source: str | None = None,
    ) -> None:
        self._source = source
        self._columns = columns or Columns()
        self._default_source = default_source
        self._open: _OpenFile | None = None
        self._rows: Iterator[Row | RejectedRow] = iter(())
        self._next_row = 0

    def read(self, spec: PlannedBatch) -> ReadRows:
        """Every row of a batch, read or rejected.

        The answer depends on the spec and the file alone, not on what was read before. Raises
        FileChanged if the file is not the one that was planned, and SourceUnavailable if the
        storage failed: then nothing was decided about any row.
        """
        found = tuple(self.iter_rows(spec))
        return ReadRows(
            spec,
            tuple(row for row in found if isinstance(row, Row)),
            tuple(row for row in found if isinstance(row, RejectedRow)),
        )

    def read_row(self, path: str, row: int) -> Row | None:
        """One row of a file as it is now; None if it was rejected."""
        rows = self.read(PlannedBatch(self._source.stat(path), row, 1)).rows
        return rows[0] if rows else None

    def iter_rows(self, spec: PlannedBatch) -> Iterator[Row | RejectedRow]:
        """The rows of a batch one by one, holding no more than a chunk of them."""
        try:
            self._move_to(spec)
            for row in islice(self._rows, spec.rows):
                self._next_row += 1
                yield row
        except GeneratorExit:
            raise  # whoever reads has had enough; the place is known
        except BaseException:
            self.close()
            raise
        if self._next_row != spec.end_row:
            self.close()
            raise FileChanged(
                f"{self._source.where(spec.file.path)}: ends before row {spec.end_row} that was "
                "planned; files of a feed must not change"
            )

    def close(self) -> None:
        """Forget the place and close the file; the reader can be used again."""
        if self._open is not None:
            self._rows = iter(())
            self._open.parquet.close(force=True)
            self._open.handle.close()
            self._open = None

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _move_to(self, spec: PlannedBatch) -> None:
        if self._open is None or self._open.footer.file != spec.file:
            self.close()
            self._open = _open_file(self._source, spec.file, self._columns, self._default_source)
        elif self._next_row == spec.first_row:
            return
        self._rows = _rows_from(self._source, self._open, spec.first_row)
        self._next_row = spec.first_row


def _open_file(
    source: FeedStorage, file: FeedFile, columns: Columns, default_source: str | None
) -> _OpenFile:
    where = source.where(file.path)
    now = source.stat(file.path)
    if not same_file(source, file, now):
        raise FileChanged(
            f"{where}: had {file.size} bytes when it was planned and has {now.size} now, or "
            "another content; files of a feed must not change, so give the new one a new name"
        )
    handle = source.open(file.path)
    try:
        parquet = open_parquet(handle, where)
        footer = describe(parquet, source, file, columns)
        source_id = fallback_source(file.path, columns, default_source)
        largest = max((group.memory_bytes for group in footer.groups), default=0)
        tuned = pq.ParquetFile(
            handle,
            metadata=parquet.metadata,
            pre_buffer=largest <= PREFETCH_BYTES,
            buffer_size=0 if largest <= PREFETCH_BYTES else BUFFER_BYTES,
        )
    except BaseException:
        handle.close()
        raise
    return _OpenFile(handle, tuned, footer, source_id)


def _rows_from(
    source: FeedStorage, opened: _OpenFile, first_row: int
) -> Iterator[Row | RejectedRow]:
    for group in opened.footer.groups:
        if group.end_row > first_row:
            yield from _rows_of_group(source, opened, group, max(first_row, group.first_row))


def _rows_of_group(
    source: FeedStorage, opened: _OpenFile, group: RowGroup, row: int
) -> Iterator[Row | RejectedRow]:
    """The rows of one group from a given one on.

    A failure is first checked against the storage, which raises if the bytes cannot be had; then
    tried once more, in case the storage had only hiccuped; then it is the file's own, and
    the rest of the group is rejected. Chunks are counted from the start of the group, so
    which rows that concerns does not depend on where reading began.
    """
    most, is_blown_up = group_bytes(opened.footer, group)
    failed_at = -1
    while row < group.end_row and not is_blown_up:
        read = 0
        try:
            for chunk, first in _chunks(opened, group):
                read += image_bytes(chunk, opened.footer.layout)
                if is_blown_up := read > most:
                    break
                skip = max(0, row - first)
                if skip < chunk.num_rows:
                    part = chunk.slice(skip, group.end_row - first - skip)
                    found = list(rows_of(part, opened.footer.layout, row, opened.source_id))
                    row += len(found)
                    yield from found
            problem = f"row group {group.index} ends early"
        except PARQUET_ERRORS as error:
            if is_of_storage(error) and failed_at == row:
                with storage_errors(source.where(opened.footer.file.path)):
                    raise
            problem = f"row group {group.index} cannot be read ({one_line(error)})"
        if row < group.end_row and failed_at == row:
            yield from _lost(opened, range(row, group.end_row), Reason.UNREADABLE, problem)
            return
        if row < group.end_row and not is_blown_up:
            _check_storage(source, opened.footer.file)
        failed_at = row
    if is_blown_up:
        size = opened.footer.file.size
        problem = f"row group {group.index} holds too much for its file of {size} bytes"
        yield from _lost(opened, range(row, group.end_row), Reason.TOO_LARGE, problem)


def _lost(opened: _OpenFile, rows: range, reason: Reason, detail: str) -> Iterator[RejectedRow]:
    return (RejectedRow(row, reason, detail, None, opened.source_id) for row in rows)


def group_bytes(footer: Footer, group: RowGroup) -> tuple[int, bool]:
    """What a row group may hold, and whether it lies beyond what its file may hold."""
    most = max(BLOWN_UP_BYTES, BLOWN_UP_TIMES * footer.file.size)
    stated = [one.memory_bytes for one in footer.groups]
    part = most * group.memory_bytes // max(1, sum(stated))
    return max(GROUP_BYTES, group.memory_bytes, part), sum(stated[: group.index + 1]) > most


def _chunks(opened: _OpenFile, group: RowGroup) -> Iterator[tuple[pa.RecordBatch, int]]:
    row_bytes = max(1, group.memory_bytes // max(1, group.rows))
    expanded = EXPANDED_BYTES // max(1, group.memory_bytes)
    rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes, expanded))
    first = group.first_row
    for chunk in opened.parquet.iter_batches(
        batch_size=rows,
        row_groups=[group.index],
        columns=opened.footer.layout.leaves(),
        use_threads=False,
    ):
        yield chunk, first
        first += chunk.num_rows


def _check_storage(source: FeedStorage, file: FeedFile) -> None:
    """Read some bytes as bytes: raises if it is the storage that fails, not the file's content."""
    where = source.where(file.path)
    if not same_file(source, file, source.stat(file.path)):
        raise FileChanged(f"{where}: changed while it was read; files of a feed must not change")
    with source.open(file.path) as handle, storage_errors(where):
        for start in range(0, file.size, max(1, file.size // PROBES)):
            handle.read_at(min(PROBE_BYTES, file.size - start), start)
