"""Settled verdicts: what becomes of the images of a pool once it is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty.array_types import Bools, Floats
from monitor.novelty.detector import Detector
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.settled_verdicts import settle_pool

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


def blurred(kind: int, count: int, seed: int) -> Floats:
    """Images that lie between a class and the ones beside it."""
    noise = np.random.default_rng([seed, kind, 1]).normal(0, 7, size=(count, DIMENSION))
    found: Floats = (CENTRES[kind] + noise).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def torn(detector: Detector) -> tuple[Floats, dict[int, str | None]]:
    """A pool in which new and known images run into each other, with a few answers."""
    pool = np.concatenate([blurred(0, 90, 4), blurred(1, 90, 4), blurred(3, 20, 4)])
    return pool, {0: "a", 90: "b", 180: "ship", 185: "ship", 190: "ship"}


def test_the_fewer_known_images_may_be_called_new_the_fewer_images_are(
    detector: Detector, torn: tuple[Floats, dict[int, str | None]]
) -> None:
    pool, answers = torn
    called = []
    for allowed in (1e-6, 0.0075, 0.3):
        settings = detector.settings.replace(false_new=allowed)
        settled = settle_pool(replace(detector, settings=settings), pool, answers)
        called.append(set(settled.rows("new").tolist()))
    few, usual, many = called
    assert few <= usual <= many
    assert len(few) < len(many)


def test_what_is_certain_is_new_however_few_may_be_wrong(
    detector: Detector, torn: tuple[Floats, dict[int, str | None]]
) -> None:
    pool, answers = torn
    strict = detector.settings.replace(false_new=1e-6, certain=0.95)
    settled = settle_pool(replace(detector, settings=strict), pool, answers)
    unasked = np.array([by != "person" for by in settled.by])
    new = np.array(settled.verdicts) == "new"
    assert new[unasked & (settled.probability >= 0.95)].all()
    lenient = strict.replace(certain=0.6)
    assert len(settle_pool(replace(detector, settings=lenient), pool, answers).rows("new")) >= len(
        settled.rows("new")
    )


def settled_as_new(share: float, seed: int) -> Bools:
    """What of 300 known and 40 new images is new, if references may be in this share."""
    lenient = RobustSettings().replace(references_new=share, false_new=0.5, certain=0.5)
    labelled = np.concatenate([blurred(kind, 100, 30 + seed) for kind in (0, 1, 2)])
    blurry = Detector.fit(labelled, np.repeat(["a", "b", "c"], 100).tolist(), settings=lenient)
    kinds = ((0, 150), (1, 150), (3, 40))
    pool = np.concatenate([blurred(kind, count, 20 + seed) for kind, count in kinds])
    settled = settle_pool(blurry, pool, {300: "ship", 305: "ship", 310: "ship", 0: "a"})
    new: Bools = np.array(settled.verdicts) == "new"
    return new


@pytest.mark.parametrize("seed", range(3))
def test_known_images_are_settled_as_new_no_more_often_than_references_may_be(seed: int) -> None:
    strict, lenient = settled_as_new(0.03, seed), settled_as_new(0.5, seed)
    assert strict[:300].mean() <= 0.06
    assert strict[300:].mean() > 2 * strict[:300].mean()
    assert not (strict & ~lenient).any()
    assert strict.sum() < lenient.sum()


def test_a_pool_that_is_mostly_new_is_settled_as_new(detector: Detector) -> None:
    pool = np.concatenate([images(0, 6, 5), images(3, 94, 5)])
    settled = settle_pool(detector, pool, {0: "a", 10: "ship", 50: "ship", 90: "ship"})
    assert np.mean([v == "new" for v in settled.verdicts[6:]]) > 0.9
    assert settled.verdicts[:6].count("new") <= 1


def test_what_is_neither_known_nor_new_is_undecided_and_has_no_class(
    detector: Detector, torn: tuple[Floats, dict[int, str | None]]
) -> None:
    pool, answers = torn
    settled = settle_pool(detector, pool, answers)
    decided = RobustSettings().decided
    for row in settled.rows("undecided"):
        assert settled.probability[row] > 1 - decided
        assert settled.classes[row] is None
    for row in settled.rows("known"):
        assert settled.by[row] == "person" or settled.probability[row] <= 1 - decided


def test_settling_depends_on_pool_and_answers_alone(
    detector: Detector, torn: tuple[Floats, dict[int, str | None]]
) -> None:
    pool, answers = torn
    order = np.random.default_rng(0).permutation(len(pool))
    place = {int(old): new for new, old in enumerate(order)}
    first = settle_pool(detector, pool, answers)
    again = settle_pool(detector, pool, dict(reversed(answers.items())))
    assert first.verdicts == again.verdicts
    np.testing.assert_array_equal(first.probability, again.probability)
    mixed = settle_pool(detector, pool[order], {place[i]: said for i, said in answers.items()})
    back = np.array([mixed.probability[place[i]] for i in range(len(pool))])
    assert np.abs(back - first.probability).mean() < 0.05
