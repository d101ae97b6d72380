"""The Parquet files that others read: fixed columns, names that say what they cover.

**Names.** ``verdicts/b000000000123.parquet`` holds batch 123,
``verdicts/b000000000100-000000000199.parquet`` batches 100 to 199 merged into one file, and a
``~2`` before the suffix says that a file was rewritten twice (a purge). Discoveries are
numbered by detector version in the same way (``discoveries/v000000000002.parquet``), settled
verdicts by settlement (``settled/s000000000007.parquet``).

**The reader's rule.** List the folder once. Leave out names that begin with a dot. Leave out a
file whose range lies inside the range of another file of the listing; of two with the same
range take the higher ``~`` number. What is left holds every committed row exactly once, also
while files are being merged. If a file has gone when you open it, list again.
:func:`current` does this; :func:`covered` is the rule itself. Of several settled rows of one
image the last one counts; merging drops the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.store.atomic_files import Folder, Staged
from monitor.store.errors import TableMismatch
from monitor.store.records import OutputFile, PoolMember

_TIME = pa.timestamp("us", tz="UTC")


VERDICTS = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("source_id", pa.string(), nullable=False),
        pa.field("captured_at", _TIME),
        pa.field("score", pa.float32(), nullable=False),
        pa.field("score_ratio", pa.float32(), nullable=False),
        pa.field("p_known", pa.float32(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("nearest_class", pa.string()),
        pa.field("nearest_class_name", pa.string()),
        pa.field("shift_corrected", pa.float32()),
        pa.field("same_as", pa.string()),
        pa.field("detector_version", pa.int32(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)

REJECTED = pa.schema(
    [
        pa.field("image_id", pa.string()),
        pa.field("source_id", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
    ]
)

DISCOVERIES = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("source_id", pa.string(), nullable=False),
        pa.field("captured_at", _TIME),
        pa.field("class_id", pa.string(), nullable=False),
        pa.field("class_name", pa.string(), nullable=False),
        pa.field("by", pa.string(), nullable=False),
        pa.field("confidence", pa.float32()),
        pa.field("detector_version", pa.int32(), nullable=False),
        pa.field("pool", pa.int64()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)

SETTLED = pa.schema(
    [
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("source_id", pa.string(), nullable=False),
        pa.field("captured_at", _TIME),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("class_id", pa.string()),
        pa.field("class_name", pa.string()),
        pa.field("probability", pa.float32(), nullable=False),
        pa.field("by", pa.string(), nullable=False),
        pa.field("pool", pa.int64(), nullable=False),
        pa.field("detector_version", pa.int32(), nullable=False),
        pa.field("revision", pa.int32(), nullable=False),
    ]
)

#: The verdict column's two words, and who can have assigned a discovery.
KNOWN, NOVEL = "known", "novel"
BY_PERSON, BY_PSEUDO_LABEL = "person", "pseudo-label"

#: Settled verdicts other than ``known``, and what can decide them other than a person.
NEW, SHIFTED, UNDECIDED = "new", "shifted", "undecided"
BY_SPREAD, BY_SCORE, BY_POOL = "spread", "score", "pool"
SETTLED_VERDICTS = (KNOWN, NEW, SHIFTED, UNDECIDED)
SETTLED_BY = (BY_PERSON, BY_SPREAD, BY_SCORE, BY_POOL)

#: The reason of a repeated image in ``rejected/``.
DUPLICATE = "duplicate"


#: Figures about how an image was taken (``monitor.images.image_stats``), kept with its features.
STATS = 8


def features_schema(dimension: int) -> pa.Schema:
    """Spooled features: what a pool needs to be scored again and asked about."""
    return pa.schema(
        [
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("source_id", pa.string(), nullable=False),
            pa.field("captured_at", _TIME),
            pa.field("score", pa.float32(), nullable=False),
            pa.field("score_ratio", pa.float32(), nullable=False),
            pa.field("nearest_class", pa.string()),
            pa.field("file", pa.string(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("image_digest", pa.string()),
            pa.field("features", pa.list_(pa.float32(), dimension), nullable=False),
            pa.field("stats", pa.list_(pa.float32(), STATS)),
        ]
    )


@dataclass(frozen=True, slots=True)
class OutputKind:
    """A folder of output files: its columns and the letter its numbers begin with."""

    folder: str
    letter: str
    schema: pa.Schema


KINDS: Mapping[str, OutputKind] = {
    kind.folder: kind
    for kind in (
        OutputKind("verdicts", "b", VERDICTS),
        OutputKind("rejected", "b", REJECTED),
        OutputKind("discoveries", "v", DISCOVERIES),
        # Discoveries of a version that the gate holds; they become visible with it.
        OutputKind("held", "v", DISCOVERIES),
        OutputKind("settled", "s", SETTLED),
    )
}

_NAME = re.compile(r"^[bsv](\d+)(?:-(\d+))?(?:~(\d+))?\.parquet$")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """What a file's name says about it."""

    first: int
    last: int
    generation: int = 0

    @classmethod
    def parse(cls, name: str) -> Span | None:
        """From the last part of a path; None when it is not one of our names.

        >>> Span.parse("verdicts/b000000000100-000000000199~2.parquet")
        Span(first=100, last=199, generation=2)
        >>> Span.parse("verdicts/.b000000000001.parquet.6b1f.tmp") is None
        True
        """
        found = _NAME.match(name.rpartition("/")[2])
        if found is None:
            return None
        first, last, generation = found.groups()
        return cls(int(first), int(last or first), int(generation or 0))

    def name(self, letter: str) -> str:
        """The file name; twelve digits, so that sorting names sorts numbers for ever.

        >>> Span(7, 7).name("b"), Span(7, 9, 1).name("b")
        ('b000000000007.parquet', 'b000000000007-000000000009~1.parquet')
        """
        last = f"-{self.last:012d}" if self.last != self.first else ""
        again = f"~{self.generation}" if self.generation else ""
        return f"{letter}{self.first:012d}{last}{again}.parquet"

    def hides(self, other: Span) -> bool:
        """Whether a reader who sees both must leave ``other`` out."""
        if (self.first, self.last) == (other.first, other.last):
            return self.generation > other.generation
        return self.first <= other.first and other.last <= self.last


