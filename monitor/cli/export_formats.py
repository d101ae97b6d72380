"""A table of the state as a file: Parquet, CSV, JSON lines, or tiles for a map."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from monitor.cli.geo_export import write_geojson, write_geoparquet
from monitor.cli.options import Moment
from monitor.config import Config
from monitor.feed.feed_storage import FeedStorage
from monitor.jobs.from_config import check_folder_is_writable, feed_storage_of

_FORMULA = r"^[=+\-@\t\r]"

Batches = Iterable[pa.RecordBatch]
Command = TypeVar("Command", bound=Callable[..., Any])


def with_export(command: Command) -> Command:
    """The options that say which rows are written, how, and where."""
    for option in reversed(
        (
            click.option(
                "--format",
                "form",
                type=click.Choice([*WRITERS, *GEO_WRITERS]),
                default="csv",
                show_default=True,
                help="How the table is written; geojson and geoparquet hold the tiles of scenes "
                "alone.",
            ),
            click.option("--source", help="Only images of this source."),
            click.option(
                "--since", type=Moment(), help="Only images captured at this moment or later."
            ),
            click.option("--until", type=Moment(), help="Only images captured before this moment."),
            click.option(
                "--class", "class_", metavar="CLASS", help="Only images of this class: id or name."
            ),
            click.option(
                "--out",
                type=click.Path(path_type=Path, dir_okay=False),
                help="The file to write; without it the table goes to stdout.",
            ),
        )
    ):
        command = option(command)
    return command


def check_export(form: str, out: Path | None) -> None:
    """Refuse what cannot be written, before anything is read."""
    if out is None and form.endswith("parquet") and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for a terminal: name a file with --out")
    if out is not None:
        check_folder_is_writable(out.parent, "name another file with --out")


def export(
    found: Batches, schema: pa.Schema, what: str, form: str, out: Path | None, config: Config
) -> None:
    """Write the rows, and say how many there were."""
    with _sink(out) as sink:
        if form in GEO_WRITERS:
            feed = feed_storage_of(config)
            rows = GEO_WRITERS[form](found, schema, feed, sink)
        else:
            rows = WRITERS[form](found, schema, sink)
    if out is not None:
        click.echo(f"{out}: {rows:,} {what}", err=True)


@contextlib.contextmanager
def _sink(out: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that has its name once it is whole."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as sink:
            yield sink
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def _parquet(found: Batches, schema: pa.Schema, sink: IO[bytes]) -> int:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        return _each(found, writer.write_batch)


def _csv(found: Batches, schema: pa.Schema, sink: IO[bytes]) -> int:
    with pacsv.CSVWriter(sink, schema) as writer:
        return _each(found, lambda batch: writer.write_batch(_without_formulas(batch)))


def _without_formulas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Texts that a spreadsheet would run get an apostrophe, as in the export of questions."""
    columns = []
    for column in batch.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            is_formula = pc.match_substring_regex(column, _FORMULA)
            apostrophe, nothing = (pa.scalar(text, column.type) for text in ("'", ""))
            quoted = pc.binary_join_element_wise(apostrophe, column, nothing)
            column = pc.if_else(is_formula, quoted, column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _jsonl(found: Batches, schema: pa.Schema, sink: IO[bytes]) -> int:
    def write(batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            line = json.dumps(row, ensure_ascii=False, default=_moment)
            sink.write(line.encode() + b"\n")

    return _each(found, write)


def _each(found: Batches, write: Callable[[pa.RecordBatch], None]) -> int:
    rows = 0
    for batch in found:
        write(batch)
        rows += batch.num_rows
    return rows


def _moment(value: Any) -> str:
    assert isinstance(value, datetime), value
    return value.isoformat()


WRITERS: dict[str, Callable[[Batches, pa.Schema, IO[bytes]], int]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}

GEO_WRITERS: dict[str, Callable[[Batches, pa.Schema, FeedStorage, IO[bytes]], int]] = {
    "geojson": write_geojson,
    "geoparquet": write_geoparquet,
}
