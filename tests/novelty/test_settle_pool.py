"""Settled verdicts: what becomes of the images of a pool once it is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.settle_pool import settle_pool

DIMENSION = 16
CENTRES = np.random.default_rng(5).normal(0, 5, size=(6, DIMENSION))


def images(kind: int, count: int, seed: int) -> Floats:
    noise = np.random.default_rng([seed, kind]).normal(0, 1, size=(count, DIMENSION))
    found: Floats = (CENTRES[kind] + noise).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def detector() -> Detector:
    known = np.concatenate([images(kind, 60, 0) for kind in (0, 1, 2)])
    return Detector.fit(known, np.repeat(["a", "b", "c"], 60).tolist())


@pytest.fixture(scope="module")
def pool() -> Floats:
    return np.concatenate([images(0, 40, 1), images(1, 40, 1), images(3, 30, 1)])


def test_new_images_are_settled_as_their_class_and_known_ones_as_theirs(
    detector: Detector, pool: Floats
) -> None:
    settled = settle_pool(detector, pool, {0: "a", 40: "b", 80: "ship", 85: "ship", 90: "ship"})
    new = np.arange(len(pool)) >= 80
    assert np.mean(np.array(settled.verdicts)[new] == "new") >= 0.95
    assert np.mean(np.array(settled.verdicts)[~new] == "known") >= 0.95
    assert {c for c in np.array(settled.classes)[new] if c} == {"ship"}
    ids = {c.name: c.id for c in detector.classes}
    assert np.mean([c == ids["a"] for c in settled.classes[:40]]) >= 0.95
    assert settled.probability[new].min() > settled.probability[~new].mean()


def test_people_decide_about_what_they_were_asked(detector: Detector, pool: Floats) -> None:
    settled = settle_pool(detector, pool, {0: "ship", 1: None, 80: "a"})
    assert (settled.verdicts[0], settled.by[0], settled.probability[0]) == ("new", "person", 1.0)
    assert (settled.verdicts[1], settled.by[1], settled.classes[1]) == ("undecided", "person", None)
    assert (settled.verdicts[80], settled.by[80], settled.probability[80]) == ("known", "person", 0)


def test_a_quiet_pool_is_known_by_the_pool_and_its_odd_images_stay_undecided(
    detector: Detector,
) -> None:
    clean = np.concatenate([images(0, 60, 2), images(1, 60, 2), images(4, 1, 2)])
    settled = settle_pool(detector, clean, {})
    assert "new" not in settled.verdicts
    assert set(settled.by) <= {"pool", "score"}
    assert np.mean([v == "known" for v in settled.verdicts[:120]]) > 0.9
    assert settled.probability[120] >= np.quantile(settled.probability[:120], 0.95)


def test_what_resembles_an_unconfirmed_class_is_new_and_named(
    detector: Detector, pool: Floats
) -> None:
    doubtful = detector.with_known([replace(c, confirmed=c.name != "b") for c in detector.classes])
    settled = settle_pool(doubtful, pool[:80], {})
    named = detector.find("b").id
    assert np.mean([v == "new" for v in settled.verdicts[40:80]]) > 0.9
    assert {c for c in settled.classes[40:80] if c} == {named}
    assert np.mean([v == "known" for v in settled.verdicts[:40]]) > 0.9
    # The verdict on a single image says the same at once.
    assert doubtful.score(pool[40:80]).novel.mean() > 0.9
    assert doubtful.score(pool[:40]).novel.mean() < 0.2


def test_images_that_a_shift_explains_are_settled_as_shifted(detector: Detector) -> None:
    dirt = np.tile([4, -4], DIMENSION // 2).astype(np.float32)
    shifted = np.concatenate([images(k, 60, 3) for k in (0, 1, 2)]) + dirt
    settled = settle_pool(detector, shifted, {}, sources=["cam"] * len(shifted), shifted=["cam"])
    assert np.mean([v in ("shifted", "known") for v in settled.verdicts]) > 0.9
    assert "shifted" in settled.verdicts
    assert "new" not in settled.verdicts
