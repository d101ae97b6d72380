"""Writes small feeds of handwritten digits, which come with scikit-learn, for `make demo`.

    python scripts/demo_images.py FOLDER

``labelled.parquet`` holds the digits 0 to 5, ``feed/*.parquet`` other images of all ten, and
``all.parquet`` everything with its label.
"""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits

KNOWN = tuple(str(digit) for digit in range(6))
# Of 1,797 images: enough for figures that mean something, few enough for a minute on two cores.
PER_DIGIT = 120
LABELLED = 70
START = datetime(2026, 1, 1, tzinfo=UTC)


def png(pixels: np.ndarray) -> bytes:
    """An 8 × 8 digit with values up to 16, enlarged so that a backbone sees strokes."""
    image = Image.fromarray((255 - pixels * 15.9).astype(np.uint8)).resize((96, 96))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def table(rows: list[tuple[int, str, bytes]]) -> pa.Table:
    return pa.table(
        {
            "image_id": [f"digit-{number:04d}" for number, _, _ in rows],
            "captured_at": pa.array(
                [START + timedelta(minutes=number) for number, _, _ in rows],
                pa.timestamp("us", "UTC"),
            ),
            "source_id": [f"desk-{number % 2 + 1}" for number, _, _ in rows],
            "image": pa.array([image for _, _, image in rows], pa.binary()),
            "label": [label for _, label, _ in rows],
        }
    )


def main(folder: Path) -> None:
    digits = load_digits()
    labels = [str(digit) for digit in digits.target]
    labelled, others = [], []
    for digit in sorted(set(labels)):
        chosen = [i for i, label in enumerate(labels) if label == digit][:PER_DIGIT]
        rows = [(i, digit, png(digits.images[i])) for i in chosen]
        known = LABELLED if digit in KNOWN else 0
        labelled += rows[:known]
        others += rows[LABELLED:]
    others.sort(key=lambda row: row[0])
    (folder / "feed").mkdir(parents=True, exist_ok=True)
    pq.write_table(table(labelled), folder / "labelled.parquet")
    half = len(others) // 2
    pq.write_table(table(others[:half]), folder / "feed" / "morning.parquet")
    pq.write_table(table(others[half:]), folder / "feed" / "evening.parquet")
    everything = [(i, label, png(digits.images[i])) for i, label in enumerate(labels)]
    pq.write_table(table(everything[: 10 * PER_DIGIT]), folder / "all.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
