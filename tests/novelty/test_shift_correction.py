"""Images of a shifted source, judged with the shift corrected."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from monitor.feed.input_contract import RowIdentity
from monitor.jobs.score_batch import verdict_table
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.shift_correction import (
    ShiftCorrection,
    correction_of,
    score_corrected,
)
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.robust.robust_settings import RobustSettings
from tests.novelty.worlds import World

KNOWN = 4


@pytest.fixture(scope="module")
def world() -> World:
    return World(classes=6, seed=3)


@pytest.fixture(scope="module")
def detector(world: World) -> Detector:
    return world.detector(KNOWN)


def dirt(detector: Detector) -> Floats:
    return 2.0 * np.random.default_rng(1).normal(size=detector.dimension).astype(np.float32)


def pool(world: World, each: int) -> Floats:
    return np.concatenate([world.draw(i, each) for i in range(KNOWN)])


def rate(detector: Detector, images: Floats, found: ShiftCorrection | None) -> float:
    scores, _ = score_corrected(detector, images, [found] * len(images))
    return float(scores.novel.mean())


def test_known_images_calm_down_and_new_ones_stay_novel(world: World, detector: Detector) -> None:
    moved = dirt(detector)
    found = correction_of(Sketch.of(detector), pool(world, 40) + moved, strength=1.0)
    known, new = pool(world, 60) + moved, world.draw(KNOWN + 1, 100) + moved
    assert rate(detector, known, None) > 0.3
    assert rate(detector, known, found) <= 0.1
    assert rate(detector, new, found) > 0.5


def test_a_clean_lens_is_believed_at_once(world: World, detector: Detector) -> None:
    moved = dirt(detector)
    found = correction_of(Sketch.of(detector), pool(world, 40) + moved, strength=1.0)
    known, new = pool(world, 60), world.draw(KNOWN + 1, 100)
    _, corrected = score_corrected(detector, known, [found] * len(known))
    assert corrected.mean() < 0.25
    assert rate(detector, known, found) <= 2 * RobustSettings().false_novel
    assert abs(rate(detector, new, found) - rate(detector, new, None)) < 0.1


def test_a_pool_full_of_strangers_cannot_make_itself_invisible(
    world: World, detector: Detector
) -> None:
    """Half of the pool is new: some of it stays novel all the same."""
    sketch, new = Sketch.of(detector), world.draw(KNOWN + 1, 80)
    mixed = np.concatenate([pool(world, 20), new]) + dirt(detector)
    found = correction_of(sketch, mixed, strength=1.0)
    assert rate(detector, mixed, found) >= sketch.settings.corrected_novel / 2
    bounded = Sketch.of(detector, DriftSettings(eased_most=1.0))
    assert correction_of(bounded, mixed, strength=1.0).ease == 1.0


def test_a_correction_is_the_same_to_the_bit_after_json(world: World, detector: Detector) -> None:
    made = correction_of(
        Sketch.of(detector), pool(world, 40) + dirt(detector), strength=0.3, since=5.0
    )
    back = ShiftCorrection.from_json(made.to_json())
    assert back.shift.tobytes() == made.shift.tobytes()
    assert (back.ease, back.strength, back.since) == (made.ease, made.strength, made.since)


def test_only_images_of_the_source_that_were_taken_since_are_corrected(
    world: World, detector: Detector
) -> None:
    dirty = pool(world, 1) + dirt(detector)
    since = datetime(2026, 1, 2, tzinfo=UTC)
    many = pool(world, 40) + dirt(detector)
    found = correction_of(Sketch.of(detector), many, strength=0.3, since=since.timestamp())
    days = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC), None, None)
    rows = [
        RowIdentity(i, str(i), "clean" if i == 3 else "dirty", day) for i, day in enumerate(days)
    ]
    table = verdict_table("f", rows, dirty, detector, 1, {"dirty": found})
    strengths = table.column("shift_corrected").to_pylist()
    assert [s is not None for s in strengths] == [False, True, True, False]
    plain = detector.score(dirty).score
    scores = table.column("score").to_numpy()
    assert (scores == plain).tolist() == [True, False, False, True]
