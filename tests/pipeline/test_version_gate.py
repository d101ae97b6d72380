"""The gate: what holds a version back, and says so in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.config.schema import GateSection
from monitor.novelty.detector import Detector, KnownClass
from monitor.pipeline.version_gate import GateReport, compare_versions, objection


def images(mean: float, count: int, seed: int, *, turned: bool = False) -> np.ndarray:
    """Around one point; ``turned`` puts it in another direction."""
    at = mean * np.where(np.arange(16) % 2, -1.0, 1.0) if turned else mean
    return np.random.default_rng(seed).normal(at, 1, (count, 16)).astype("f")


@pytest.fixture(scope="module")
def before() -> Detector:
    known = np.concatenate([images(0, 100, 0), images(9, 100, 1)])
    return Detector.fit(known, ["a"] * 100 + ["b"] * 100)


def with_new(before: Detector, mean: float, human: int = 3, *, turned: bool = False) -> Detector:
    new = KnownClass.fit(
        "n1",
        "new",
        images(mean, 60, 2, turned=turned),
        settings=before.settings,
        rng=np.random.default_rng(0),
        origin="discovered",
        said=np.arange(60) < human,
    )
    return before.with_classes([new])


def test_a_class_that_lies_apart_passes(before: Detector) -> None:
    found = compare_versions(before, with_new(before, -9))
    assert found.stolen == 0
    assert found.labels == {"new": 3}
    assert objection(found, GateSection()) is None


def test_a_class_that_takes_from_a_known_one_is_held(before: Detector) -> None:
    found = compare_versions(before, with_new(before, 0))
    assert found.stolen_from == "a"
    assert "'a'" in str(objection(found, GateSection()))


def test_what_the_detector_gave_a_young_class_itself_may_move_on(before: Detector) -> None:
    """Wrong pseudo-labels of a class that people named go to the class that they belong to."""
    young = KnownClass.fit(
        "n0",
        "young",
        np.concatenate([images(-9, 20, 3), images(9, 20, 4, turned=True)]),
        settings=before.settings,
        rng=np.random.default_rng(0),
        origin="discovered",
        said=np.arange(40) < 4,
    )
    then = before.with_classes([young])
    now = with_new(then, 9, turned=True)
    taken = now.score(images(9, 50, 5, turned=True))
    assert (taken.nearest == 3).mean() > 0.9, "the new class takes what is its own"
    assert objection(compare_versions(then, now), GateSection()) is None


def test_a_few_of_few_images_are_no_objection() -> None:
    """Four of ten fitted images may be lost by chance; forty of a hundred not."""
    for many, held in ((1, False), (10, True)):
        mixed = np.concatenate([images(-9, 6 * many, 3), images(9, 4 * many, 4, turned=True)])
        known = np.concatenate([images(0, 100, 0), mixed])
        detector = Detector.fit(known, ["a"] * 100 + ["b"] * 10 * many)
        found = compare_versions(detector, with_new(detector, 9, turned=True))
        assert (objection(found, GateSection()) is not None) == held, found


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (GateReport(0.5, 0.0, None, {}), "false_novel_most"),
        (GateReport(0.0, 0.5, "a", {}), "stolen_most"),
        (GateReport(0.0, 0.0, None, {"new": 0}), "least_labels"),
    ],
)
def test_an_objection_names_the_key_that_would_allow_it(found: GateReport, word: str) -> None:
    assert f"gate.{word}" in str(objection(found, GateSection()))


def test_an_objection_says_among_which_images_a_class_loses() -> None:
    words = str(objection(GateReport(0.0, 0.5, "a", {}), GateSection()))
    assert "at least 50.0% of the images of 'a' that were fitted or named by people" in words
