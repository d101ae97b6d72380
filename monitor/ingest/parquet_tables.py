"""Parquet that others wrote: Hugging Face datasets, or files of a feed.

Hugging Face keeps images as struct<bytes, path>, labels as numbers, and the names of the numbers in
the schema's metadata. The bytes go on as they are, the labels as names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.errors import ContractError
from monitor.feed.input_contract import Columns, Row, check_schema, is_binary, plain_type, rows_of
from monitor.ingest.errors import Unreadable
from monitor.ingest.image_files import picture_of
from monitor.ingest.image_names import Reading, name_image, whole_file
from monitor.ingest.reader_items import Finished, Handed, Item, Known, LeftOut
from monitor.ingest.source_files import SourceFile, Stamp

ROWS_AT_ONCE = 64
"""Of 10 MB each these are 640 MB, and cameras' images are a tenth of that."""

_IMAGES = ("image", "img", "jpg", "png", "webp")
_LABELS = ("label", "labels", "fine_label", "class")
_ROW_ID = "_ingest_row"


def read_table(file: SourceFile, stamp: Stamp, reading: Reading) -> Iterator[Handed]:
    """Every row with an image, in order; rows that the journal knows are passed over."""
    try:
        with pq.ParquetFile(file.path) as table:
            yield from _rows(table, file, stamp, reading)
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(f"{file.path}: is not whole Parquet ({error}); copy it again") from error
    except ContractError as error:
        raise Unreadable(str(error)) from error
    yield Finished(whole_file(file, stamp, reading.options))


def _rows(
    table: pq.ParquetFile, file: SourceFile, stamp: Stamp, reading: Reading
) -> Iterator[Handed]:
    schema = table.schema_arrow
    columns = _columns(schema, file.path)
    has_ids = columns.image_id != _ROW_ID
    full = schema if has_ids else schema.append(pa.field(_ROW_ID, pa.int64()))
    layout = check_schema(full, columns, where=file.path)
    names = class_names(schema, columns.label)
    wanted = [leaf for leaf in layout.leaves() if leaf != _ROW_ID]
    first = 0
    for batch in table.iter_batches(ROWS_AT_ONCE, columns=wanted):
        rows = range(first, first + batch.num_rows)
        if not has_ids:
            batch = batch.append_column(_ROW_ID, pa.array(rows, pa.int64()))
        for row in rows_of(batch, layout, first, ""):
            item = Item.of(file.path, str(stamp), str(row.row))
            if reading.is_known(item):
                yield Known()
                continue
            member = f"{row.row:06d}" if not has_ids else str(row.image_id)
            where = f"{file.path}, row {row.row}"
            if not isinstance(row, Row):
                yield LeftOut(where, row.detail)
                continue
            # A row has no path, so a pattern speaks of the file.
            named = name_image(file, reading.options)
            if isinstance(named, LeftOut):
                yield named
                return
            label = names.get(row.label, row.label) if row.label is not None else None
            named = replace(
                named,
                image_id=member if has_ids else f"{named.image_id}#{member}",
                source_id=reading.options.source_id or row.source_id or named.source_id,
                label=label or named.label,
                time=row.captured_at or named.time,
            )
            yield picture_of(item, named, row.image, where, reading)
        first += batch.num_rows


def class_names(schema: pa.Schema, column: str) -> dict[str, str]:
    """What the numbers of a label column mean, if the schema says so.

    >>> info = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    >>> schema = pa.schema([("label", pa.int64())], {"huggingface": json.dumps(info)})
    >>> class_names(schema, "label")
    {'0': 'cat', '1': 'dog'}
    """
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        names = info["info"]["features"][column]["names"]
        return {str(number): str(name) for number, name in enumerate(names)}
    except (KeyError, TypeError, ValueError):
        return {}


def _columns(schema: pa.Schema, where: str) -> Columns:
    held = {field.name: plain_type(field.type) for field in schema}
    images = [name for name in (*_IMAGES, *held) if name in held and _holds_images(held[name])]
    if not images:
        raise ContractError(
            f"{where}: no column holds images (found: {', '.join(held) or 'none'}); ingest reads "
            "binary columns and struct<bytes, path>"
        )
    return Columns(
        image_id="image_id" if "image_id" in held else _ROW_ID,
        image=images[0],
        label=next((name for name in _LABELS if name in held), "label"),
    )


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and is_binary(plain_type(kind.field(at).type))
    return is_binary(kind)
