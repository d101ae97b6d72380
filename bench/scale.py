"""What the coordinator and the scorers cost at scale, with stand-ins for the embedders.

    .venv/bin/python -m bench.scale [--images 60000] [--rows 32 256] [--sources 10 1000 10000]
        [--feeds single mixed] [--database postgresql://...] [--known 1000] [--classes]

Two questions, each answered as ratios in one run. Does an image cost the coordinator the same
whether ten sources send or ten thousand, each in files of its own or all mixed? Does scoring grow
with the classes as one product does? And what does a million images take on disk? Features are
drawn, not embedded, and results are pickled and read back, as on their way between processes;
everything else, from listing the feed to merged verdict files, is what `conclad run` does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy

from actors.coordinator import Coordinator
from actors.coordinator_lease import acquire_lease, renew_lease
from actors.periodic_tasks import PeriodicTasks
from actors.worker_pool import DetectorRef, Done
from monitor.config import Config, load
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.input_contract import RowIdentity
from monitor.images.image_stats import STATS
from monitor.jobs.score_batch import EmbeddedBatch
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.worker_tasks import (
    ROLES,
    EmbedBatch,
    InspectPool,
    Role,
    ScoreBatch,
    SettlePool,
    Task,
    UpdaterTools,
)
from monitor.store import NewClass, Store, VersionUpdate, commit_version, compact, recover
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Count
from monitor.store.scored_batches import LABELS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one run: rows of a file and batch, sources, and whether a file mixes them."""

    rows: int
    sources: int
    mixed: bool

    def sources_of(self, file: int) -> list[str]:
        if not self.mixed:
            return [name_of(file % self.sources)] * self.rows
        drawn = np.random.default_rng(file).integers(0, self.sources, self.rows)
        return [name_of(source) for source in drawn.tolist()]


class StandIns:
    """Workers whose work is not the coordinator's; what it takes is counted apart."""

    def __init__(self, detector: Detector, features: np.ndarray, shape: Shape) -> None:
        self._detector, self._features, self._shape = detector, features, shape
        self._updater = UpdaterTools()
        self._queue: deque[tuple[Task, tuple[Any, ...]]] = deque()
        self.seconds = self.work = 0.0
        self.batches = 0

    def start(self) -> Fingerprint:
        return self._detector.fingerprint

    def capacity(self, role: Role) -> int:
        return 64

    def room(self, role: Role) -> int:
        return self.capacity(role) - sum(task.role == role for task, _ in self._queue)

    def submit(self, task: Task, detectors: Sequence[DetectorRef] = (), *features: Any) -> None:
        # The coordinator writes a task, and a worker reads it.
        sent = task if isinstance(task, EmbedBatch | ScoreBatch) else _read(*_written(task))
        self._queue.append((sent, features))

    def wait(self, timeout: float) -> list[Done]:
        began, worked = time.perf_counter(), time.process_time()
        done = [(task, self._do(task, *features)) for task, features in self._queue]
        self._queue.clear()
        if not done:
            time.sleep(min(timeout, 0.01))
        self.seconds += time.perf_counter() - began
        self.work += time.process_time() - worked
        return [Done(task, result()) for task, result in done]

    def _do(self, task: Task, *features: Any) -> Callable[[], Any]:
        """The result as the coordinator will read it; features stay where they are."""
        if isinstance(task, EmbedBatch):
            self.batches += 1
            embedded = self._embed(task.planned)
            return lambda: (0.0, embedded)
        if isinstance(task, ScoreBatch):
            result: Any = task.run(None, self._detector, *features)
        else:
            # The images are known, so nobody is asked.
            assert isinstance(task, InspectPool | SettlePool), f"nobody should {task}"
            result = task.run(self._updater, *([self._detector] * len(task.versions)))
        return partial(_read, *_written(result))

    def _embed(self, spec: PlannedBatch) -> EmbeddedBatch:
        file = int(Path(spec.file.path).stem)
        sources = self._shape.sources_of(file)
        rows = tuple(
            RowIdentity(row, f"{file}-{row}", sources[row], NOON + timedelta(seconds=file))
            for row in range(spec.first_row, spec.first_row + spec.rows)
        )
        start = file * self._shape.rows % (len(self._features) - self._shape.rows)
        features = self._features[start : start + spec.rows]
        stats = np.zeros((spec.rows, len(STATS)), np.float32)
        return EmbeddedBatch(spec, rows, features, stats, ())

    def send(self, number: int, detector: Detector) -> DetectorRef:
        return DetectorRef(number, detector)

    def scale(self, waiting: int) -> None:
        return

    def up(self) -> dict[str, int]:
        return dict.fromkeys(ROLES, 1)

    def starting(self) -> dict[str, int]:
        return {}

    def restarts(self) -> dict[str, int]:
        return {}

    def forget(self) -> None:
        return

    def resume(self) -> None:
        return

    def close(self) -> None:
        self._queue.clear()


