"""``conclad verdicts``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from monitor.cli.geo_export import write_geojson, write_geoparquet
from monitor.cli.options import Moment, with_config
from monitor.config.load import Loaded
from monitor.feed.feed_storage import FeedStorage
from monitor.jobs.early_checks import check_folder_is_writable
from monitor.jobs.from_config import open_existing_store
from monitor.store.read_verdicts import STANDING, VERDICT_WORDS, read_verdicts

Batches = Iterable[pa.RecordBatch]


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "jsonl", "geojson", "geoparquet"]),
    default="csv",
    show_default=True,
    help="How the table is written; geojson and geoparquet hold the tiles of scenes alone.",
)
@click.option("--source", help="Only images of this source.")
@click.option("--since", type=Moment(), help="Only images captured at this moment or later.")
@click.option("--until", type=Moment(), help="Only images captured before this moment.")
@click.option("--class", "class_", metavar="CLASS", help="Only images of this class: id or name.")
@click.option(
    "--verdict",
    type=click.Choice(VERDICT_WORDS),
    help="Only images with this settled verdict; novel and known also mean the immediate verdict "
    "of images that are not settled yet.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; without it the table goes to stdout.",
)
@with_config
def verdicts(
    form: str,
    source: str | None,
    since: datetime | None,
    until: datetime | None,
    class_: str | None,
    verdict: str | None,
    out: Path | None,
    loaded: Loaded,
) -> None:
    """Write verdicts, immediate and settled, as one table.

    One row for each image, in the order of the feed, with the last settled verdict beside the
    immediate one and classes by id and today's name. Reads the state alone: the monitor may be
    running or not.
    """
    if out is None and form.endswith("parquet") and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for a terminal: name a file with --out")
    if out is not None:
        check_folder_is_writable(out.parent, "name another file with --out")
    with open_existing_store(loaded.config) as store:
        found = read_verdicts(
            store, source=source, since=since, until=until, class_=class_, verdict=verdict
        )
        with _sink(out) as sink:
            if form in GEO_WRITERS:
                feed = FeedStorage.at(loaded.config.feed.path)
                rows = GEO_WRITERS[form](found, feed, sink)
            else:
                rows = WRITERS[form](found, sink)
    if out is not None:
        click.echo(f"{out}: {rows:,} verdicts", err=True)


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


def _parquet(found: Batches, sink: IO[bytes]) -> int:
    with pq.ParquetWriter(sink, STANDING, compression="zstd") as writer:
        return _each(found, writer.write_batch)


def _csv(found: Batches, sink: IO[bytes]) -> int:
    with pacsv.CSVWriter(sink, STANDING) as writer:
        return _each(found, writer.write_batch)


def _jsonl(found: Batches, sink: IO[bytes]) -> int:
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


WRITERS: dict[str, Callable[[Batches, IO[bytes]], int]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
}

GEO_WRITERS: dict[str, Callable[[Batches, FeedStorage, IO[bytes]], int]] = {
    "geojson": write_geojson,
    "geoparquet": write_geoparquet,
}
