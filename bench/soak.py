"""Does anything grow? python -m bench.soak [--images 500000] [--address local].

Small images with features from a table, so that everything but the backbone is under load. Feed
time is made up: each committed batch moves the clock on by half a minute, so half a million
images are the better part of a day. Now and then a new class appears and an oracle names it.

Printed for every window of images: memory of the driver and of its actors, what the object store
holds, the size of the database and of the state beside it, and processor time of
the driver per batch, which does not care how crowded the machine is. At the end each of them is
called flat or growing, from the end of the warm-up to the end of the feed. The database keeps a
digest of each image by design: what must not grow is what an image adds to it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from actors.coordinator_lease import LEASE_TIME
from actors.run_monitor import run
from bench.standins import (
    configuration,
    table_engine,
    table_of_classes,
    write_numbered,
)
from monitor.config import Config
from monitor.outages import Outages
from monitor.store import Store
from monitor.store.database import DATABASE_FILE
from monitor.store.note_and_counter_names import COORDINATOR_LEASE

ROWS_PER_FILE = 5000
#: New classes come after these shares of the feed.
NEWCOMERS = (0.3, 0.6)
KNOWN = 10
#: So many that a batch's features go through the object store; Ray sends small ones along.
DIMENSION = 128
STEP = timedelta(seconds=30)
#: Until then caches fill, and the allocator learns what it needs.
WARM_UP = 0.3
#: What a figure may rise by and still be called flat: memory is handed out in lumps.
FLAT = 1.1


class Clock:
    """Feed time, which only moves when a batch has been committed."""

    def __init__(self) -> None:
        self.now = datetime.now().astimezone()

    def __call__(self) -> datetime:
        return self.now


class Gauge:
    """Counts commits, moves the clock, and prints a line for every window."""

    def __init__(self, store: Store, config: Config, clock: Clock, window: int, rows: int) -> None:
        self._store, self._clock = store, clock
        self._state = Path(config.state.dir)
        self._is_ray = config.run.address != "none"
        self._window, self._rows = window, rows
        self._batches = 0
        self._began = time.monotonic()
        self.lines: list[dict[str, float]] = []
        self._mark = (0, time.process_time())

    def observe_stage(self, stage: str, seconds: float) -> None:
        if stage != "embed":
            return
        self._batches += 1
        self._clock.now += STEP
        with self._store.transaction() as tx:
            held = tx.leases.get(COORDINATOR_LEASE)
            assert held is not None
            tx.leases.renew(held, LEASE_TIME)
        if self._batches * self._rows % self._window < self._rows:
            self._print()

    def show_outages(self, outages: Outages) -> None:
        return

    def _print(self) -> None:
        batches, worked = self._mark
        self._mark = (self._batches, time.process_time())
        each = (self._mark[1] - worked) / max(1, self._batches - batches)
        database = sum(p.stat().st_size for p in self._state.glob(f"{DATABASE_FILE}*"))
        others = [p for p in self._state.rglob("*") if p.is_file() and DATABASE_FILE not in p.name]
        images = self._batches * self._rows
        self.lines.append(
            {
                "images": images,
                "driver MB": _rss("self"),
                **{
                    f"{role} MB": size for role, size in (_actors() if self._is_ray else {}).items()
                },
                "database bytes an image": database / images,
                "other files": len(others),
                "other files MB": _size(others) / 1e6,
                "driver ms a batch": 1000 * each,
            }
        )
        if len(self.lines) == 1:
            print(" | ".join(self.lines[0]), flush=True)
        shown = " | ".join(f"{value:,.1f}" for value in self.lines[-1].values())
        print(f"{shown}   ({time.monotonic() - self._began:.0f} s)", flush=True)


def judge(lines: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """What each column does between the end of the warm-up and the end of the feed."""
    for name in lines[-1]:
        series = [line[name] for line in lines if name in line]
        settled = series[int(WARM_UP * len(series)) :]
        if name == "images" or len(settled) < 4:
            continue
        # Quarters, and the middle of each: one window with a merge in it is not a trend.
        quarter = len(settled) // 4
        first, last = median(settled[:quarter]), median(settled[-quarter:])
        ratio = last / first if first else 1.0
        word = "flat" if ratio <= FLAT else "GROWS"
        yield f"{name}: {first:,.1f} to {last:,.1f}, {word} ({ratio - 1:+.0%})"


def _size(files: list[Path]) -> int:
    total = 0
    for file in files:
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # Merged with others since it was listed.
            continue
    return total


def _rss(process: str) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def _actors() -> dict[str, float]:
    """Memory of our actors by role, in MB: the grandchildren of this process."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                titles[int(folder.name)] = (folder / "cmdline").read_text()
                parents[int(folder.name)] = int(fields[1])
            except OSError:
                continue
    found: dict[str, float] = {}
    for pid, title in titles.items():
        role = title.removeprefix("ray::").partition(".")[0].strip("\0 ")
        ours = parents.get(parents.get(pid, 0)) == os.getpid()
        if title.startswith("ray::") and ours and role in ("Embedder", "Scorer", "Updater"):
            found[role] = _rss(str(pid))
    return {**found, "objects": _objects()}


def _objects() -> float:
    """What the object store holds, as its node last reported."""
    import ray

    cluster: Any = ray
    name = "object_store_memory"
    return float(cluster.cluster_resources()[name] - cluster.available_resources()[name]) / 1e6


@contextmanager
def gauge(
    clock: Clock, window: int, rows: int, store: Store, config: Config, say: Callable[[str], None]
) -> Iterator[Gauge]:
    found = Gauge(store, config, clock, window, rows)
    yield found
    for sentence in judge(found.lines):
        print(sentence, flush=True)


def make(folder: Path, images: int, config: Config) -> None:
    """Known classes all along; each newcomer is a fiftieth of what follows its first day."""
    names, by_class, known = table_of_classes(
        folder, config, known=KNOWN, new=len(NEWCOMERS), dimension=DIMENSION
    )
    rng = np.random.default_rng(0)
    for start in range(0, images, ROWS_PER_FILE):
        count = min(ROWS_PER_FILE, images - start)
        drawn = rng.choice(known, count)
        for number, share in enumerate(NEWCOMERS):
            if start >= share * images:
                where = rng.random(count) < 0.02
                drawn = np.where(where, rng.choice(by_class[KNOWN + number], count), drawn)
        write_numbered(
            folder / "feed" / f"{start:09d}.parquet",
            drawn.tolist(),
            first_id=start,
            labels=[names[i] for i in drawn],
            source=f"cam-{start // ROWS_PER_FILE % 7}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=500_000)
    parser.add_argument("--window", type=int, default=25_000)
    parser.add_argument("--rows", type=int, default=250, help="images of a batch")
    parser.add_argument("--address", default="local")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = configuration(
            folder,
            f"run.address={given.address}",
            f"feed.batch_rows={given.rows}",
            "run.embedder_cpus=1",
            "pools.size=5000",
            "labels.oracle_column=label",
            "labels.per_week=100000",
        )
        make(folder, given.images, config)
        clock = Clock()
        summary = run(
            config,
            once=True,
            open_engine=partial(table_engine, folder / "features.npy"),
            services=partial(gauge, clock, given.window, given.rows),
            clock=clock,
        )
    print(
        f"{sum(summary.images.values())} images, pools {summary.pools}, {summary.labels} labels, "
        f"discovered {', '.join(summary.discovered) or 'nothing'}"
    )


if __name__ == "__main__":
    main()
