"""Small feeds of coloured textures, which the tiny backbone tells apart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from monitor.config import Config, load

COLOURS = {
    "water": (30, 60, 160),
    "forest": (20, 110, 30),
    "sand": (210, 180, 120),
    "snow": (240, 245, 250),
}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def picture(kind: str, seed: int, size: int = 32) -> bytes:
    """A PNG of one colour with noise; the same for the same arguments."""
    rng = np.random.default_rng([seed, sorted(COLOURS).index(kind)])
    pixels = np.asarray(COLOURS[kind]) + rng.normal(0, 12, (size, size, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_feed(
    path: Path,
    kinds: Sequence[str],
    *,
    first_id: int = 0,
    source: str = "cam-1",
    images: Sequence[bytes | None] | None = None,
    row_group_size: int | None = None,
) -> Path:
    """One Parquet file with an image of each kind; ids count up from ``first_id``."""
    ids = range(first_id, first_id + len(kinds))
    table = pa.table(
        {
            "image_id": [f"{i:06d}" for i in ids],
            "captured_at": pa.array(
                [NOON + timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")
            ),
            "source_id": pa.array([source] * len(kinds)).dictionary_encode(),
            "image": pa.array(
                images or [picture(kind, i) for kind, i in zip(kinds, ids, strict=True)],
                pa.binary(),
            ),
            "label": list(kinds),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def config_for(folder: Path, *overrides: str) -> Config:
    """The tiny backbone on torch, and the state below ``folder``."""
    ours = ["backbone.name=tiny", "backbone.engine=torch", f"state.dir={folder / 'state'}"]
    empty = folder / "empty.yaml"
    empty.touch()
    return load(empty, overrides=[*ours, *overrides], environ={}).config
