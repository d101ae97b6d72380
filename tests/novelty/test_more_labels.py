"""Pool after pool with the same new classes: more pools and more answers make a better detector."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from monitor.novelty.class_growth import grow_classes
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.novelty.settled_verdicts import settle_pool
from tests.novelty.worlds import BackboneWorld, name

KNOWN, NEW = 3, (4, 5)
POOLS = 3
BUDGETS = (2, 8, 24)


@cache
def taught(budget: int, seed: int) -> tuple[Detector, ...]:
    """The detector after each of some pools with the same two new classes."""
    world = BackboneWorld(seed=seed)
    detector = world.detector(KNOWN)
    versions = []
    for number in range(POOLS):
        pool, labels = world.pool({0: 50, 1: 50, 2: 50, 4: 15, 5: 15}, seed=number)
        loop = inner_loop(detector, pool, budget=budget, seed=number)
        update = drive(loop, labels.__getitem__)
        said: dict[int, str | None] = {row: labels[row] for r in update.rounds for row in r.asked}
        settled = settle_pool(detector, pool, said)
        learnt = [row for d in update.discoveries for row in d.samples]
        detector = update.apply(detector, pool) if update.discoveries else detector
        growth = grow_classes(detector, pool, settled, said, taken=learnt)
        detector = growth.detector if growth is not None else detector
        versions.append(detector)
    return tuple(versions)


def right(detector: Detector, seed: int) -> float:
    """How often unseen images of the new classes are given to their class."""
    world = BackboneWorld(seed=seed)
    names = np.array([known.name for known in detector.classes])
    return float(
        np.mean(
            [(names[detector.score(world.draw(k, 150)).nearest] == name(k)).mean() for k in NEW]
        )
    )


def known_right(detector: Detector, seed: int) -> float:
    world = BackboneWorld(seed=seed)
    names = np.array([known.name for known in detector.classes])
    return float(
        np.mean(
            [
                (names[detector.score(world.draw(k, 150)).nearest] == name(k)).mean()
                for k in range(KNOWN)
            ]
        )
    )


@pytest.mark.parametrize("seed", [1])
def test_the_last_pool_leaves_a_better_detector_than_the_first(seed: int) -> None:
    first, *_, last = taught(8, seed)
    assert right(last, seed) >= right(first, seed) - 0.03
    assert right(last, seed) > 0.8


@pytest.mark.parametrize("seed", [1])
def test_more_labels_never_make_a_worse_detector(seed: int) -> None:
    few, some, many = (right(taught(budget, seed)[-1], seed) for budget in BUDGETS)
    assert few <= some + 0.03
    assert some <= many + 0.03


@pytest.mark.parametrize("seed", [1])
def test_what_was_known_before_is_not_given_away(seed: int) -> None:
    world = BackboneWorld(seed=seed)
    before = known_right(world.detector(KNOWN), seed)
    assert known_right(taught(24, seed)[-1], seed) > before - 0.05


@pytest.mark.parametrize("seed", [1])
def test_people_s_labels_and_the_size_of_classes_only_grow(seed: int) -> None:
    for earlier, later in zip(taught(8, seed), taught(8, seed)[1:], strict=False):
        for known in earlier.classes:
            now = next(c for c in later.classes if c.id == known.id)
            assert now.human >= known.human
            assert now.count >= known.count
            assert now.confirmed or not known.confirmed, "confirmed once, confirmed for good"
