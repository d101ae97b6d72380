"""The parts of a pool's novelty: mixtures, permutations, and what chance makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, norm

from monitor.novelty.trigger import measure_pool_novelty as measured
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, measure_novelty
from tests.novelty.worlds import World


def test_the_mixture_of_a_pool_is_found_through_the_confusion_of_its_classes() -> None:
    """A third of class 0 is taken for class 1, so the nearest classes alone mislead."""
    rng = np.random.default_rng(0)
    true = np.repeat([0, 1], 600)
    taken = np.where((true == 0) & (rng.random(1200) < 1 / 3), 1, true)
    owner = rng.random(4000) < 0.8  # four fifths are of class 0
    pool = np.where(owner & (rng.random(4000) >= 1 / 3), 0, 1)
    naive = (pool == 0).mean()
    found = measured._mixture(true, taken, pool, 2, prior=1.0)
    assert found.sum() == pytest.approx(1.0)
    assert abs(found[0] - 0.8) < 0.07
    assert abs(naive - 0.8) > 0.2


def test_the_mixture_of_a_pool_without_a_class_has_next_to_none_of_it() -> None:
    true = np.repeat([0, 1, 2], 50)
    found = measured._mixture(true, true, np.zeros(200, dtype=np.intp), 3, prior=1.0)
    assert found[0] > 0.97


def test_labels_are_permuted_within_what_resembles_the_same_class() -> None:
    rng = np.random.default_rng(0)
    nearest = np.repeat([0, 1, 2], [40, 30, 20])
    came = rng.random(90) < 0.4
    permuted = measured._permuted(came, nearest, 25, rng)
    np.testing.assert_array_equal(permuted[:, 0], came)
    for position in range(3):
        rows = nearest == position
        assert (permuted[rows].sum(axis=0) == came[rows].sum()).all()
    assert (permuted[:, 1:] != came[:, None]).any(axis=0).all(), "each is another order"


@pytest.mark.parametrize("degrees", [2, 8, 50])
def test_skewed_sums_become_deviations_of_a_normal_distribution(degrees: int) -> None:
    """Sums of squares exceed three of their own deviations far too often."""
    rng = np.random.default_rng(degrees)
    draws = rng.chisquare(degrees, size=(3000, 101))
    found = np.array([measured._deviations(row, (0.01, 3.0)) for row in draws])
    plain = (draws[:, 0] - draws[:, 1:].mean(axis=1)) / draws[:, 1:].std(axis=1)
    rare = norm.isf(0.005)
    # A hundred permutations estimate three moments: some of the tail remains.
    assert (found > rare).mean() < 0.02
    assert (found > rare).mean() < (plain > rare).mean()


def test_strength_of_the_truth_among_like_ones_is_small() -> None:
    rng = np.random.default_rng(3)
    found = [measured._deviations(rng.normal(size=101), (0.01, 3.0)) for _ in range(500)]
    assert abs(np.mean(found)) < 0.2
    assert np.std(found) == pytest.approx(1.0, abs=0.15)


def test_the_main_directions_keep_distances_and_forget_the_middle() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 40)) + 7
    placed = measured._main(flat.astype("f"), 5)
    assert placed.shape == (60, 5)
    assert np.abs(placed.mean(axis=0)).max() < 1e-3
    before = np.linalg.norm(flat[:1] - flat, axis=1)
    np.testing.assert_allclose(np.linalg.norm(placed[:1] - placed, axis=1), before, rtol=1e-3)


def test_p_known_of_clean_pools_is_uniform() -> None:
    shares = []
    for seed in range(4):
        world = World(classes=6, dimension=48, seed=seed)
        detector = world.detector(3)
        pool, _ = world.pool({0: 80, 1: 80, 2: 80}, seed=seed)
        shares.append(measure_novelty(detector, pool, seed=seed).p_known)
    found = np.concatenate(shares)
    assert found.min() > 0, "the image itself is counted"
    assert kstest(found, "uniform").statistic < 0.12


def test_references_have_their_own_rank_among_those_of_their_class() -> None:
    world = World(classes=6, dimension=48, seed=0)
    detector = world.detector(3)
    pool, _ = world.pool({0: 60, 1: 60, 4: 30})
    found = measure_novelty(detector, pool)
    assert found.references == len(found.beside) == len(found.p_usual)
    assert len(np.unique(found.beside)) == len(found.beside)
    assert kstest(found.p_usual, "uniform").statistic < 0.05
    assert found.p_known[found.novel].max() < np.median(found.p_usual)


def test_a_source_with_too_few_images_is_not_judged_by_itself() -> None:
    world = World(classes=6, dimension=48, seed=0)
    detector = world.detector(3)
    pool, _ = world.pool({0: 60, 1: 60, 2: 60})
    least = detector.settings.pool.source_least
    sources = ["few"] * (least - 1) + ["many"] * (len(pool) - least + 1)
    found = measure_novelty(detector, pool, sources).strength
    assert set(found) == {EVERYWHERE, "many"}


def test_the_source_that_brings_something_new_is_the_strongest() -> None:
    world = World(classes=6, dimension=48, seed=1)
    detector = world.detector(3)
    clean, _ = world.pool({0: 50, 1: 50, 2: 50}, seed=1)
    other, _ = world.pool({0: 40, 1: 40, 2: 40, 5: 30}, seed=2)
    sources = ["clean"] * len(clean) + ["other"] * len(other)
    found = measure_novelty(detector, np.concatenate([clean, other]), sources).strength
    assert found["other"] > 4 > found["clean"]


def test_the_same_seed_gives_the_same_strength_and_the_pool_stays_as_it_was() -> None:
    world = World(classes=6, dimension=48, seed=0)
    detector = world.detector(3)
    pool, _ = world.pool({0: 50, 1: 50, 4: 20})
    before = pool.copy()
    one, other = (measure_novelty(detector, pool, seed=9) for _ in range(2))
    assert one.strength == other.strength
    np.testing.assert_array_equal(one.score, other.score)
    np.testing.assert_array_equal(pool, before)
