"""Classes that go on learning from the pools that show them, within bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty import class_growth
from monitor.novelty.array_types import Floats
from monitor.novelty.class_growth import (
    Growth,
    grow_classes,
    teach_class,
)
from monitor.novelty.confirmed_classes import answers_to_confirm
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.settled_verdicts import settle_pool

DIMENSION = 16
CENTRES = np.random.default_rng(5).normal(0, 5, size=(6, DIMENSION))


def images(kind: int, count: int, seed: int) -> Floats:
    noise = np.random.default_rng([seed, kind]).normal(0, 1, size=(count, DIMENSION))
    found: Floats = (CENTRES[kind] + noise).astype(np.float32)
    return found


def young(detector: Detector, kind: int, *, people: int, count: int = 12) -> Detector:
    """The detector with a class that was just discovered."""
    born = KnownClass.fit(
        "c9",
        "ship",
        images(kind, count, 7),
        settings=detector.settings,
        rng=np.random.default_rng(0),
        origin="discovered",
        said=np.arange(count) < people,
        confirmed=people >= 3,
    )
    return detector.with_classes([born])


@pytest.fixture(scope="module")
def founded() -> Detector:
    known = np.concatenate([images(kind, 60, 0) for kind in (0, 1, 2)])
    return Detector.fit(known, np.repeat(["a", "b", "c"], 60).tolist())


def grown(detector: Detector, pool: Floats, answers: dict[int, str | None]) -> Growth | None:
    settled = settle_pool(detector, pool, answers)
    return grow_classes(detector, pool, settled, answers)


def test_a_young_class_grows_with_the_feed_and_a_fitted_one_does_not(founded: Detector) -> None:
    detector = young(founded, 3, people=4)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    found = grown(detector, pool, {})
    assert found is not None
    (ship,) = found.grown
    assert ship.id == "c9"
    assert len(ship.pseudo) >= 25
    assert min(ship.pseudo) >= 40, "an image of another class taught it"
    before, after = detector.find("ship"), found.detector.find("ship")
    assert after.count == before.count + len(ship.pseudo)
    assert (after.human, after.said.sum()) == (4, 4)
    fresh = images(3, 200, 11)
    assert found.detector.score(fresh).novel.mean() <= detector.score(fresh).novel.mean()


def test_what_people_labelled_is_never_forgotten(founded: Detector) -> None:
    small = founded.settings.replace(references_most=20, mature=20)
    detector = young(replace(founded, settings=small), 3, people=5, count=18)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    answers: dict[int, str | None] = {40: "c9", 41: "c9", 42: "c9"}
    found = grown(detector, pool, answers)
    assert found is not None
    ship = found.detector.find("ship")
    assert len(ship.references) <= 20
    kept = {row.tobytes() for row in ship.references[ship.said]}
    assert {pool[i].tobytes() for i in answers} <= kept
    before = detector.find("ship")
    assert {row.tobytes() for row in before.references[before.said]} <= kept


def test_three_answers_confirm_a_class_and_dissent_does_not(founded: Detector) -> None:
    detector = young(founded, 3, people=1)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    found = grown(detector, pool, {40: "c9", 45: "c9"})
    assert found is not None
    assert found.detector.find("ship").confirmed
    doubted = grown(detector, pool, {40: "c9", 45: "c9", 50: "a", 55: "b", 60: None})
    assert doubted is None or not doubted.detector.find("ship").confirmed
    settled = settle_pool(detector, pool, {40: "c9", 45: "c9"})
    alone = grow_classes(
        detector, pool, settled, {40: "c9", 45: "c9"}, confirmable=frozenset({"c1"})
    )
    assert alone is not None
    assert not alone.detector.find("ship").confirmed, "one person alone confirmed it"


def test_one_answer_that_names_a_known_class_for_a_stranger_hides_nothing(
    founded: Detector,
) -> None:
    pool = np.concatenate([images(0, 40, 1), images(4, 20, 1)])
    found = grown(founded, pool, {50: "a"})
    detector = found.detector if found is not None else founded
    assert detector.score(images(4, 100, 12)).novel.mean() > 0.9


def test_a_class_cannot_be_walked_into_another(founded: Detector) -> None:
    detector = young(founded, 3, people=4)
    home, other = CENTRES[3], CENTRES[0]
    start = np.linalg.norm(other - home)
    for step in range(1, 12):
        drifting = (home + (other - home) * step / 10).astype(np.float32)
        noise = np.random.default_rng(step).normal(0, 1, size=(30, DIMENSION))
        pool = np.concatenate([images(1, 40, step), (drifting + noise).astype(np.float32)])
        found = grown(detector, pool, {})
        detector = found.detector if found is not None else detector
    people = detector.find("ship")
    moved = np.linalg.norm(people.modes[0].mean - home)
    assert moved < 0.6 * start


@pytest.mark.parametrize("people", [1, 3])
def test_few_labels_among_many_directions_do_not_stop_a_class_from_growing(people: int) -> None:
    """The mean of three images lies far from that of their class, on no way to another."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 0.4, size=(3, 400))

    def drawn(kind: int, count: int) -> Floats:
        found: Floats = (centres[kind] + rng.normal(0, 1, (count, 400))).astype(np.float32)
        return found

    known = np.concatenate([drawn(0, 60), drawn(1, 60)])
    detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    born = KnownClass.fit(
        "c9",
        "ship",
        drawn(2, people + 12),
        settings=detector.settings,
        rng=rng,
        origin="discovered",
        said=np.arange(people + 12) < people,
    )
    detector = detector.with_classes([born])
    fresh = drawn(2, 20)
    assert not class_growth._walks(detector, 2, fresh, RobustSettings().anchor)
    assert class_growth._walks(detector, 2, np.repeat(drawn(0, 40), 3, axis=0), 0.2)


