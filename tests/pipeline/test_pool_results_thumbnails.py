"""What the detector concluded by itself is shown: the least certain of it, once, and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from monitor.novelty.inner_loop import Discovery
from monitor.novelty.pseudo_labeller import AT_THE_END, PseudoLabel
from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.pool_results import (
    MOST,
    attach_thumbnails,
    least_certain,
    next_missing_thumbnails,
    store_thumbnails,
)
from monitor.pipeline.pool_samples import PoolSamples
from monitor.pipeline.worker_tasks import RowThumbnail
from monitor.store import Store, check, purge
from monitor.store.exemplars import exemplars_of, want_pictures
from monitor.store.record_states import ClassOrigin

COUNT = 40
TAKEN = datetime(2024, 5, 17, 6, 0, tzinfo=UTC)
POOL = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "state") as opened:
        with opened.transaction() as tx:
            tx.classes.add("sand", ClassOrigin.PERSON, class_id="c9")
        yield opened


@pytest.fixture
def samples() -> PoolSamples:
    meta = {
        "file": ["feed/1.parquet"] * COUNT,
        "row": list(range(COUNT)),
        "source_id": [f"cam-{i % 2 + 1}" for i in range(COUNT)],
        "image_id": [f"{i:04d}" for i in range(COUNT)],
        "captured_at": [TAKEN] * COUNT,
    }
    nothing = np.empty((COUNT, 0), np.float32)
    return PoolSamples(POOL, nothing, nothing, pa.table(meta), nothing, ())


@pytest.fixture
def found() -> LoopConclusion:
    """Three named by people; the others follow them, the later the less surely."""
    pseudo = tuple(PseudoLabel(i, "c9", 1 - i / 100, AT_THE_END) for i in range(3, COUNT))
    sand = Discovery("c9", (0, 1, 2), pseudo)
    return LoopConclusion("new", (sand,), None, None, 1, 10, None, 0.0)


def test_the_least_certain_are_worth_seeing(samples: PoolSamples, found: LoopConclusion) -> None:
    (wanted,) = least_certain(found, samples).values()
    assert [one.row for one in wanted] == list(reversed(range(COUNT - MOST, COUNT)))
    assert wanted[0].exemplar.confidence == pytest.approx(1 - (COUNT - 1) / 100)
    assert wanted[0].exemplar.by == "pseudo-label"


def test_rendered_thumbnails_are_shown_with_their_class(
    store: Store, samples: PoolSamples, found: LoopConclusion
) -> None:
    with store.transaction() as tx:
        want_pictures(tx, POOL, least_certain(found, samples))
    with store.reading() as tx:
        pool_id, wanted = next_missing_thumbnails(tx) or (0, [])
        where = [(one.file, one.row) for one in wanted]
    assert pool_id == POOL
    # The file of the first is gone by now.
    pictures = [
        RowThumbnail(None),
        *(RowThumbnail(f"picture of {place}".encode()) for place in where[1:]),
    ]
    digests = store_thumbnails(store, pictures)
    with store.transaction() as tx:
        attach_thumbnails(tx, POOL, dict(zip(where, digests, strict=True)))
    with store.reading() as tx:
        shown = exemplars_of(tx, "c9")
        assert next_missing_thumbnails(tx) is None
    assert [one.image_id for one in shown] == [f"{row:04d}" for _, row in where[1:]]
    assert check(store) == []


def test_a_purge_also_takes_back_thumbnails_that_were_not_made_yet(
    store: Store, samples: PoolSamples, found: LoopConclusion
) -> None:
    with store.transaction() as tx:
        want_pictures(tx, POOL, least_certain(found, samples))
        _, wanted = next_missing_thumbnails(tx) or (0, [])
        where = [(one.file, one.row) for one in wanted]
    purge(store, "cam-1", before=TAKEN + timedelta(days=1))
    # The painter had been sent off before.
    with store.transaction() as tx:
        attach_thumbnails(tx, POOL, dict.fromkeys(where, "ab" * 32))
        assert {one.source_id for one in exemplars_of(tx, "c9")} == {"cam-2"}
    purge(store, "cam-2", before=TAKEN + timedelta(days=1))
    with store.reading() as tx:
        assert exemplars_of(tx, "c9") == []
