"""The samples of a pool, as the commits left them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from monitor.pipeline.pool_samples import read_samples
from monitor.store.verdict_columns import STATS
from tests.pipeline.world import DIMENSION, NOON, World, images, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    made.store.close()


def test_samples_come_in_the_order_of_the_commits(world: World) -> None:
    world.fill("ab")
    pool = world.fill("nnn", source="cam-2")
    found = read_samples(world.store, pool)
    assert found.features.shape == (5, DIMENSION)
    assert np.array_equal(found.features, np.concatenate([images("ab", 1), images("nnn", 2)]))
    assert found.sources.tolist() == ["cam-1"] * 2 + ["cam-2"] * 3
    assert found.keys == ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2))
    assert found.stats.shape == (5, STATS)
    assert found.place(3) == ("feed/002.parquet", 1)


def test_a_sample_carries_what_a_question_shows(world: World) -> None:
    pool = world.fill("abn")
    sample = read_samples(world.store, pool).sample(2, {"name": "sand"}, "ab" * 32)
    assert (sample.batch_id, sample.spool_row, sample.image_id) == (1, 2, "1-2")
    assert (sample.source_id, sample.file, sample.row) == ("cam-1", "feed/001.parquet", 2)
    assert sample.captured_at == NOON
    assert sample.score_ratio > 1
    assert sample.nearest_class in ("c1", "c2")
    assert (sample.suggestion, sample.thumbnail) == ({"name": "sand"}, "ab" * 32)


def test_the_latest_time_is_by_source(world: World) -> None:
    world.fill("ab", captured=NOON - timedelta(hours=1))
    world.fill("ab", source="cam-2", captured=None)
    pool = world.fill("ab", captured=NOON)
    assert read_samples(world.store, pool).latest() == {"cam-1": NOON.timestamp()}


def test_images_without_a_time_have_no_latest(world: World) -> None:
    pool = world.fill("ab", captured=None)
    assert read_samples(world.store, pool).latest() == {}