def covered(names: Iterable[str]) -> set[str]:
    """Of one listing, the names that a reader must leave out (see the module's rule).

    >>> sorted(covered(["b1.parquet", "b2.parquet", "b1-2.parquet", "b3.parquet"]))
    ['b1.parquet', 'b2.parquet']
    """
    spans = sorted(
        ((span, name) for name in names if (span := Span.parse(name)) is not None),
        # Wide spans first, so that whatever hides a span has been met before it.
        key=lambda pair: (pair[0].first, -pair[0].last, -pair[0].generation),
    )
    hidden: set[str] = set()
    cover: Span | None = None
    for span, name in spans:
        if cover is not None and cover.hides(span):
            hidden.add(name)
        elif cover is None or span.last > cover.last:
            cover = span
    return hidden


def current(folder: Folder, kind: str) -> list[str]:
    """The files that a reader should open now, by the reader's rule, in order."""
    names = [entry.name for entry in folder.list(kind) if Span.parse(entry.name) is not None]
    hidden = covered(names)
    return [name for name in names if name not in hidden]


class WrittenFile:
    """A written file, as the key of what is remembered of it: no name is ever given twice.

    >>> folder = Folder.local("state")
    >>> len({WrittenFile(folder, "b1.parquet"), WrittenFile(folder, "b1.parquet")})
    1
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._key = (str(folder), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrittenFile) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


def output_name(kind: str, span: Span) -> str:
    return f"{kind}/{span.name(KINDS[kind].letter)}"


def spool_folder(pool_id: int) -> str:
    """Features are spooled per pool, so that a finished pool is dropped as one folder."""
    return f"features/pool-{pool_id:09d}"


def spool_name(pool_id: int, span: Span) -> str:
    return f"{spool_folder(pool_id)}/{span.name('b')}"


def table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """Columns of plain lists or arrays, as a table of exactly this schema.

    >>> table(REJECTED, {"file": ["a"], "row": [0], "reason": ["truncated"]}).num_rows
    1
    """
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise TableMismatch(f"columns {', '.join(unknown)}: not part of {', '.join(schema.names)}")
    rows = len(next(iter(columns.values()))) if columns else 0
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None and not field.nullable and rows:
            raise TableMismatch(
                f"column {field.name}: is missing and must have a value in each row"
            )
        arrays.append(pa.nulls(rows, field.type) if values is None else _array(values, field))
    return checked(pa.Table.from_arrays(arrays, schema=schema), schema)


def checked(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table, if it has this schema and no nulls where none may be."""
    if not found.schema.equals(schema):
        raise TableMismatch(f"the table has {found.schema}, the file must have {schema}")
    for field in schema:
        if not field.nullable and found.column(field.name).null_count:
            raise TableMismatch(f"column {field.name}: has empty values and must have none")
    return found


