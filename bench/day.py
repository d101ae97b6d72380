"""A day with a restart every hour: python -m bench.day [--hours 24] [--images 2500].

Feed time is made up: each committed batch moves the clock on, so that the images of an hour take
an hour of it. Every hour everything ends and starts again (monitor, workers, metrics, desk, and Ray
with ``--address local``), the embedder is lost once in its middle, and every third hour ends with
SIGKILL instead of SIGTERM, in a process of its own. All other hours run in this process, so that
whatever an end leaves behind adds up here: memory, descriptors, threads, children, files.

Features come from a table. New classes appear after a third and two thirds of the day, and an
oracle names them. Afterwards every image must have one verdict, and the account must add up.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from actors.periodic_tasks import Observer
from actors.run_monitor import Summary, run, services, summarise
from bench.soak import DIMENSION, KNOWN, judge
from bench.standins import Table, configuration, table_of_classes, write_numbered
from monitor.backbones.engine import Engine, Images
from monitor.config import Config
from monitor.outages import Outages
from monitor.store import Store, check
from monitor.store.database import DATABASE_FILE
from tests.actors.engines import Around

KEPT_HOURS = 4
"""Features of settled pools; a day is too short to see those of three days go."""
KILLED_EVERY = 3
NEWCOMERS = (1 / 3, 2 / 3)

_spawned = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class Clock:
    """Feed time, kept in a file so that it goes on in the next process."""

    path: Path

    def __call__(self) -> datetime:
        return datetime.fromisoformat(self.path.read_text())

    def move(self, by: timedelta) -> None:
        hidden = self.path.with_suffix(".new")
        hidden.write_text((self() + by).isoformat())
        hidden.replace(self.path)


@dataclass(frozen=True, slots=True)
class Hour:
    """How many batches it has, and how many are done at its end."""

    batches: int
    due: int


class HourEnd:
    """Moves the clock with each batch, and ends the hour when all of it is committed."""

    def __init__(
        self, clock: Clock, store: Store, hour: Hour, ends: int, inner: Observer | None
    ) -> None:
        self._clock, self._store, self._hour, self._ends = clock, store, hour, ends
        self._inner = inner
        self._is_over = False

    def observe_stage(self, stage: str, seconds: float) -> None:
        if self._inner is not None:
            self._inner.observe_stage(stage, seconds)
        if stage != "commit" or self._is_over:
            return
        with self._store.reading() as tx:
            done = int(tx.counters.value("batches", "", "done"))
        self._clock.move(timedelta(hours=1) / self._hour.batches)
        if done >= self._hour.due:
            self._is_over = True
            os.kill(os.getpid(), self._ends)

    def show_outages(self, outages: Outages) -> None:
        if self._inner is not None:
            self._inner.show_outages(outages)


@contextmanager
def beside(
    clock: Clock, hour: Hour, ends: int, store: Store, config: Config, say: Callable[[str], None]
) -> Iterator[HourEnd]:
    with services(store, config, say) as inner:
        yield HourEnd(clock, store, hour, ends, inner)


def losing_engine(path: Path, mark: Path, at: int, config: Config) -> Engine:
    """Features from a table, on a device that breaks once in an hour, in the middle of it."""
    calls = iter(range(1_000_000))
    broken: list[Exception] = []

    def before(_: Images) -> None:
        if next(calls) == at and not mark.exists():
            mark.touch()
            broken.append(RuntimeError("CUDA error: an illegal memory access was encountered"))
        if broken:
            raise broken[0]

    return Around(Table(path), before)


def run_hour(config: Config, folder: Path, hour: Hour, ends: int) -> Summary:
    mark = folder / "broken"
    mark.unlink(missing_ok=True)
    clock = Clock(folder / "clock")
    return run(
        config,
        open_engine=partial(losing_engine, folder / "features.npy", mark, hour.batches // 2),
        services=partial(beside, clock, hour, ends),
        clock=clock,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--images", type=int, default=2500, help="in an hour")
    parser.add_argument("--batches", type=int, default=100, help="in an hour")
    parser.add_argument("--address", default="none", choices=("none", "local"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = configuration(
            folder,
            f"run.address={given.address}",
            f"feed.batch_rows={given.images // given.batches}",
            "run.embedder_cpus=1",
            f"pools.size={given.images // 2}",
            "labels.oracle_column=label",
            "labels.per_week=100000",
            f"pools.keep_features_hours={KEPT_HOURS}",
            f"metrics.port={_free_port()}",
            f"desk.port={_free_port()}",
        )
        (folder / "clock").write_text(datetime.now(UTC).isoformat())
        files = make_day(folder, given.hours, given.images, config)
        lines: list[dict[str, float]] = []
        for hour in range(given.hours):
            (folder / "feed").mkdir(exist_ok=True)
            files[hour].rename(folder / "feed" / files[hour].name)
            now = Hour(given.batches, (hour + 1) * given.batches)
            if hour % KILLED_EVERY == KILLED_EVERY - 1:
                killed = _spawned.Process(
                    target=run_hour, args=(config, folder, now, signal.SIGKILL)
                )
                killed.start()
                killed.join()
                assert killed.exitcode == -signal.SIGKILL, f"it ended with {killed.exitcode}"
            else:
                run_hour(config, folder, now, signal.SIGTERM)
            lines.append(measure(config, hour + 1, given.images))
        for sentence in judge(lines):
            print(sentence, flush=True)
        with Store.open(config.state.dir) as store:
            assert not [finding for finding in check(store) if finding.severity == "error"]
            summary = summarise(store)
    total = sum(summary.images.values())
    assert total == given.hours * given.images, "images were lost"
    print(
        f"{total} images, each with one verdict; pools {summary.pools}, {summary.labels} labels, "
        f"discovered {', '.join(summary.discovered) or 'nothing'}; {summary.unaccounted} "
        "unaccounted for"
    )


def make_day(folder: Path, hours: int, images: int, config: Config) -> list[Path]:
    """A file for each hour, not in the feed yet; each newcomer is a twentieth of what follows."""
    names, by_class, known = table_of_classes(
        folder, config, known=KNOWN, new=len(NEWCOMERS), dimension=DIMENSION
    )
    rng = np.random.default_rng(0)
    files: list[Path] = []
    for hour in range(hours):
        drawn = rng.choice(known, images)
        for number, share in enumerate(NEWCOMERS):
            if hour >= share * hours:
                new = rng.choice(by_class[KNOWN + number], images)
                drawn = np.where(rng.random(images) < 0.05, new, drawn)
        files.append(
            write_numbered(
                folder / "later" / f"{hour:03d}.parquet",
                drawn.tolist(),
                first_id=hour * images,
                labels=[names[i] for i in drawn],
                source=f"cam-{hour % 7}",
            )
        )
    return files


def measure(config: Config, hours: int, images: int) -> dict[str, float]:
    """What this process holds, and what the state does, after an hour."""
    gc.collect()
    state = Path(config.state.dir)
    with Store.open(state) as store:
        summary = summarise(store)
    done = sum(summary.images.values())
    assert (done, summary.unaccounted, summary.pending) == (hours * images, 0, 0), summary
    assert summary.quarantined == {"files": 0, "batches": 0, "images": 0}
    database = sum(p.stat().st_size for p in state.glob(f"{DATABASE_FILE}*"))
    others = [p for p in state.rglob("*") if p.is_file() and DATABASE_FILE not in p.name]
    status = Path("/proc/self/status").read_text()
    line: dict[str, Any] = {
        "images": done,
        "memory MB": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "children": _children(),
        "database bytes an image": database / done,
        "other files": len(others),
    }
    if hours == 1:
        print("hour | " + " | ".join(line), flush=True)
    shown = " | ".join(f"{value:,.0f}" for value in line.values())
    print(f"{hours} | {shown}   ({time.strftime('%H:%M:%S')})", flush=True)
    return line


def _children() -> int:
    return sum(len(p.read_text().split()) for p in Path("/proc/self/task").glob("*/children"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
