"""Small things to ingest, and what came of them."""

from __future__ import annotations

import io
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns, check_schema

OLD = 1_700_000_000
"""A time of files that nobody is writing any more."""


def jpeg(seed: int = 0, side: int = 32, exif: Image.Exif | None = None) -> bytes:
    """A small picture, another one for each seed."""
    coarse = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), dtype=np.uint8)
    out = io.BytesIO()
    picture = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    picture.save(out, "JPEG", quality=90, exif=exif or Image.Exif())
    return out.getvalue()


def put(path: Path, data: bytes, *, at: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))
    return path


def cameras(folder: Path, count: int, sources: int = 2) -> dict[str, bytes]:
    """``count`` images in ``sources`` folders; by their paths."""
    made = {f"cam-{i % sources + 1}/{i:05d}.jpg": jpeg(i) for i in range(count)}
    for name, data in made.items():
        put(folder / name, data)
    return made


def rows(feed: Path) -> list[dict[str, Any]]:
    """Every row that a reader of the feed would see, and the proof that it may."""
    found: list[dict[str, Any]] = []
    for file in FeedStorage.at(feed).list() if feed.exists() else ():
        table: pa.Table = pq.read_table(feed / file.path)
        check_schema(table.schema, Columns(), where=file.path)
        found += table.to_pylist()
    return found


def images(feed: Path) -> dict[str, bytes]:
    """Bytes by image_id, with a complaint about doubles."""
    found = rows(feed)
    by_id = {f"{row['image_id']}": row["image"] for row in found}
    assert len(by_id) == len(found), "an image is in the feed twice"
    return by_id


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
