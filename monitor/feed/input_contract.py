"""The input contract: which columns a feed file must have, of which types, under which names.

| role | required | accepted types |
| --- | --- | --- |
| `image_id` | yes | text, or integers (written in decimal) |
| `image` | yes | binary, or struct<bytes, path> of which only `bytes` is read |
| `captured_at` | no | timestamp of any unit and zone, or ISO 8601 text; without a zone it is UTC |
| `source_id` | no | text, or integers |
| `label` | only to fit | text, or integers |

Text and binary may be of the ordinary, large or view layout, and dictionary-encoded. A column of
type null, which pandas writes for one without values, counts as a column of nulls. Dates are
refused because a day is not a moment, and plain numbers as times because they have no unit.

From Arrow's columns to rows: what is missing or malformed rejects its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from monitor.feed.errors import ContractError
from monitor.images.image_identity import image_digest
from monitor.images.reject_reasons import Reason, Rejected
from monitor.plain_text import name_problem, visible


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of the contract are called in this feed.

    A dot reaches into a struct (`meta.camera`) unless a column bears the whole name.

    >>> Columns(image="frame.jpeg", source_id="camera").image
    'frame.jpeg'
    """

    image_id: str = "image_id"
    captured_at: str = "captured_at"
    source_id: str = "source_id"
    image: str = "image"
    label: str = "label"

    def is_mapped(self, role: str) -> bool:
        """Whether somebody named this column, rather than leaving it at its default."""
        return bool(getattr(self, role) != role)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of the contract are in one file: a path of field names for each.

    >>> schema = pa.schema([("image_id", pa.string()), ("image", pa.binary())])
    >>> check_schema(schema, Columns(), where="a.parquet").image
    ('image',)
    """

    image_id: tuple[str, ...]
    image: tuple[str, ...]
    captured_at: tuple[str, ...] | None = None
    source_id: tuple[str, ...] | None = None
    label: tuple[str, ...] | None = None

    def leaves(self) -> list[str]:
        """The columns to read, in Parquet's dotted names, and no others."""
        paths = (getattr(self, field.name) for field in fields(self))
        return sorted({".".join(path) for path in paths if path is not None})


