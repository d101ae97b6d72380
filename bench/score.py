"""Whether `conclad score` needs more memory for more images: python -m bench.score [IMAGES].

Scores 100,000 small images of many files with the tiny backbone, and compares the largest resident
size after the first fifth with that of the first fifth. Prints images/s as well; with a backbone
this small they say what everything around a backbone costs.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from monitor.config import Config, load
from monitor.jobs.fit_detector import fit
from monitor.jobs.progress import JobProgress
from monitor.jobs.score_files import score

IMAGES, ROWS = 100_000, 2_500
COLOURS = {"water": (30, 60, 160), "forest": (20, 110, 30)}

#: The share of a run after which caches are full and the allocator has seen every size.
WARM_UP = 0.2


def jpeg(colour: tuple[int, int, int], seed: int) -> bytes:
    pixels = np.asarray(colour) + np.random.default_rng(seed).normal(0, 12, (32, 32, 3))
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, "JPEG")
    return out.getvalue()


def write(path: Path, images: list[bytes], labels: list[str], first: int) -> None:
    ids = range(first, first + len(images))
    columns = {
        "image_id": [f"{number:09}" for number in ids],
        "captured_at": pa.array(ids, pa.timestamp("us", "UTC")),
        "source_id": [f"cam-{number % 40}" for number in ids],
        "image": images,
        "label": labels,
    }
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=500)


def prepare(folder: Path, count: int) -> Config:
    """A fitted state, and a feed of a few hundred different images over and over."""
    empty = folder / "empty.yaml"
    empty.touch()
    overrides = ["backbone.name=tiny", f"state.dir={folder / 'state'}"]
    config = load(empty, overrides=overrides, environ={}).config
    labels = list(COLOURS) * 100
    images = [jpeg(COLOURS[label], seed) for seed, label in enumerate(labels)]
    write(folder / "labelled" / "0.parquet", images, labels, 0)
    fit(config, [folder / "labelled"])
    for first in range(0, count, ROWS):
        rows = min(ROWS, count - first)
        again = rows // len(images) + 1
        path = folder / "feed" / f"{first:09}.parquet"
        write(path, (images * again)[:rows], (labels * again)[:rows], first)
    return config


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(count: int) -> None:
    marks: dict[int, int] = {}

    def watch(progress: JobProgress) -> None:
        if progress.stage == "score":
            marks[progress.done] = resident()

    with tempfile.TemporaryDirectory() as temporary:
        config = prepare(Path(temporary), count)
        used = time.process_time()
        found = score(config, [Path(temporary) / "feed"], Path(temporary) / "out", progress=watch)
        used = time.process_time() - used
    warm = max(size for done, size in marks.items() if done <= WARM_UP * count)
    end = max(size for done, size in marks.items() if done > WARM_UP * count)
    print(
        f"{found.images} images: {found.images_per_second or 0:.0f} images/s by the clock, ", end=""
    )
    print(f"{found.images / used:.0f} per CPU second")
    print(f"{warm >> 20} MiB after {WARM_UP:.0%}, {end >> 20} MiB at most later: ", end="")
    print(f"growth {end / warm - 1:+.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
