"""Does anything grow? python -m bench.soak [--images 500000] [--address local].

Small images with features from a table, so that everything but the backbone is under load. Feed
time is made up: each committed batch moves the clock on by half a minute, so half a million
images are the better part of a day. Now and then a new class appears and an oracle names it.

Printed for every window of images: memory of the driver and of its actors, what the object store
has ever held at once, the size of the database and of the state beside it, and processor time of
the driver per batch, which does not care how crowded the machine is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np

from actors.holding import LEASE_TIME, NAME
from actors.run import run
from bench.standins import (
    Table,
    blobs,
    configuration,
    put_into_use,
    table_engine,
    write_numbered,
)
from monitor.config import Config
from monitor.novelty.detector import Detector
from monitor.store import Store
from monitor.store.database import DATABASE_FILE

ROWS_PER_FILE = 5000
#: New classes come after these shares of the feed.
NEWCOMERS = (0.3, 0.6)
KNOWN = 10
STEP = timedelta(seconds=30)


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
        self._mark = (0, time.process_time())

    def observe_stage(self, stage: str, seconds: float) -> None:
        if stage != "embed":
            return
        self._batches += 1
        self._clock.now += STEP
        with self._store.transaction() as tx:
            held = tx.leases.get(NAME)
            assert held is not None
            tx.leases.renew(held, LEASE_TIME)
        if self._batches * self._rows % self._window < self._rows:
            self._print()

    def _print(self) -> None:
        batches, worked = self._mark
        self._mark = (self._batches, time.process_time())
        each = (self._mark[1] - worked) / max(1, self._batches - batches)
        database = sum(p.stat().st_size for p in self._state.glob(f"{DATABASE_FILE}*"))
        others = [p for p in self._state.rglob("*") if p.is_file() and DATABASE_FILE not in p.name]
        actors = _actors() if self._is_ray else {}
        print(
            f"{self._batches * self._rows:>8} images {time.monotonic() - self._began:6.0f} s | "
            f"driver {_rss('self')} MB"
            + "".join(f", {role} {size}" for role, size in sorted(actors.items()))
            + f" | database {database >> 20} MB, {len(others)} other files with "
            f"{_size(others) >> 20} MB | {1000 * each:.1f} ms of the driver's processor a batch",
            flush=True,
        )


def _size(files: list[Path]) -> int:
    total = 0
    for file in files:
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # Merged with others since it was listed.
            continue
    return total


def _rss(process: str, kind: str = "VmRSS:") -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(kind)[2].split()[0]) // 1024


def _actors() -> dict[str, int]:
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
    found: dict[str, int] = {}
    for pid, title in titles.items():
        role = title.removeprefix("ray::").partition(".")[0].strip("\0 ")
        ours = parents.get(parents.get(pid, 0)) == os.getpid()
        if title.startswith("ray::") and ours and role in ("Embedder", "Scorer", "Updater"):
            found[role] = _rss(str(pid))
            # The raylet holds the object store: what it ever used of it counts as shared.
            found["objects"] = _rss(str(parents[pid]), "RssShmem:")
    return found


@contextmanager
def gauge(
    clock: Clock, window: int, rows: int, store: Store, config: Config, say: Callable[[str], None]
) -> Iterator[Gauge]:
    yield Gauge(store, config, clock, window, rows)


def make(folder: Path, images: int, config: Config) -> None:
    """Known classes all along; each newcomer is a fiftieth of what follows its first day."""
    features, names = blobs(KNOWN + len(NEWCOMERS), 60_000)
    np.save(folder / "features.npy", features)
    by_class = [np.flatnonzero(np.asarray(names) == name) for name in sorted(set(names))]
    train = np.concatenate([rows[:400] for rows in by_class[:KNOWN]])
    engine = Table(folder / "features.npy")
    detector = Detector.fit(
        features[train], [names[i] for i in train], fingerprint=engine.fingerprint
    )
    put_into_use(Path(config.state.dir), detector)
    known = np.concatenate([rows[400:] for rows in by_class[:KNOWN]])
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
    parser.add_argument("--window", type=int, default=50_000)
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
