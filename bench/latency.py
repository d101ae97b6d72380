"""How soon is a new file judged? python -m bench.latency [--rate 200] [--files 60] [--old 20000].

A stand-in device computes so many images a second; files land so often that it is busy half of the
time, each renamed into the feed. Measured from the rename to the first verdict of the file that
is committed, for a monitor that runs and watches. ``--old`` files lie in the feed already, done
long ago. ``--tiny`` embeds with the tiny backbone.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from sqlalchemy import func, select

from actors.event_sentences import MonitorMessage
from actors.run_monitor import run
from bench.standins import blobs, configuration, paced_engine, put_into_use, write_numbered
from monitor.feed.feed_storage import FeedStorage
from monitor.jobs.from_config import open_engine_of
from monitor.novelty.detector import Detector
from monitor.store import Store
from monitor.store.ledger import FilePlan
from monitor.store.records import FileStat
from monitor.store.tables import batches, files

FIRST = 10**6


class Feeder(threading.Thread):
    """Lets files land at their times once the monitor watches, and stops it at the end."""

    def __init__(self, folder: Path, state: Path, count: int, rows: int, pause: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._state = folder, state
        self._count, self._rows, self._pause = count, rows, pause
        self.landed: dict[str, datetime] = {}

    def run(self) -> None:
        self._wait_until_watching()
        began = time.monotonic()
        for number in range(self._count):
            path = self._folder / f"{number:06d}.parquet"
            first = number * self._rows
            written = write_numbered(
                path.with_name(f"_{path.name}"), range(first, first + self._rows), first_id=first
            )
            time.sleep(max(0.0, began + number * self._pause - time.monotonic()))
            written.rename(path)
            self.landed[path.name] = datetime.now(UTC)
        time.sleep(5 * self._pause + 5)
        os.kill(os.getpid(), signal.SIGTERM)

    def _wait_until_watching(self) -> None:
        while True:
            with Store.open(self._state) as store, store.reading() as tx:
                if any(e.kind == "monitor.started" for e in tx.events.after(limit=1000)):
                    return
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="images a second of the device")
    parser.add_argument("--rows", type=int, default=50, help="images of a file")
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--old", type=int, default=0, help="files that are there and done")
    parser.add_argument("--address", default="local")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "feed").mkdir()
        features, names = blobs(10, 20_000)
        np.save(folder / "features.npy", features)
        config = configuration(folder, f"run.address={given.address}", "run.embedder_cpus=1")
        engine = partial(paced_engine, folder / "features.npy", given.rate, 32)
        if given.tiny:
            engine = open_engine_of  # type: ignore[assignment]
        fingerprint = engine(config).fingerprint
        detector = Detector.fit(features[:4000], names[:4000], fingerprint=fingerprint)
        state = Path(config.state.dir)
        put_into_use(state, detector)
        lay_down(folder / "feed", state, given.old)
        pause = 2 * given.rows / given.rate
        feeder = Feeder(folder / "feed", state, given.files, given.rows, pause)
        feeder.start()
        run(config, open_engine=engine, listener=_say)
        seen, waits = (sorted(found) for found in zip(*_waits(state, feeder.landed), strict=True))
    assert len(waits) == given.files, f"{given.files - len(waits)} files have no verdict"
    median, late = waits[len(waits) // 2], waits[int(0.95 * len(waits))]
    print(
        f"{given.files} files of {given.rows} images, one every {pause:g} s, beside {given.old:,} "
        f"that are done: first verdict after "
        f"{median:.2f} s (median), {late:.2f} s (95%), {waits[-1]:.2f} s (slowest); "
        f"seen after {seen[len(seen) // 2]:.2f} s (median), "
        f"{seen[int(0.95 * len(seen))]:.2f} s (95%)"
    )


def lay_down(feed: Path, state: Path, count: int) -> None:
    """Files that the ledger knows as done, all of them links to one."""
    if not count:
        return
    one = write_numbered(feed / "old.parquet", [0], first_id=FIRST)
    an_hour_ago = time.time() - 3600
    os.utime(one, (an_hour_ago, an_hour_ago))
    for number in range(count):
        os.link(one, feed / f"old-{number:06d}.parquet")
    listing = FeedStorage.at(feed).list()
    with Store.open(state) as store, store.transaction() as tx:
        found = tx.files.register([FileStat(f.path, f.size, f.modified_ns) for f in listing])
        tx.files.plan_many([FilePlan(file.id, 0, ()) for file in found.new])


def _say(told: MonitorMessage) -> None:
    print(told.text, flush=True)


def _waits(state: Path, landed: dict[str, datetime]) -> list[tuple[float, ...]]:
    """Seconds until each file was in the ledger, and until its first verdict."""
    with Store.open(state) as store, store.reading() as tx:
        rows = tx.connection.execute(
            select(files.c.path, files.c.first_seen_at, func.min(batches.c.settled_at))
            .join(batches, batches.c.file_id == files.c.id)
            .where(batches.c.settled_at.is_not(None))
            .group_by(files.c.path, files.c.first_seen_at)
        ).all()
    return [
        tuple((moment - landed[Path(path).name]).total_seconds() for moment in moments)
        for path, *moments in rows
    ]


if __name__ == "__main__":
    main()
