"""A look at a whole pool: new images lie together, chance outliers do not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.errors import DimensionMismatch
from monitor.novelty.presets import preset_settings
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, PoolNovelty, measure_novelty
from monitor.novelty.trigger.trigger_decision import threshold
from tests.novelty.worlds import World

DIMENSION = 48


def world_of(seed: int) -> World:
    return World(classes=8, dimension=DIMENSION, seed=seed)


def clean_pool(world: World, shares: list[int]) -> Floats:
    return np.concatenate([world.draw(c, n) for c, n in enumerate(shares)])


def strength(found: PoolNovelty) -> float:
    return found.strength[EVERYWHERE]


def test_chance_stays_within_what_the_trigger_expects() -> None:
    """Clean pools, also with other shares of the classes than were labelled."""
    strengths = []
    for seed in range(12):
        world = world_of(seed)
        detector = world.detector(3)
        for shares in ([70, 70, 70], [150, 50, 10]):
            strengths.append(
                strength(measure_novelty(detector, clean_pool(world, shares), seed=seed))
            )
    assert np.mean(strengths) < 1.0
    assert np.mean(np.array(strengths) > threshold(1 / 30)) <= 0.05


@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_a_small_new_class_is_seen_and_its_images_are_pointed_out(preset: str) -> None:
    seen, aurocs = 0, []
    for seed in range(6):
        world = world_of(seed)
        detector = world.detector(3, settings=preset_settings(preset))
        pool = np.concatenate([clean_pool(world, [70, 70, 70]), world.draw(5, 20)])
        found = measure_novelty(detector, pool, seed=seed)
        seen += strength(found) > threshold(1 / 30)
        aurocs.append(roc_auc_score(np.arange(len(pool)) >= 210, found.score))
        assert found.p_known[210:].mean() < found.p_known[:210].mean()
    # The paper holds a tenth out: thirty-six references are too few for a pool to be noticed.
    assert seen >= 5 or preset == "paper"
    assert np.mean(aurocs) > 0.95


def test_the_source_that_brings_it_is_named() -> None:
    world = world_of(1)
    detector = world.detector(3)
    calm, loud = clean_pool(world, [40, 40, 40]), clean_pool(world, [40, 40, 40])
    pool = np.concatenate([calm, loud, world.draw(6, 25)])
    sources = ["calm"] * len(calm) + ["loud"] * (len(loud) + 25)
    found = measure_novelty(detector, pool, sources)
    assert found.strength["loud"] > 4 > found.strength["calm"]
    # A source with a handful of images cannot be told from chance by itself.
    few = measure_novelty(detector, calm, ["a"] * 110 + ["b"] * 10)
    assert set(few.strength) == {EVERYWHERE, "a"}


def test_a_look_is_a_function_of_the_pool_and_the_seed() -> None:
    world = world_of(2)
    detector = world.detector(3)
    pool = clean_pool(world, [40, 40, 40])
    first, again = (measure_novelty(detector, pool, seed=3) for _ in range(2))
    assert first.strength == again.strength
    np.testing.assert_array_equal(first.score, again.score)


def test_one_known_class_and_tiny_pools_are_looked_at_too() -> None:
    world = world_of(3)
    detector = Detector.fit(world.draw(0, 60), ["only"] * 60)
    found = measure_novelty(detector, world.draw(0, 12))
    assert np.isfinite(found.score).all()
    assert np.isfinite(strength(found))
    strange = np.concatenate([world.draw(0, 100), world.draw(4, 20)])
    assert strength(measure_novelty(detector, strange)) > strength(
        measure_novelty(detector, world.draw(0, 120))
    )


def test_features_of_another_backbone_are_refused() -> None:
    with pytest.raises(DimensionMismatch, match="48"):
        measure_novelty(world_of(0).detector(2), np.zeros((40, 7), np.float32))
