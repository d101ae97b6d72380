"""A class that was just found is confirmed by the next questions about the same pool."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.robust.robust_settings import RobustSettings
from tests.novelty.worlds import World, name

KNOWN = 4


@pytest.fixture(scope="module")
def world() -> World:
    return World(classes=7, dimension=32, seed=6)


@pytest.fixture(scope="module")
def detector(world: World) -> Detector:
    features, labels = world.labelled(range(KNOWN), 60)
    return Detector.fit(features, labels)


def asked(
    detector: Detector, pool: Floats, labels: list[str], budget: int, **more: int
) -> tuple[Update, list[list[str]]]:
    update = drive(inner_loop(detector, pool, budget=budget, **more), lambda i: labels[i])
    return update, [[str(answer) for answer in one.answers] for one in update.rounds]


def test_five_questions_find_a_rare_class_and_confirm_it(world: World, detector: Detector) -> None:
    pool, labels = world.pool({0: 50, 1: 50, 2: 50, 3: 38, 5: 12})
    update, rounds = asked(detector, pool, labels, 5)
    [found] = update.discoveries
    assert found.name == name(5)
    assert len(found.human) >= RobustSettings().confirm_answers
    assert found.confirmed
    assert update.labels == 5
    # Once three answers name it, the others look for something else.
    assert sum(answers.count(name(5)) for answers in rounds) <= 4


def test_a_probe_that_finds_something_confirms_it_with_the_rest_of_the_budget(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 50, 1: 50, 2: 50, 3: 38, 5: 12})
    update, _ = asked(detector, pool, labels, 6, probe=3)
    assert [d.confirmed for d in update.discoveries] == [True]


def test_a_class_of_two_images_stays_unconfirmed(world: World, detector: Detector) -> None:
    pool, labels = world.pool({0: 30, 1: 30, 2: 30, 5: 2})
    update, _ = asked(detector, pool, labels, 30)
    assert [(d.name, d.confirmed) for d in update.discoveries] == [(name(5), False)]


def test_two_classes_are_both_confirmed_where_the_budget_allows(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 50, 1: 50, 2: 50, 5: 25, 6: 25})
    update, _ = asked(detector, pool, labels, 12)
    assert {d.name: d.confirmed for d in update.discoveries} == {name(5): True, name(6): True}


def test_a_lie_about_one_image_is_found_out_by_the_questions_beside_it(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 50, 1: 50, 2: 50, 5: 30})
    lied: list[int] = []

    def answer(row: int) -> str:
        if labels[row] == name(5) and not lied:
            lied.append(row)
            return "a made-up name"
        return labels[row]

    update = drive(inner_loop(detector, pool, budget=8), answer)
    confirmed = {d.name: d.confirmed for d in update.discoveries}
    assert confirmed["a made-up name"] is False
    assert len(lied) == 1


def test_a_class_that_an_earlier_pool_left_unconfirmed_is_asked_about_first(
    world: World, detector: Detector
) -> None:
    first, labels = world.pool({0: 50, 1: 50, 2: 50, 5: 30})
    update, _ = asked(detector, first, labels, 1)
    if not update.discoveries:
        pytest.skip("one question did not find it in this world")
    young = update.apply(detector, first)
    assert not young.find(name(5)).confirmed
    second, truth = world.pool({0: 50, 1: 50, 2: 50, 5: 30})
    _, rounds = asked(young, second, truth, 6)
    assert rounds[0].count(name(5)) >= 1
    assert sum(answers.count(name(5)) for answers in rounds) >= 2


def test_without_confirming_questions_the_budget_goes_elsewhere(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 50, 1: 50, 2: 50, 3: 38, 5: 12})
    never = Detector.fit(
        *world.labelled(range(KNOWN), 60), settings=detector.settings.replace(ask_confirm=0.0)
    )
    with_them = sum(a.count(name(5)) for a in asked(detector, pool, labels, 5)[1])
    without = sum(a.count(name(5)) for a in asked(never, pool, labels, 5)[1])
    assert without <= with_them
    assert np.mean([d.confirmed for d in asked(detector, pool, labels, 5)[0].discoveries]) == 1
