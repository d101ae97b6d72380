"""What follows from images that people name by themselves, without having been asked."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.errors import DimensionMismatch
from monitor.novelty.inner_loop import spread
from tests.novelty.worlds import World, name


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def detector(world: World) -> Detector:
    return world.detector(3)


@pytest.fixture(scope="module")
def drawn(world: World) -> tuple[Floats, list[str]]:
    return world.pool({0: 40, 1: 40, 2: 40, 3: 40, 4: 40})


def some(labels: list[str], wanted: str, count: int) -> dict[int, str]:
    return dict.fromkeys([i for i, label in enumerate(labels) if label == wanted][:count], wanted)


def test_what_is_named_spreads_to_what_is_alike_and_to_nothing_else(
    world: World, detector: Detector
) -> None:
    pool, labels = world.pool({0: 40, 1: 40, 2: 40, 3: 40})
    (found,) = spread(detector, pool, some(labels, name(3), 3))
    assert found.name == name(3)
    right = [labels[p.sample] == name(3) for p in found.pseudo]
    assert len(right) > 20
    assert np.mean(right) > 0.9


def test_two_names_are_two_discoveries_without_a_common_image(
    detector: Detector, drawn: tuple[Floats, list[str]]
) -> None:
    pool, labels = drawn
    found = spread(detector, pool, some(labels, name(3), 3) | some(labels, name(4), 3))
    assert {one.name for one in found} == {name(3), name(4)}
    first, second = ({p.sample for p in one.pseudo} for one in found)
    assert not first & second


def test_a_known_name_is_no_discovery(detector: Detector, drawn: tuple[Floats, list[str]]) -> None:
    pool, labels = drawn
    assert spread(detector, pool, some(labels, name(0), 4)) == ()


def test_nothing_said_is_nothing_found(detector: Detector, drawn: tuple[Floats, list[str]]) -> None:
    assert spread(detector, drawn[0], {}) == ()


def test_the_same_seed_finds_the_same(detector: Detector, drawn: tuple[Floats, list[str]]) -> None:
    pool, labels = drawn
    given = some(labels, name(4), 2)
    assert spread(detector, pool, given, seed=3) == spread(detector, pool, given, seed=3)


def test_features_of_another_width_are_refused(detector: Detector) -> None:
    with pytest.raises(DimensionMismatch):
        spread(detector, np.zeros((4, 3), np.float32), {0: "ship"})
