"""Small feeds, scored batches and detectors for the tests of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import select

from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.store import CommittedBatch, ScoredBatch, Store, commit_batches, commit_settled
from monitor.store.atomic_files import is_temporary
from monitor.store.pool_transitions import FINISHED_POOLS, PoolEvent
from monitor.store.records import Batch, FileStat, Lease, PoolSample, Settlement
from monitor.store.snapshots import to_state
from monitor.store.tables import metadata
from monitor.store.verdict_columns import (
    DISCOVERIES,
    REJECTED,
    SETTLED,
    VERDICTS,
    features_schema,
    final_name,
    read_table,
    table,
)

CAPTURED = datetime(2024, 5, 17, 5, 0, tzinfo=UTC)
DIMENSION = 4
FINGERPRINT = Fingerprint.of_features(DIMENSION)


def plan_feed(
    store: Store, path: str = "feed/a.parquet", rows: int = 12, size: int = 4
) -> list[Batch]:
    """Register one file and cut it into batches."""
    with store.transaction() as tx:
        (file,) = tx.files.register([FileStat(path, size=100, mtime_ns=1)]).new
        ranges = [(start, min(size, rows - start)) for start in range(0, rows, size)]
        return tx.files.plan(file.id, rows, ranges)


def scored(
    batch: Batch,
    *,
    images: Sequence[str] | None = None,
    source: str = "cam-1",
    rejected: int = 0,
    pool: int | None = None,
    file: str = "feed/a.parquet",
    version: int = 1,
) -> ScoredBatch:
    """A batch whose last ``rejected`` rows are bad and whose odd rows are novel."""
    rows = list(range(batch.first_row, batch.first_row + batch.rows - rejected))
    names = list(images) if images is not None else [f"{file}:{row}" for row in rows]
    ratios = [1.5 if row % 2 else 0.5 for row in rows]
    common: dict[str, Any] = {
        "image_id": names,
        "source_id": [source] * len(rows),
        "captured_at": [CAPTURED] * len(rows),
        "score": [ratio * 2 for ratio in ratios],
        "score_ratio": ratios,
        "nearest_class": ["class-1"] * len(rows),
        "file": [file] * len(rows),
        "row": rows,
    }
    verdicts = {
        **common,
        "nearest_class_name": ["water"] * len(rows),
        "p_known": np.full(len(rows), 0.5, np.float32),
        "verdict": ["novel" if ratio > 1 else "known" for ratio in ratios],
        "detector_version": [version] * len(rows),
    }
    bad = range(batch.first_row + batch.rows - rejected, batch.first_row + batch.rows)
    features = None
    if pool is not None:
        matrix = np.arange(len(rows) * DIMENSION, dtype=np.float32).reshape(-1, DIMENSION)
        features = table(features_schema(DIMENSION), {**common, "features": matrix})
    return ScoredBatch(
        batch_id=batch.id,
        detector_version=version,
        verdicts=table(VERDICTS, verdicts),
        rejected=table(
            REJECTED,
            {
                "source_id": [source] * len(bad),
                "file": [file] * len(bad),
                "row": list(bad),
                "reason": ["truncated"] * len(bad),
            },
        ),
        features=features,
        pool_id=pool,
    )


def commit_batch(
    store: Store, scored: ScoredBatch, *, lease: Lease | None = None
) -> CommittedBatch:
    """One batch by itself."""
    (committed,) = commit_batches(store, [scored], lease=lease)
    return committed


def sample(batch_id: int, row: int, **changes: Any) -> PoolSample:
    values: dict[str, Any] = {
        "batch_id": batch_id,
        "spool_row": row,
        "image_id": f"image-{batch_id}-{row}",
        "source_id": "cam-1",
        "captured_at": CAPTURED,
        "file": "feed/a.parquet",
        "row": row,
        "score": 2.5,
        "score_ratio": 1.25,
        "nearest_class": "class-1",
        "suggestion": {"kind": "new_class"},
        **changes,
    }
    return PoolSample(**values)


def discoveries(pool: int | None, count: int = 3, class_id: str = "class-9") -> pa.Table:
    return table(
        DISCOVERIES,
        {
            "image_id": [f"image-{n}" for n in range(count)],
            "source_id": ["cam-1"] * count,
            "captured_at": [CAPTURED] * count,
            "class_id": [class_id] * count,
            "class_name": ["dune"] * count,
            "by": ["person"] * count,
            "confidence": [1.0] * count,
            "detector_version": [0] * count,
            "pool": [pool] * count,
            "file": ["feed/a.parquet"] * count,
            "row": list(range(count)),
        },
    )


def settled_rows(
    store: Store, pool_id: int, revision: int = 1, *, images: Sequence[str] = (), **columns: Any
) -> pa.Table:
    """Settled verdicts of a pool's spooled images (or some): what looks new is dune, by spread."""
    with store.reading() as tx:
        names = [final_name(store.folder, member) for member in tx.pools.members(pool_id)]
    wanted = ["image_id", "source_id", "captured_at", "score_ratio"]
    rows = [r for name in names for r in read_table(store.folder, name, wanted).to_pylist()]
    rows = [row for row in rows if not images or row["image_id"] in images]
    new = [row["score_ratio"] > 1 for row in rows]
    values: dict[str, Any] = {
        **{name: [row[name] for row in rows] for name in wanted[:3]},
        "verdict": ["new" if one else "known" for one in new],
        "class_id": ["class-9" if one else "class-1" for one in new],
        "class_name": ["dune" if one else "water" for one in new],
        "probability": [0.9 if one else 0.1 for one in new],
        "by": ["spread" if one else "pool" for one in new],
        "pool": [pool_id] * len(rows),
        "detector_version": [1] * len(rows),
        "revision": [revision] * len(rows),
    }
    values |= {name: [value] * len(rows) for name, value in columns.items()}
    return table(SETTLED, values)


