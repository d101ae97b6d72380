"""The inner loop between two answers: replayed or held in hand, it goes the same way."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.detector import Detector
from monitor.pipeline.inner_loop_driver import (
    InnerLoopDriver,
    LoopConclusion,
    LoopInput,
    RoundToAsk,
    cluster_pool,
)

BUDGET = 9


def images(mean: float, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1, (count, 16)).astype("f")


@pytest.fixture(scope="module")
def detector() -> Detector:
    known = np.concatenate([images(0, 100, 0), images(9, 100, 1)])
    return Detector.fit(known, ["a"] * 100 + ["b"] * 100)


@pytest.fixture(scope="module")
def pool() -> np.ndarray:
    return np.concatenate([images(0, 60, 3), images(9, 60, 4), images(-9, 60, 5)])


def said(sample: int) -> str:
    return "c1" if sample < 60 else "c2" if sample < 120 else "class-3"


def follow(
    detector: Detector, pool: np.ndarray, *, anew: bool, stop_after: int = 99
) -> tuple[list[RoundToAsk], LoopConclusion]:
    """Answer every round; ``anew`` starts with a fresh learner each time, as after a crash."""
    learner = InnerLoopDriver()
    asked: list[RoundToAsk] = []
    answers: dict[int, str | None] = {}
    while True:
        progress = LoopInput(1, BUDGET, 0, len(asked), answers, stop=len(asked) >= stop_after)
        learner = InnerLoopDriver() if anew else learner
        found = learner.advance(progress, detector, detector, {"class-3": "ship"}, pool)
        if isinstance(found, LoopConclusion):
            return asked, found
        asked.append(found)
        answers |= {i: said(i) for i in found.samples}


def test_a_replay_asks_the_same_and_ends_the_same(detector: Detector, pool: np.ndarray) -> None:
    held, first = follow(detector, pool, anew=False)
    replayed, second = follow(detector, pool, anew=True)
    assert held == replayed
    assert first.discoveries == second.discoveries
    samples = [i for ask in held for i in ask.samples]
    assert len(samples) == len(set(samples)) <= BUDGET


def test_what_is_learnt_has_the_id_and_name_that_people_gave(
    detector: Detector, pool: np.ndarray
) -> None:
    _, found = follow(detector, pool, anew=False)
    assert found.detector is not None
    assert [(c.id, c.name) for c in found.detector.classes][2:] == [("class-3", "ship")]


def test_told_to_stop_it_asks_nobody_any_more(detector: Detector, pool: np.ndarray) -> None:
    asked, found = follow(detector, pool, anew=False, stop_after=1)
    assert len(asked) == 1
    assert found.rounds >= 1


def test_a_class_that_is_known_by_now_is_not_added_again(
    detector: Detector, pool: np.ndarray
) -> None:
    asked, found = follow(detector, pool, anew=False)
    assert found.detector is not None
    answers = {i: said(i) for ask in asked for i in ask.samples}
    progress = LoopInput(1, BUDGET, 0, len(asked), answers, stop=True)
    again = InnerLoopDriver().advance(progress, detector, found.detector, {"class-3": "ship"}, pool)
    assert isinstance(again, LoopConclusion)
    assert again.detector is None


def test_clusters_become_provisional_classes(detector: Detector, pool: np.ndarray) -> None:
    found = cluster_pool(7, detector, pool, seed=0)
    assert found.provisional
    assert [d.name for d in found.discoveries] == ["provisional-7-1"]
    assert min(found.discoveries[0].samples) >= 120
    assert found.detector is not None
    assert found.detector.classes[-1].name == "unnamed 7.1"