def check_schema(
    schema: pa.Schema, columns: Columns, *, where: str, need_label: bool = False
) -> Layout:
    """Find each column of the contract in a schema, or say in one sentence what is missing.

    An optional column may be absent under its default name; one that was mapped by hand must be
    there, because the likeliest reason for its absence is a typing error.
    """
    image_id = _need(schema, columns, "image_id", where)
    image = _need(schema, columns, "image", where)
    captured_at = _find(schema, columns, "captured_at", where)
    source_id = _find(schema, columns, "source_id", where)
    label = (_need if need_label else _find)(schema, columns, "label", where)

    image_path, image_type = image
    image_type = plain_type(image_type)
    if pa.types.is_struct(image_type):
        image_path, image_type = _bytes_of(image_type, image_path, where)
    if not (is_binary(image_type) or pa.types.is_null(image_type)):
        raise ContractError(
            f"{where}: column '{columns.image}' holds {image_type}, not images; write the encoded "
            "files as binary or as struct<bytes, path>"
        )
    for role, found in (("image_id", image_id), ("source_id", source_id), ("label", label)):
        if found is not None and not _is_name(found[1]):
            raise ContractError(
                f"{where}: column '{getattr(columns, role)}' holds {found[1]}, where {role} "
                "wants text or integers; cast it, or map another column under feed.columns in "
                "ray_config.yaml"
            )
    if captured_at is not None:
        _check_time(captured_at[1], columns.captured_at, where)
    return Layout(
        image_id=image_id[0],
        image=image_path,
        captured_at=captured_at and captured_at[0],
        source_id=source_id and source_id[0],
        label=label and label[0],
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionary encoding or an extension's name around it."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, in any of the ways Arrow has for it."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in kinds)


def is_binary(kind: pa.DataType) -> bool:
    """Whether a column holds bytes, in any of the ways Arrow has for them."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_kind(kind) for is_kind in kinds)


def _is_name(kind: pa.DataType) -> bool:
    return is_text(kind) or any(
        is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_null)
    )


_Found = tuple[tuple[str, ...], pa.DataType]


def _need(schema: pa.Schema, columns: Columns, role: str, where: str) -> _Found:
    name: str = getattr(columns, role)
    for path in ((name,), tuple(name.split("."))):
        kind = _follow(schema, path, where)
        if kind is not None:
            return path, plain_type(kind)
    found = ", ".join(schema.names) or "none"
    raise ContractError(
        f"{where}: no column '{name}' (found: {found}); map it under feed.columns in "
        "ray_config.yaml"
    )


def _find(schema: pa.Schema, columns: Columns, role: str, where: str) -> _Found | None:
    try:
        return _need(schema, columns, role, where)
    except ContractError:
        if columns.is_mapped(role) or schema.get_all_field_indices(role):
            raise
        return None


def _follow(schema: pa.Schema, path: tuple[str, ...], where: str) -> pa.DataType | None:
    """The type at the end of a path of field names, if the path exists."""
    positions = schema.get_all_field_indices(path[0])
    if len(positions) > 1:
        raise ContractError(
            f"{where}: {len(positions)} columns are called '{path[0]}', so it is not known which "
            "one is meant; rename one of them"
        )
    if not positions:
        return None
    kind = schema.field(positions[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(kind.get_field_index(name)).type
    return kind


def _bytes_of(kind: pa.DataType, path: tuple[str, ...], where: str) -> _Found:
    position = kind.get_field_index("bytes")
    if position < 0:
        inside = ", ".join(field.name for field in kind)
        raise ContractError(
            f"{where}: column '{'.'.join(path)}' is a struct without a field 'bytes' "
            f"(found: {inside}); map the field that holds the image, such as "
            f"'{path[-1]}.{kind.field(0).name if kind.num_fields else 'data'}', under feed.columns "
            "in ray_config.yaml"
        )
    return (*path, "bytes"), plain_type(kind.field(position).type)


def _check_time(kind: pa.DataType, name: str, where: str) -> None:
    if pa.types.is_timestamp(kind) or is_text(kind) or pa.types.is_null(kind):
        return
    why = "a day is not a moment" if pa.types.is_date(kind) else "it does not say which moment"
    raise ContractError(
        f"{where}: column '{name}' holds {kind}, and {why}; write captured_at as a timestamp in "
        "UTC or as ISO 8601 text"
    )


NO_SOURCE = "default"
"""The source of rows that have neither a column nor a folder nor a setting to name it."""

IMAGE_BYTES = 512 << 20
"""The largest encoded image that is read at all; see `feed.max_pixels` for what is decoded."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """A row without its image: what is written beside a verdict."""

    row: int
    image_id: str
    source_id: str
    captured_at: datetime | None
    label: str | None = None
    digest: str | None = None
    """The hash of the image's bytes, kept with the rows of a pool."""

    def rejected(self, why: Rejected) -> RejectedRow:
        """The row as one that cannot be scored."""
        return RejectedRow(
            self.row, why.reason, why.detail, self.image_id, self.source_id, self.captured_at
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One image as it came: still encoded, its identity and time checked.

    >>> Row(0, "0001", "cam-7", None, None, b"...").source_id
    'cam-7'
    """

    row: int
    """Counted from zero over the whole file."""
    image_id: str
    source_id: str
    captured_at: datetime | None
    """In UTC, to the microsecond; None where the feed has no times."""
    label: str | None
    image: bytes

    @property
    def identity(self) -> RowIdentity:
        """Which image it is, without its bytes."""
        return RowIdentity(
            self.row,
            self.image_id,
            self.source_id,
            self.captured_at,
            self.label,
            image_digest(self.image),
        )


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One row that cannot be scored, with as much of its identity as could be read."""

    row: int
    reason: Reason
    detail: str
    image_id: str | None = None
    source_id: str | None = None
    captured_at: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", visible(self.detail))


@dataclass(frozen=True, slots=True)
class Malformed:
    """A value that is there but cannot be understood."""

    detail: str


def fallback_source(path: str, columns: Columns, default: str | None = None) -> str:
    """Whose images a file holds, if no column says so.

    A folder of the form `source_id=cam-7` says it; else the configured default; else the folder
    that holds the file.

    >>> fallback_source("source_id=cam-7/day=3/a.parquet", Columns())
    'cam-7'
    >>> fallback_source("cam-7/a.parquet", Columns()), fallback_source("a.parquet", Columns())
    ('cam-7', 'default')
    """
    folders = path.split("/")[:-1]
    for folder in folders:
        key, equals, value = folder.partition("=")
        if equals and value and key in ("source_id", columns.source_id):
            return unquote(value)
    if default:
        return default
    return next((folder for folder in reversed(folders) if folder), NO_SOURCE)


def rows_of(
    batch: pa.RecordBatch, layout: Layout, first_row: int, source_id: str
) -> Iterator[Row | RejectedRow]:
    """One Row or RejectedRow for each row of the batch, in order."""
    ids = _names(_column(batch, layout.image_id))
    sources = _names(_column(batch, layout.source_id))
    labels = _names(_column(batch, layout.label))
    fallback = _name(source_id)
    times = _times(_column(batch, layout.captured_at))
    images = _column(batch, layout.image)
    columns = zip(ids, sources, times, labels, images, strict=True)
    for row, (image_id, source, time, label, found) in enumerate(columns, first_row):
        size = found.as_buffer().size if found.is_valid else 0
        # One that is too large is not even copied out of the file's memory.
        image = None if size > IMAGE_BYTES else found.as_py()
        if (
            not image_id
            or not image
            or isinstance(image_id, Malformed)
            or isinstance(source := source or fallback, Malformed)
            or isinstance(time, Malformed)
            or isinstance(label, Malformed)
        ):
            yield _rejected(row, image_id, source or fallback, time, label, size)
        else:
            yield Row(row, image_id, source, time, label, image)


def image_bytes(batch: pa.RecordBatch, layout: Layout) -> int:
    """How large the encoded images of these rows are together."""
    images = _column(batch, layout.image)
    return sum(image.as_buffer().size for image in images if image.is_valid)


def _rejected(
    row: int, image_id: Any, source: Any, time: Any, label: Any, size: int
) -> RejectedRow:
    reason, detail = _problem(image_id, source, time, label, size)
    known = [None if isinstance(value, Malformed) else value for value in (image_id, source, time)]
    return RejectedRow(row, reason, detail, *known)


def _problem(image_id: Any, source: Any, time: Any, label: Any, size: int) -> tuple[Reason, str]:
    for value, name in ((image_id, "image_id"), (source, "source_id"), (label, "label")):
        if isinstance(value, Malformed):
            return Reason.BAD_ID, f"{name} {value.detail}"
    if not image_id:
        return Reason.BAD_ID, "image_id is null or empty"
    if isinstance(time, Malformed):
        return Reason.BAD_TIME, f"captured_at {time.detail}"
    if size > IMAGE_BYTES:
        return Reason.TOO_LARGE, f"{size} bytes; an image has at most {IMAGE_BYTES}"
    return Reason.NO_IMAGE, "the image is null or empty (a path beside it is never opened)"


def _column(batch: pa.RecordBatch, path: tuple[str, ...] | None) -> pa.Array:
    """The values at the end of a path; a null struct on the way makes them null."""
    if path is None:
        return pa.nulls(batch.num_rows)
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(_plain(values), name)
    return _plain(values)


def _plain(values: pa.Array) -> pa.Array:
    """Without dictionary, run-end encoding or extension around the values."""
    while True:
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        elif isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        elif isinstance(values, pa.RunEndEncodedArray):
            values = pc.run_end_decode(values)
        else:
            return values


def _names(values: pa.Array) -> list[str | Malformed | None]:
    """Ids and labels, which end in databases, metrics and pages."""
    return [_name(text) if isinstance(text, str) else text for text in _texts(values)]


def _name(text: str) -> str | Malformed:
    problem = name_problem(text)
    return text if problem is None else Malformed(problem)


def _texts(values: pa.Array) -> list[str | Malformed | None]:
    if not is_text(values.type):
        return [None if value is None else str(value) for value in values.to_pylist()]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return [_text(value) for value in values]


def _text(value: pa.Scalar) -> str | Malformed | None:
    try:
        text: str | None = value.as_py()
    except UnicodeDecodeError:
        return Malformed("is not valid UTF-8")
    return text


def _times(values: pa.Array) -> list[datetime | Malformed | None]:
    if is_text(values.type):
        return [_parsed(value) for value in _texts(values)]
    if not pa.types.is_timestamp(values.type):
        return [None] * len(values)
    per_second = _PER_SECOND[values.type.unit]
    # Arrow counts from 1970 in UTC when the type has a zone; without one we take it as UTC.
    return [_moment(count, per_second) for count in values.cast(pa.int64()).to_pylist()]


def _moment(count: int | None, per_second: int) -> datetime | Malformed | None:
    """Exact to the microsecond; nanoseconds are cut off, never rounded into the future."""
    if count is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)
    except OverflowError:
        return Malformed("lies outside the years 1 to 9999")


def _parsed(text: str | Malformed | None) -> datetime | Malformed | None:
    if text is None or isinstance(text, Malformed):
        return text
    # A bare date would be read as midnight, and a day is not a moment.
    if len(text) <= len("2026-01-01"):
        return Malformed(f"{text[:40]!r} is not an ISO 8601 date and time")
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return Malformed(f"{text[:40]!r} is not an ISO 8601 date and time")
