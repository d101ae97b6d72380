"""What every preset keeps to: a score depends on its image alone, and nothing is changed."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.presets import PRESETS, preset_settings
from tests.novelty.worlds import BackboneWorld, World, name

KNOWN = 3


@pytest.fixture(scope="module", params=sorted(PRESETS))
def settings(request: pytest.FixtureRequest) -> MethodSettings:
    return preset_settings(request.param)


@pytest.fixture(scope="module")
def world() -> World:
    return BackboneWorld()


@pytest.fixture(scope="module")
def detector(world: World, settings: MethodSettings) -> Detector:
    return world.detector(KNOWN, settings=settings)


def test_scoring_leaves_the_callers_array_alone(world: World, detector: Detector) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN + 1), 20))
    before = pool.copy()
    detector.score(pool)
    np.testing.assert_array_equal(pool, before)


def test_images_in_another_order_have_the_same_scores(world: World, detector: Detector) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN + 1), 20))
    order = np.random.default_rng(1).permutation(len(pool))
    np.testing.assert_allclose(
        detector.score(pool[order]).score, detector.score(pool).score[order], rtol=1e-4
    )


def test_an_image_alone_is_scored_as_among_others(world: World, detector: Detector) -> None:
    pool, _ = world.pool(dict.fromkeys(range(KNOWN + 1), 8))
    whole = detector.score(pool)
    for i in range(0, len(pool), 5):
        alone = detector.score(pool[i : i + 1])
        np.testing.assert_allclose(alone.score, whole.score[i : i + 1], rtol=1e-4)
        assert alone.nearest[0] == whole.nearest[i]


def test_features_may_come_as_float64_or_as_lists(world: World, detector: Detector) -> None:
    pool = world.draw(KNOWN, 6)
    expected = detector.score(pool).score
    np.testing.assert_allclose(detector.score(pool.astype(float)).score, expected, rtol=1e-5)
    np.testing.assert_allclose(detector.score(np.asfortranarray(pool)).score, expected, rtol=1e-5)


def test_the_order_of_the_classes_decides_nothing(world: World, settings: MethodSettings) -> None:
    features, labels = world.labelled(range(KNOWN), 100)
    forward = Detector.fit(features, labels, settings=settings)
    # The draws that hold samples out follow the order, so the same ones are kept in place.
    names = {name(i): name(KNOWN - 1 - i) for i in range(KNOWN)}
    renamed = Detector.fit(features, [names[label] for label in labels], settings=settings)
    pool, _ = world.pool(dict.fromkeys(range(KNOWN + 1), 20))
    apart = np.abs(forward.score(pool).score - renamed.score(pool).score)
    assert np.median(apart / forward.score(pool).score) < 0.1


def test_the_same_seed_fits_the_same_detector(world: World, settings: MethodSettings) -> None:
    features, labels = world.labelled(range(KNOWN), 60)
    one, two = (Detector.fit(features, labels, settings=settings, seed=7) for _ in range(2))
    pool = world.draw(KNOWN, 30)
    np.testing.assert_array_equal(one.score(pool).score, two.score(pool).score)
    assert one.calibration == two.calibration


def test_most_known_images_are_known_and_most_new_ones_score_higher(
    world: World, detector: Detector
) -> None:
    known = detector.score(np.concatenate([world.draw(c, 60) for c in range(KNOWN)]))
    new = detector.score(world.draw(KNOWN, 60))
    assert known.novel.mean() < 0.15
    assert np.median(new.score) > np.median(known.score)


def asked(world: World, detector: Detector, *, budget: int, seed: int) -> tuple[Update, list[str]]:
    pool, labels = world.pool({0: 30, 1: 30, 2: 30, KNOWN: 25, KNOWN + 1: 25}, seed=seed)
    return drive(inner_loop(detector, pool, budget=budget, seed=seed), labels.__getitem__), labels


@pytest.mark.parametrize("seed", range(2))
def test_nobody_is_asked_twice_and_pseudo_labels_are_of_images_nobody_named(
    world: World, detector: Detector, seed: int
) -> None:
    update, labels = asked(world, detector, budget=15, seed=seed)
    questions = [i for one in update.rounds for i in one.asked]
    assert len(questions) == len(set(questions)) == update.labels <= 15
    assert all(0 <= i < len(labels) for i in questions)
    guessed = [p.sample for one in update.discoveries for p in one.pseudo]
    assert len(guessed) == len(set(guessed))
    assert not set(guessed) & set(questions)
    for one in update.discoveries:
        assert one.human
        assert set(one.human) <= set(questions)
        assert {labels[i] for i in one.human} == {one.name}


def test_an_update_adds_its_discoveries_and_leaves_the_known_classes(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 30, 1: 30, 2: 30, KNOWN: 40})
    update = drive(inner_loop(detector, pool, budget=15), labels.__getitem__)
    after = update.apply(detector, pool)
    assert after.classes[:KNOWN] == detector.classes
    assert [c.name for c in after.classes[KNOWN:]] == [d.name for d in update.discoveries]
    assert after.settings == detector.settings