def _written(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """As between processes: large arrays beside the rest, as Ray's object store has them."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


def _read(data: bytes, buffers: list[pickle.PickleBuffer]) -> Any:
    return pickle.loads(data, buffers=buffers)  # noqa: S301 - our own bytes


def name_of(source: int) -> str:
    return f"cam-{source:05d}"


def remember(store: Store, sources: int) -> None:
    """The totals that sources leave behind after some weeks: ten counters and a note each."""
    names = [name_of(number) for number in range(sources)]
    with store.transaction() as tx:
        tx.counters.add(
            count
            for source in names
            for count in (
                Count("images", source, "known", 1000.0),
                Count("above", source, "", 20.0),
                Count("expected_above", source, "", 20.0),
                Count("score_ratio_sum", source, "", 700.0),
                *(Count("score_ratio", source, label, 100.0) for label in LABELS[:6]),
            )
        )
        note = {"last_captured_at": NOON.isoformat()}
        tx.notes.set_many("source", dict.fromkeys(names, note))


def make_feed(folder: Path, files: int, rows: int) -> None:
    """Files of some rows, whose images nobody will open."""
    table = pa.table(
        {
            "image_id": [str(row) for row in range(rows)],
            "captured_at": pa.array([NOON] * rows, pa.timestamp("us", "UTC")),
            "source_id": ["cam"] * rows,
            "image": pa.array([b"-"] * rows, pa.binary()),
        }
    )
    folder.mkdir(parents=True)
    first = folder / "00000.parquet"
    pq.write_table(table, first)
    whole = first.read_bytes()
    for number in range(1, files):
        (folder / f"{number:05d}.parquet").write_bytes(whole)


def clusters(
    classes: int, each: int, dimension: int, seed: int = 0
) -> tuple[np.ndarray, Sequence[str]]:
    """Features of classes that lie well apart, each in few directions, as real ones do."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 4, (classes, 1, dimension)).astype(np.float32)
    directions = rng.normal(0, 1, (classes, 5, dimension)).astype(np.float32)
    inside = np.einsum("cne,ced->cnd", rng.normal(0, 1, (classes, each, 5)), directions)
    noise = rng.normal(0, 0.3, (classes, each, dimension))
    features = (centres + inside + noise).astype(np.float32).reshape(-1, dimension)
    return features, [f"class-{c:04d}" for c in range(classes) for _ in range(each)]


def coordinate(
    folder: Path, feed: Path, shape: Shape, detector: Detector, features: np.ndarray, database: str
) -> None:
    """One run over the whole feed; prints what an image cost the coordinator."""
    settings = (
        f"feed.path={feed}",
        f"state.dir={folder}",
        f"feed.batch_rows={shape.rows}",
        # Nobody is there to ask.
        "pools.false_rounds_per_month=0",
        "labels.trickle_per_week=0",
    )
    config: Config = load(overrides=settings, environ={}).config
    with open_store(folder, database) as store:
        classes = [NewClass(c.id, c.name, ClassOrigin.FIT) for c in detector.classes]
        commit_version(store, VersionUpdate("fit:1", detector, None, classes))
        remember(store, shape.sources)
        lease = acquire_lease(store)
        recover(store, lease)
        workers = StandIns(detector, features, shape)
        # What is due by the clock is due by the coordinator's own: its workers share this process.
        periodic = PeriodicTasks(
            store, config, workers, lease, clock=lambda: time.monotonic() - workers.seconds
        )
        fingerprint = workers.start()
        coordinator = Coordinator(
            store, config, workers, lease, fingerprint, once=True, periodic=periodic
        )
        began, worked = time.perf_counter(), time.process_time()
        with renew_lease(store, lease):
            coordinator.run()
        wall = time.perf_counter() - began - workers.seconds
        work = time.process_time() - worked - workers.work
        store.release_lease(lease)
        images = workers.batches * shape.rows
        print(
            f"{shape.rows:>4} rows {'mixed' if shape.mixed else 'single':>6} "
            f"{shape.sources:>7,} sources: {images / work:7,.0f} images/s of a core "
            f"({1e3 * work / workers.batches:6.2f} ms a batch), {images / wall:7,.0f} by the clock",
            flush=True,
        )
        measure_disk(store, images)


@contextmanager
def open_store(folder: Path, database: str) -> Iterator[Store]:
    """SQLite in the folder, or a schema of its own in a PostgreSQL database."""
    if not database:
        with Store.open(folder) as store:
            yield store
        return
    schema = f"scale_{uuid.uuid4().hex[:12]}"
    admin = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://", 1))
    with admin.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA {schema}"))
    try:
        mark = "&" if "?" in database else "?"
        with Store.open(f"{database}{mark}options=-csearch_path%3D{schema}", files=folder) as store:
            yield store
    finally:
        with admin.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP SCHEMA {schema} CASCADE"))
        admin.dispose()


def measure_disk(store: Store, images: int) -> None:
    for kind in ("verdicts", "rejected"):
        compact(store, kind, owner="scale", least_files=2)
    sizes: dict[str, int] = {}
    for entry in store.folder.list():
        room = entry.name.partition("/")[0]
        room = "database" if room.startswith("conclad.db") else room
        sizes[room] = sizes.get(room, 0) + entry.size
    shown = ", ".join(
        f"{room} {sizes[room] / images:.0f}"
        for room in ("verdicts", "features", "database")
        if room in sizes
    )
    print(f"{'':>7}  bytes an image: {shown}", flush=True)


def score(counts: Sequence[int], dimension: int, batch: int, seconds: float) -> None:
    """Time of one image against so many classes, and against what one product predicts."""
    print(f"\nscoring, {dimension} features, batches of {batch}, one thread")
    for number in counts:
        features, labels = clusters(number, 24, dimension)
        detector = Detector.fit(features, labels)
        picked = features[np.random.default_rng(1).integers(0, len(features), batch)]
        detector.score(picked)
        best = float("inf")
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            # The processor's time: on a crowded machine the clock also counts the others.
            began = time.process_time()
            detector.score(picked)
            best = min(best, time.process_time() - began)
        width = sum(mode.components for known in detector.classes for mode in known.modes)
        product = _product(picked, width, seconds)
        print(
            f"{number:>7,} classes  {1e6 * best / batch:8.1f} us an image  "
            f"{1e9 * best / batch / number:6.0f} ns an image and class  "
            f"{best / product:4.1f}x the bare product ({width} directions)",
            flush=True,
        )


def _product(features: np.ndarray, width: int, seconds: float) -> float:
    """The matrix product that any reconstruction needs, alone."""
    weights = np.random.default_rng(0).normal(size=(features.shape[1], width)).astype(np.float32)
    best = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.process_time()
        _ = features @ weights
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=60_000, help="of each of the runs")
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 256], help="of a file")
    parser.add_argument("--sources", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument(
        "--feeds", nargs="+", choices=("single", "mixed"), default=["single", "mixed"]
    )
    parser.add_argument("--database", default="", help="a PostgreSQL URL instead of SQLite")
    parser.add_argument("--known", type=int, default=4, help="classes of the coordinator's runs")
    parser.add_argument("--dimension", type=int, default=1280)
    parser.add_argument("--classes", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    features, labels = clusters(given.known, max(16, 4_000 // given.known), given.dimension)
    detector = Detector.fit(features, labels)
    shuffled = features[np.random.default_rng(2).permutation(len(features))]
    with tempfile.TemporaryDirectory(prefix="scale-") as place:
        for rows in given.rows:
            feed = Path(place) / f"feed-{rows}"
            make_feed(feed, given.images // rows, rows)
            for kind, sources in itertools.product(given.feeds, given.sources):
                shape = Shape(rows, sources, kind == "mixed")
                state = Path(place) / "state"
                coordinate(state, feed, shape, detector, shuffled, given.database)
                shutil.rmtree(state)
    if given.classes:
        score(given.classes, given.dimension, 256, given.seconds)


if __name__ == "__main__":
    main()
