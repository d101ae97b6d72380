"""Where on Earth the images of a feed lie, from the columns that `conclad ingest` gives tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from monitor.feed.feed_storage import FeedStorage

DEGREES = ("west", "south", "east", "north")
COLUMNS = ("scene", "crs", "min_x", "min_y", "max_x", "max_y", *DEGREES)


@dataclass(frozen=True, slots=True)
class TilePlaces:
    """Of each row of a file that was asked for; None where it is no tile."""

    rows: tuple[dict[str, Any] | None, ...]


def tile_places(feed: FeedStorage, file: str, rows: Sequence[int]) -> TilePlaces:
    """Read the places of some rows of a file, and none of its images."""
    with feed.open(file) as handle:
        parquet = pq.ParquetFile(handle)
        if not set(COLUMNS) <= set(parquet.schema_arrow.names):
            return TilePlaces((None,) * len(rows))
        found = parquet.read(columns=list(COLUMNS)).take(list(rows)).to_pylist()
    return TilePlaces(tuple(row if row["west"] is not None else None for row in found))
