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
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa

from monitor.feed.errors import ContractError


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
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in kinds)


def is_binary(kind: pa.DataType) -> bool:
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