def settle_pool(store: Store, pool_id: int = 1, revision: int = 1, **changes: Any) -> Settlement:
    """End the pool, if nobody has, and settle its images."""
    with store.transaction() as tx:
        if tx.pools.get(pool_id).state not in FINISHED_POOLS:
            tx.pools.apply(pool_id, PoolEvent.FILLED)
            tx.pools.apply(pool_id, PoolEvent.FOUND_CALM)
    rows = settled_rows(store, pool_id, revision, **changes)
    return commit_settled(store, pool_id, revision, rows, reason="the pool has ended")


@cache
def small_detector(seed: int = 0, fingerprint: Fingerprint = FINGERPRINT) -> Detector:
    """A real detector of two classes, small enough to make one wherever it is needed."""
    rng = np.random.default_rng(seed)
    per_class = 20
    features = np.concatenate(
        [rng.normal(centre, 1, size=(per_class, fingerprint.dimension)) for centre in (0, 8)]
    )
    labels = ["water"] * per_class + ["forest"] * per_class
    return Detector.fit(features, labels, fingerprint=fingerprint)


def assert_identical(one: Detector, other: Detector) -> None:
    """Not close but the same, to the last bit, and of the same types."""
    (arrays, meta), (others, other_meta) = to_state(one), to_state(other)
    assert meta == other_meta
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in others.items()
    }


def verdict_ids(store: Store, names: Sequence[str]) -> list[str]:
    """All image ids in these verdict files, in order, duplicates included."""
    return [
        image
        for name in names
        for image in read_table(store.folder, name, ["image_id"]).column(0).to_pylist()
    ]


def dump(store: Store) -> dict[str, Any]:
    """The whole state: every row of every table, and the hash of every published file.

    Without the temporary names under which files waited: they are drawn by lot.
    """
    found: dict[str, Any] = {}
    with store.reading() as tx:
        for one in metadata.sorted_tables:
            columns = [column for column in one.c if column.name != "staged"]
            rows = [tuple(row) for row in tx.connection.execute(select(*columns))]
            found[one.name] = sorted(rows, key=repr)
    skipped = ("conclad.db",)
    for entry in store.folder.list():
        if not is_temporary(entry.name) and not entry.name.startswith(skipped):
            found[entry.name] = store.folder.sha256(entry.name)
    return found
