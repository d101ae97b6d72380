"""Small images for the examples: scenes from above, drawn again each time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.demo.scenes.catalog import jpeg, render

CLASSES = ["water", "forest", "snow"]


def picture(kind: str, seed: int) -> bytes:
    return jpeg(render(kind, (seed,)))


def class_folders(folder: Path, kinds: Sequence[str], *, each: int) -> None:
    """A folder for each class, as `conclad fit --data` takes it."""
    for kind in kinds:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            (folder / kind / f"{number:04d}.jpg").write_bytes(picture(kind, number))


def feed_file(path: Path, kinds: Sequence[str], *, source: str = "cam-1") -> None:
    """One file of a feed; an image's id ends in what it shows."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    path.parent.mkdir(parents=True, exist_ok=True)
    times = [noon + timedelta(seconds=i) for i in range(len(kinds))]
    columns = {
        "image_id": [f"{i:04d}-{kind}" for i, kind in enumerate(kinds)],
        "captured_at": pa.array(times, pa.timestamp("us", "UTC")),
        "source_id": [source] * len(kinds),
        "image": pa.array([picture(kind, 1000 + i) for i, kind in enumerate(kinds)], pa.binary()),
    }
    pq.write_table(pa.table(columns), path)
