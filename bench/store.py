"""What a commit costs: batches per second, and whether the cost grows with the state.

    python -m bench.store [--rows 16] [--rounds 12] [--batches 200000] [--database URL]

Commits scored batches with spooled features of 1,280 numbers, as the monitor does, and prints
batches per second by how many share a transaction; then the cost per batch with 10 and with
10,000 sources, and with an empty and a long ledger, interleaved in one run, medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlalchemy import insert

from monitor.store import ScoredBatch, Store, commit_batches
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import Batch, Count, FileStat
from monitor.store.tables import batches, files, seen
from monitor.store.verdict_columns import REJECTED, VERDICTS, features_schema, table

DIMENSION, GROUP = 1280, 16
NOW = datetime(2024, 5, 17, tzinfo=UTC)

#: What the monitor counts per source and batch in addition to the images.
COUNTERS = [("above", ""), ("expected_above", ""), ("score_ratio_sum", "")] + [
    ("score_ratio", bucket) for bucket in ("0.5", "0.75", "1", "1.25")
]

_numbers = itertools.count()
_places = itertools.count()


@dataclass(frozen=True)
class State:
    """A store with a filling pool, and the sources its batches come from."""

    store: Store
    pool: int
    sources: int
    rows: int


def open_state(folder: Path, url: str | None, *, sources: int, rows: int) -> State:
    place = folder / f"state-{next(_places)}"
    store = Store.open(url or place, files=place)
    with store.transaction() as tx:
        tx.counters.add(
            Count(name, f"cam-{source}", label, 1.0)
            for source in range(sources)
            for name, label in COUNTERS
        )
        return State(store, tx.pools.open().id, sources, rows)


def plan(state: State, count: int) -> list[Batch]:
    """The next ``count`` batches of the ledger, one file for each hundred of them."""
    rows = state.rows
    found: list[Batch] = []
    with state.store.transaction() as tx:
        for start in range(0, count, 100):
            cut = min(100, count - start)
            path = f"feed/{next(_numbers):09}.parquet"
            (file,) = tx.files.register([FileStat(path, 1, 1)]).new
            found += tx.files.plan(file.id, cut * rows, [(n * rows, rows) for n in range(cut)])
    return found


def scored(state: State, batch: Batch, rng: np.random.Generator) -> ScoredBatch:
    rows, source = state.rows, f"cam-{rng.integers(state.sources)}"
    ratios = rng.random(rows, dtype=np.float32)
    common = {
        "image_id": [f"frame-{batch.id:09}-{row:05}" for row in range(rows)],
        "source_id": [source] * rows,
        "captured_at": [NOW] * rows,
        "score": ratios,
        "score_ratio": ratios,
        "nearest_class": ["class-1"] * rows,
        "file": [f"feed/{batch.file_id:09}.parquet"] * rows,
        "row": range(batch.first_row, batch.first_row + rows),
    }
    judged = {
        "p_known": np.full(rows, 0.5, np.float32),
        "verdict": ["known"] * rows,
        "detector_version": [1] * rows,
    }
    features = rng.random((rows, DIMENSION), dtype=np.float32)
    return ScoredBatch(
        batch_id=batch.id,
        detector_version=1,
        verdicts=table(VERDICTS, {**common, **judged}),
        rejected=pa.Table.from_pylist([], schema=REJECTED),
        features=table(features_schema(DIMENSION), {**common, "features": features}),
        pool_id=state.pool,
        counts=[Count(name, source, label, 1.0) for name, label in COUNTERS],
    )


def seconds(state: State, group: int, calls: int, rng: np.random.Generator) -> float:
    """Wall time per batch, committing ``calls`` groups."""
    work = [scored(state, batch, rng) for batch in plan(state, group * calls)]
    start = time.perf_counter()
    for index in range(0, len(work), group):
        commit_batches(state.store, work[index : index + group])
    return (time.perf_counter() - start) / len(work)


def median_costs(states: Sequence[State], rounds: int) -> list[float]:
    """Seconds per batch of each state, taking turns so that neighbours disturb all alike."""
    rng = np.random.default_rng(0)
    found: list[list[float]] = [[] for _ in states]
    for _ in range(rounds):
        for costs, state in zip(found, states, strict=True):
            costs.append(seconds(state, GROUP, 4, rng))
    return [statistics.median(costs) for costs in found]


def lengthen(state: State, count: int, rng: np.random.Generator) -> None:
    """A ledger with ``count`` more finished batches and the digests of their images."""
    with state.store.transaction() as tx:
        (file,) = tx.files.register([FileStat(f"feed/past-{next(_numbers)}.parquet", 1, 1)]).new
        first = tx.files._next_id(batches.c.id)
        tx.connection.execute(files.update().values(state=FileState.DONE))
        for ids in _pieces(range(first, first + count), 10_000):
            tx.connection.execute(insert(batches), [_done(n, file.id, state.rows) for n in ids])
            digests = rng.bytes(16 * len(ids) * state.rows)
            named = sorted(digests[n : n + 16] for n in range(0, len(digests), 16))
            tx.connection.execute(
                insert(seen),
                [{"digest": d, "batch_id": ids[n % len(ids)]} for n, d in enumerate(named)],
            )


def _done(number: int, file_id: int, rows: int) -> dict[str, object]:
    return {
        "id": number,
        "file_id": file_id,
        "first_row": number * rows,
        "rows": rows,
        "state": BatchState.DONE,
        "tries": 1,
        "detector_version": 1,
        "known": rows,
        "novel": 0,
        "rejected": 0,
        "duplicates": 0,
        "settled_at": NOW,
    }


def _pieces(values: range, size: int) -> Iterator[range]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=16, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batches", type=int, default=200_000, help="length of the long ledger")
    parser.add_argument("--database", help="a PostgreSQL URL; without it SQLite")
    options = parser.parse_args()
    if options.database:
        by_group(Path(tempfile.mkdtemp()), options.database, options.rows, options.rounds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        by_group(folder, None, options.rows, options.rounds)
        by_sources(folder, options.rows, options.rounds)
        by_ledger(folder, options.rows, options.rounds, options.batches)


def by_group(folder: Path, url: str | None, rows: int, rounds: int) -> None:
    state = open_state(folder, url, sources=40, rows=rows)
    rng = np.random.default_rng(0)
    print(f"batches of {rows} rows, features of {DIMENSION}, {os.cpu_count()} cores")
    for group in (1, 8, 16, 32):
        cost = statistics.median(seconds(state, group, 4, rng) for _ in range(rounds))
        print(f"{group:3d} in a transaction: {1 / cost:7.0f} batches/s, {rows / cost:8.0f} rows/s")


def by_sources(folder: Path, rows: int, rounds: int) -> None:
    numbers = (10, 10_000)
    states = [open_state(folder, None, sources=n, rows=rows) for n in numbers]
    few, many = median_costs(states, rounds)
    print(
        f"{numbers[0]} sources {1000 * few:.2f} ms a batch, {numbers[1]} sources "
        f"{1000 * many:.2f} ms: ratio {many / few:.2f} ({GROUP} in a transaction)"
    )


def by_ledger(folder: Path, rows: int, rounds: int, length: int) -> None:
    lengths = (0, length // 10, length)
    states = [open_state(folder, None, sources=40, rows=rows) for _ in lengths]
    for state, count in zip(states, lengths, strict=True):
        lengthen(state, count, np.random.default_rng(count))
    costs = median_costs(states, rounds)
    for count, cost in zip(lengths, costs, strict=True):
        print(
            f"{count:7d} batches in the ledger ({count * rows} images): {1000 * cost:.2f} ms a "
            f"batch, ratio {cost / costs[0]:.2f}"
        )


if __name__ == "__main__":
    main()