def completed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a file that may be older than some columns: these are empty."""
    if rows.schema.names == schema.names:
        return rows
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema if field.nullable}
    have = {**empty, **dict(zip(rows.schema.names, rows.columns, strict=True))}
    return pa.RecordBatch.from_arrays([have[name] for name in schema.names], schema=schema)


def _array(values: Any, field: pa.Field) -> Any:
    if pa.types.is_fixed_size_list(field.type):
        return feature_column(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.cast(field.type)
    return pa.array(values, type=field.type)


def feature_column(features: npt.NDArray[np.float32]) -> pa.FixedSizeListArray:
    """(n, d) float32 as a column, without copying when it is contiguous."""
    flat = np.ascontiguousarray(features, dtype=np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), features.shape[1])


def feature_matrix(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Back to (n, d) float32."""
    dimension = column.type.list_size
    pieces = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = np.concatenate(pieces) if pieces else np.empty(0, np.float32)
    return np.asarray(flat, dtype=np.float32).reshape(-1, dimension)


def stage_table(folder: Folder, name: str, found: pa.Table, *, into: str | None = None) -> Staged:
    """Write a table under a temporary name; same table, same bytes."""
    # Features are stored as they are. A dictionary of numbers that never repeat, their minima,
    # and zstd on their random bits took fourteen times as long and saved a tenth of the size.
    plain = [field.name for field in found.schema if pa.types.is_fixed_size_list(field.type)]
    packed = [name for name in found.schema.names if name not in plain]
    codecs = {
        **dict.fromkeys(packed, "zstd"),
        **{f"{name}.list.element": "none" for name in plain},
    }

    buffer = pa.BufferOutputStream()
    pq.write_table(
        found,
        buffer,
        compression=codecs if plain else "zstd",
        use_dictionary=packed,
        write_statistics=packed,
    )

    return folder.stage_bytes(name, memoryview(buffer.getvalue()), into=into)


def write_table(folder: Folder, name: str, found: pa.Table) -> Staged:
    """Write a table under its name at once, for those who need no transaction around it."""
    staged = stage_table(folder, name, found)
    staged.publish()
    return staged


def read_table(folder: Folder, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A file, or some of its columns; one that is newer than the file is empty."""
    with folder.reading(name) as file:
        parquet = pq.ParquetFile(file)
        if columns is None:
            return parquet.read()
        found = parquet.read([one for one in columns if one in parquet.schema_arrow.names])
    for one in (one for one in columns if one not in found.schema.names):
        field = KINDS[name.partition("/")[0]].schema.field(one)
        found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(list(columns))


def count_rows(folder: Folder, name: str) -> int:
    """From the footer alone."""
    with folder.reading(name) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


def standing(folder: Folder, file: OutputFile | PoolMember) -> str | None:
    """Where a committed file is: under its name, still staged, or (None) nowhere."""
    if folder.size(file.name) is not None:
        return file.name
    if file.staged is not None and folder.size(file.staged) is not None:
        return file.staged
    # Between the two looks its owner may have named it.
    return file.name if folder.size(file.name) is not None else None


def final_name(folder: Folder, file: OutputFile | PoolMember) -> str:
    """The final name of a committed file, which it gets now if it has none yet."""
    if file.staged is not None and folder.size(file.name) is None:
        folder.settle(file.staged, file.name)
    return file.name
