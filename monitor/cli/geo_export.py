"""Rows about tiles as GeoJSON and GeoParquet, each tile with its outline in degrees (WGS 84)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.feed_storage import FeedStorage
from monitor.feed.tile_places import COLUMNS, DEGREES, tile_places

Box = tuple[float, float, float, float]

PLACE = [
    *(pa.field(name, pa.string()) for name in COLUMNS[:2]),
    *(pa.field(name, pa.float64()) for name in COLUMNS[2:]),
    pa.field("geometry", pa.binary()),
]
# GeoParquet 1.1; without a crs it is longitude and latitude.
GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {
        "geometry": {"encoding": "WKB", "geometry_types": ["Polygon", "MultiPolygon"]},
    },
}


def tiles(found: Iterable[pa.RecordBatch], feed: FeedStorage) -> Iterator[list[dict[str, Any]]]:
    """The rows about images that lie somewhere, with the columns of their place."""
    for batch in found:
        kept = []
        for file, group in groupby(batch.to_pylist(), key=lambda row: str(row["file"])):
            rows = list(group)
            places = tile_places(feed, file, [row["row"] for row in rows]).rows
            kept += [
                {**row, **place}
                for row, place in zip(rows, places, strict=True)
                if place is not None
            ]
        yield kept


def write_geojson(
    found: Iterable[pa.RecordBatch], schema: pa.Schema, feed: FeedStorage, sink: IO[bytes]
) -> int:
    """A FeatureCollection (RFC 7946), a feature for each tile."""
    count = 0
    sink.write(b'{"type": "FeatureCollection", "features": [')
    for rows in tiles(found, feed):
        for row in rows:
            boxes = outline(row)
            rings = [[corners(box)] for box in boxes]
            geometry = (
                {"type": "Polygon", "coordinates": rings[0]}
                if len(rings) == 1
                else {"type": "MultiPolygon", "coordinates": rings}
            )
            feature = {"type": "Feature", "geometry": geometry, "properties": row}
            line = json.dumps(
                feature, ensure_ascii=False, default=lambda moment: moment.isoformat()
            )
            sink.write((b",\n" if count else b"\n") + line.encode())
            count += 1
    sink.write(b"\n]}\n")
    return count


def write_geoparquet(
    found: Iterable[pa.RecordBatch], schema: pa.Schema, feed: FeedStorage, sink: IO[bytes]
) -> int:
    """A row for each tile, its outline as well-known binary."""
    count = 0
    placed = pa.schema([*schema, *PLACE], metadata={"geo": json.dumps(GEO)})
    with pq.ParquetWriter(sink, placed, compression="zstd") as writer:
        for rows in tiles(found, feed):
            with_outline = [{**row, "geometry": wkb(outline(row))} for row in rows]
            if with_outline:
                writer.write_table(pa.Table.from_pylist(with_outline, placed))
            count += len(rows)
    return count


def outline(row: dict[str, Any]) -> list[Box]:
    """One box, or two for a tile that crosses the 180th meridian.

    >>> outline({"west": 179.0, "south": 0.0, "east": -179.0, "north": 1.0})
    [(179.0, 0.0, 180.0, 1.0), (-180.0, 0.0, -179.0, 1.0)]
    """
    west, south, east, north = (float(row[name]) for name in DEGREES)
    if west <= east:
        return [(west, south, east, north)]
    return [(west, south, 180.0, north), (-180.0, south, east, north)]


def corners(box: Box) -> list[list[float]]:
    """The ring of a box, counter-clockwise and closed."""
    west, south, east, north = box
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def wkb(boxes: list[Box]) -> bytes:
    """Well-known binary, little-endian: a polygon, or several."""
    polygons = [
        struct.pack("<BIII", 1, 3, 1, 5) + b"".join(struct.pack("<2d", *at) for at in corners(box))
        for box in boxes
    ]
    if len(polygons) == 1:
        return polygons[0]
    return struct.pack("<BII", 1, 6, len(polygons)) + b"".join(polygons)
