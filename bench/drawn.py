"""Labelled images of our own, for machines without others: python -m bench.drawn FILE.parquet

The scenes of the demo, shuffled, as a Parquet file after the feed's contract with a column `label`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.demo.scenes.catalog import SCENES, jpeg, render

#: As many classes as the sets that figures are usually made with.
CLASSES = 10


def write_scenes(path: Path, images: int, *, classes: int = CLASSES, seed: int = 0) -> Path:
    """So many images, as many of each class, in an order that does not tell the class."""
    names = list(SCENES)[:classes]
    order = np.random.default_rng(seed).permutation(images)
    labels = [names[number % len(names)] for number in order]
    columns = {
        "image_id": [f"scene-{number:07d}" for number in order],
        "captured_at": pa.array(np.arange(images) * 1_000_000, pa.timestamp("us", "UTC")),
        "source_id": [f"cam-{number % 4}" for number in order],
        "image": [
            jpeg(render(label, (seed, int(number))))
            for number, label in zip(order, labels, strict=True)
        ],
        "label": labels,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Complete under its name or not there: whoever finds the file does not draw it again.
    unfinished = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.table(columns), unfinished, row_group_size=256)
    return unfinished.replace(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=CLASSES)
    given = parser.parse_args(arguments)
    if not 1 <= given.classes <= len(SCENES):
        parser.error(f"--classes: there are {len(SCENES)} kinds of scene")
    print(f"{write_scenes(given.path, given.images, classes=given.classes)}: {given.images} images")


if __name__ == "__main__":
    main()
