"""A pool, weighed: what seems new in which source, and what a shift explains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.pipeline.pool_inspection import PoolInspection, SourceHistory, inspect_pool
from monitor.store.verdict_columns import STATS
from tests.pipeline.world import DIMENSION, images, known_detector

DAY = 86_400.0
SETTINGS = DriftSettings(quiet_pools=4, least_images=40, false_alarm_days=30)


@pytest.fixture(scope="module")
def sketch() -> Sketch:
    return Sketch.of(known_detector())


def inspect(
    sketch: Sketch,
    features: np.ndarray,
    sources: list[str],
    *,
    states: Mapping[str, str] | None = None,
    at: float = 0.0,
) -> PoolInspection:
    return inspect_pool(
        sketch,
        features,
        np.asarray(sources, dtype=object),
        np.empty((0, STATS), np.float32),
        SourceHistory(states or {}, dict.fromkeys(sources, at)),
        SETTINGS,
    )


def test_known_images_are_no_evidence(sketch: Sketch) -> None:
    seen = inspect(sketch, images("ab" * 60, 1), ["cam-1"] * 120)
    assert seen.images == {"cam-1": 120}
    assert seen.novel["cam-1"] <= 6
    assert abs(seen.seen.strength[EVERYWHERE]) < 4
    assert seen.seen.images == 120
    assert not seen.verdicts["cam-1"].shifted


def test_something_new_shows_in_its_source_alone(sketch: Sketch) -> None:
    features = np.concatenate([images("ab" * 30, 1), images("ab" * 20 + "n" * 20, 2)])
    seen = inspect(sketch, features, ["cam-1"] * 60 + ["cam-2"] * 60)
    assert seen.novel["cam-2"] >= 15
    assert seen.novel["cam-1"] <= 5
    assert seen.seen.strength[EVERYWHERE] > 4
    assert seen.seen.strength["cam-2"] > seen.seen.strength["cam-1"]


def test_more_of_the_same_is_stronger(sketch: Sketch) -> None:
    few = inspect(sketch, images("ab" * 55 + "n" * 10, 1), ["cam-1"] * 120)
    many = inspect(sketch, images("ab" * 40 + "n" * 40, 1), ["cam-1"] * 120)
    assert many.seen.strength[EVERYWHERE] > few.seen.strength[EVERYWHERE] > 0


def test_what_is_remembered_goes_on_from_pool_to_pool(sketch: Sketch) -> None:
    first = inspect(sketch, images("ab" * 30, 1), ["cam-1"] * 60)
    second = inspect(sketch, images("ab" * 30, 2), ["cam-1"] * 60, states=first.states, at=DAY)
    assert first.verdicts["cam-1"].learning > second.verdicts["cam-1"].learning
    assert set(second.states) == {"cam-1"}


def test_a_shift_of_known_classes_is_told_from_something_new(sketch: Sketch) -> None:
    """Every known class moves the same way: after some pools that is a shift, and explains it."""
    states: Mapping[str, str] = {}
    for day in range(6):
        seen = inspect(
            sketch, images("ab" * 40, 10 + day), ["cam-1"] * 80, states=states, at=day * DAY
        )
        states = seen.states
    assert not seen.verdicts["cam-1"].shifted
    step = np.zeros(DIMENSION, np.float32)
    step[:4] = 3.0
    started = []
    for day in range(6, 12):
        moved = images("ab" * 40, 10 + day) + step
        seen = inspect(sketch, moved, ["cam-1"] * 80, states=states, at=day * DAY)
        states = seen.states
        started.append(seen.verdicts["cam-1"].started)
    assert sum(started) == 1, "it begins once"
    assert seen.verdicts["cam-1"].shifted
    assert seen.explained["cam-1"] > seen.novel["cam-1"]
    assert set(seen.seen.shifted) == {"cam-1"}
    assert seen.seen.images == 0, "nothing clean is left to put beside the references"
    assert 0 < seen.seen.shifted["cam-1"] <= 1


def test_inspecting_twice_says_the_same(sketch: Sketch) -> None:
    features = images("ab" * 20 + "n" * 20, 3)
    first = inspect(sketch, features, ["cam-1"] * 60)
    second = inspect(sketch, features, ["cam-1"] * 60)
    assert first.seen == second.seen
    assert first.novel == second.novel
    assert first.states == second.states
