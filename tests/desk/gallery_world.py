"""A state whose feed is there: thousands of images that looked new, and pools with features."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.store import ScoredBatch, Store
from monitor.store.pool_transitions import PoolEvent
from monitor.store.verdict_columns import REJECTED, VERDICTS, features_schema, table
from tests.people import world
from tests.store.building import CAPTURED, DIMENSION, commit_batch, plan_feed

#: Images that the feed's file really holds; rows of the verdicts name them in turn.
PICTURES = 60
KINDS = ("dune", "snow", "ship")
#: Where the features of each kind lie; water is at 0 and forest at 8.
CENTRES = {"dune": (-9, -9, 9, 9), "snow": (20, -9, 20, -9), "ship": (-20, 20, 20, 20)}


def make_feed(folder: Path, rows: int = PICTURES) -> Path:
    """One file of pictures, as an ingest writes it; of many rows, the first sixty in turn."""
    folder.mkdir(parents=True)
    some = [world.picture(KINDS[row % len(KINDS)], row, 320) for row in range(min(rows, PICTURES))]
    pq.write_table(
        pa.table(
            {
                "image_id": [f"{row:05d}" for row in range(rows)],
                "source_id": ["cam-1"] * rows,
                "image": [some[row % len(some)] for row in range(rows)],
            }
        ),
        folder / "a.parquet",
        row_group_size=20,
    )
    return folder


def make(
    folder: Path, *, images: int, novel: int, settled: bool = False, pictures: int = PICTURES
) -> None:
    """A state with one pool of ``images``, of which the first ``novel`` looked new.

    The pool waits to be looked at, so that nothing is asked yet; with ``settled`` it was quiet.
    ``pictures`` is how many rows the feed's file has.
    """
    with Store.open(folder) as store:
        world.fit(store)
        [batch] = plan_feed(store, "a.parquet", rows=images, size=images)
        with store.transaction() as tx:
            pool = tx.pools.open().id
        commit_batch(store, _scored(batch.id, images, novel, pool, pictures))
        with store.transaction() as tx:
            tx.pools.apply(pool, PoolEvent.FILLED)
            if settled:
                tx.pools.apply(pool, PoolEvent.FOUND_CALM)
            tx.notes.set("monitor", "coordinator", {"seen_at": tx.now.isoformat()})


def kind_of(row: int) -> str:
    return KINDS[row % len(KINDS)]


def _scored(batch: int, images: int, novel: int, pool: int, pictures: int) -> ScoredBatch:
    rng = np.random.default_rng(0)
    rows = range(images)
    centres = np.array([CENTRES[kind_of(row)] if row < novel else (0,) * 4 for row in rows])
    features = (centres + rng.normal(0, 1, (images, DIMENSION))).astype(np.float32)
    ratios = [1.05 + (row % 90) / 60 if row < novel else 0.5 for row in rows]
    common = {
        "image_id": [f"{row:05d}" for row in rows],
        "source_id": [f"cam-{row % 3 + 1}" for row in rows],
        "captured_at": [CAPTURED + timedelta(minutes=row) for row in rows],
        "score": ratios,
        "score_ratio": ratios,
        "nearest_class": ["c2" if row % 2 else "c1" for row in rows],
        "file": ["a.parquet"] * images,
        "row": [row % pictures for row in rows],
    }
    verdicts = {
        **common,
        "p_known": np.full(images, 0.01, np.float32),
        "nearest_class_name": ["water" if row % 2 else "forest" for row in rows],
        "verdict": ["novel" if row < novel else "known" for row in rows],
        "detector_version": [1] * images,
    }
    return ScoredBatch(
        batch_id=batch,
        detector_version=1,
        verdicts=table(VERDICTS, verdicts),
        rejected=table(REJECTED, {"file": [], "row": [], "reason": []}),
        features=table(features_schema(DIMENSION), {**common, "features": features}),
        pool_id=pool,
    )
