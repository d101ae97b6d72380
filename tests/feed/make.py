"""Small feeds and images for the tests of this room."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader, ReadRows
from monitor.feed.feed_storage import FeedFile, FeedStorage


def picture(width: int = 32, height: int = 24, seed: int = 0) -> Image.Image:
    """Smooth colours with a red top left corner, so that turning and cropping can be seen."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    image.paste((255, 0, 0), (0, 0, max(1, width // 4), max(1, height // 4)))
    return image


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def table(rows: int, *, source: str = "cam-7", image: bytes = b"\xff\xd8\xff image") -> pa.Table:
    return pa.table(
        {
            "image_id": pa.array([f"{source}/{row}" for row in range(rows)], pa.string()),
            "captured_at": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "source_id": pa.array([source] * rows, pa.string()),
            "image": pa.array([image + str(row).encode() for row in range(rows)], pa.binary()),
        }
    )


def write(
    folder: Path, name: str, content: pa.Table, **options: Any
) -> tuple[FeedStorage, FeedFile]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, **options)
    source = FeedStorage.at(folder)
    return source, source.stat(name)


def read_batch(
    source: FeedStorage, planned: PlannedBatch, *, default_source: str | None = None
) -> ReadRows:
    """One batch by itself, with a reader of its own."""
    with BatchReader(source, default_source=default_source) as reader:
        return reader.read(planned)