def test_the_settings_of_growth_have_effect(founded: Detector) -> None:
    detector = young(founded, 3, people=4)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    old = replace(detector, settings=detector.settings.replace(mature=12))
    assert grown(old, pool, {}) is None
    slow = replace(detector, settings=detector.settings.replace(grow_least=10.0))
    assert grown(slow, pool, {}) is None


def test_a_class_of_guesses_is_judged_on_a_wider_scale_than_one_of_labels(
    founded: Detector,
) -> None:
    # Images further out than those that a pool was sure of.
    fresh = (CENTRES[3] + 1.6 * (images(3, 300, 13) - CENTRES[3])).astype(np.float32)

    def novel(people: int, wider: float) -> float:
        settings = founded.settings.replace(guessed_wider=wider)
        detector = young(replace(founded, settings=settings), 3, people=people, count=24)
        return float(detector.score(fresh).novel.mean())

    assert novel(people=24, wider=0.0) == novel(people=24, wider=1.0), "people saw all of it"
    assert novel(people=4, wider=1.0) < novel(people=4, wider=0.0)


def test_a_wider_scale_hides_no_other_class(founded: Detector) -> None:
    detector = young(founded, 3, people=4, count=24)
    for kind in (4, 5):
        assert detector.score(images(kind, 100, 14)).novel.mean() > 0.95


def test_more_answers_never_make_a_class_smaller(founded: Detector) -> None:
    detector = young(founded, 3, people=2)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    counts = []
    for answers in range(4):
        found = grown(detector, pool, {40 + i: "c9" for i in range(answers)})
        after = found.detector if found is not None else detector
        counts.append(after.find("ship").count)
        assert after.find("ship").human == 2 + answers
    assert counts == sorted(counts)


def test_samples_that_have_taught_do_not_teach_again(founded: Detector) -> None:
    detector = young(founded, 3, people=4)
    pool = np.concatenate([images(0, 40, 1), images(3, 30, 1)])
    settled = settle_pool(detector, pool, {40: "c9"})
    taken = range(40, 70)
    assert grow_classes(detector, pool, settled, {40: "c9"}, taken=taken) is None


@pytest.mark.parametrize(("still_new", "joins"), [(0.0, False), (1.0, True)])
def test_what_still_looks_new_becomes_a_mode_of_its_own(still_new: float, joins: bool) -> None:
    known = np.concatenate([images(kind, 60, 0) for kind in (0, 1, 2)])
    detector = Detector.fit(
        known,
        np.repeat(["a", "b", "c"], 60).tolist(),
        settings=RobustSettings(still_new=still_new),
    )
    taught = teach_class(detector, detector.classes[0].id, images(4, 20, 3), confirm=True)
    assert (taught is not None) is joins


def test_a_preset_without_a_number_of_its_own_confirms_like_the_other() -> None:
    assert answers_to_confirm(PaperSettings()) == RobustSettings().confirm_answers
    assert answers_to_confirm(RobustSettings(confirm_answers=5)) == 5
