"""Verdicts of a batch, and what is counted of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.feed_storage import FeedFile
from monitor.feed.input_contract import RejectedRow, RowIdentity
from monitor.images.image_stats import STATS as NAMES
from monitor.images.reject_reasons import Reason
from monitor.jobs.score_batch import CopiedRow, EmbeddedBatch, score_batch
from monitor.novelty.detector import Detector
from monitor.store.scored_batches import verdict_steps
from monitor.store.verdict_columns import STATS, VERDICTS


@pytest.fixture(scope="module")
def detector() -> Detector:
    rng = np.random.default_rng(0)
    known = np.concatenate([rng.normal(m, 1, (100, 40)) for m in (0, 9)]).astype("f")
    return Detector.fit(known, ["a"] * 100 + ["b"] * 100)


def batch(features: np.ndarray) -> EmbeddedBatch:
    count = len(features)
    return EmbeddedBatch(
        PlannedBatch(FeedFile("x.parquet", 1, 1), 0, count + 1),
        tuple(RowIdentity(i, f"i{i}", f"cam-{i % 2}", None) for i in range(count)),
        features,
        np.zeros((count, STATS), np.float32),
        (RejectedRow(count, Reason.TRUNCATED, "cut short", "bad", "cam-0"),),
    )


def test_every_row_has_a_verdict_or_a_reason(detector: Detector) -> None:
    features = np.full((6, 40), -9, np.float32)
    scored = score_batch(7, batch(features), detector, version=3)
    assert scored.verdicts.column("verdict").to_pylist() == ["novel"] * 6
    assert scored.verdicts.column("detector_version").to_pylist() == [3] * 6
    assert scored.rejected.column("reason").to_pylist() == ["truncated"]
    assert isinstance(scored.features, pa.Table)
    assert scored.features.num_rows == 6


def test_counts_add_up_by_source(detector: Detector) -> None:
    rng = np.random.default_rng(1)
    features = np.concatenate([rng.normal(0, 1, (5, 40)), np.full((5, 40), -9)]).astype("f")
    verdicts = score_batch(7, batch(features), detector, version=1).verdicts
    counts = verdict_steps(verdicts, exceedance=0.1).totals()
    for source in ("cam-0", "cam-1"):
        mine = {(name, label): v for (name, by, label), v in counts.items() if by == source}
        assert sum(v for (name, _), v in mine.items() if name == "score_ratio") == 5
        assert mine["expected_above", ""] == pytest.approx(0.5)
        assert mine["above", ""] >= 2
        assert mine["images", "novel"] == mine["above", ""]
        assert mine["images", "novel"] + mine.get(("images", "known"), 0) == 5


def test_a_copy_has_the_verdict_of_what_it_shows_and_is_no_evidence(detector: Detector) -> None:
    features = np.full((4, 40), -9, np.float32)
    features[1] = 0
    copies = (
        CopiedRow(RowIdentity(9, "i9", "cam-1", None), 1),
        CopiedRow(RowIdentity(8, "i8", "cam-0", None), 2),
    )
    scored = score_batch(7, replace(batch(features), copies=copies), detector, version=3)
    rows = {row["image_id"]: row for row in scored.verdicts.to_pylist()}
    assert list(rows) == ["i0", "i1", "i2", "i3", "i8", "i9"]
    own = {"image_id", "same_as", "row", "captured_at"}
    for copy, of in (("i9", "i1"), ("i8", "i2")):
        assert rows[copy]["same_as"] == of
        assert {k: v for k, v in rows[copy].items() if k not in own} == {
            k: v for k, v in rows[of].items() if k not in own
        }
    assert scored.samples == 4
    counts = verdict_steps(scored.verdicts, exceedance=0.1).totals()
    assert counts["reused", "cam-0", ""] == counts["reused", "cam-1", ""] == 1
    assert sum(v for (name, *_), v in counts.items() if name == "images") == 6
    assert sum(v for (name, *_), v in counts.items() if name == "score_ratio") == 4
    assert counts["expected_above", "cam-0", ""] == pytest.approx(0.2)


def test_no_verdicts_count_nothing() -> None:
    assert verdict_steps(VERDICTS.empty_table(), 0.1).totals() == {}


def test_the_store_keeps_as_many_figures_as_the_feed_takes() -> None:
    assert len(NAMES) == STATS
