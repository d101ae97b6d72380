"""The gate: what holds a version back, and says so in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.config.schema import GateSection
from monitor.novelty.detector import Detector, KnownClass
from monitor.pipeline.publish_version import GateReport, compare_versions, objection


def images(mean: float, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1, (count, 16)).astype("f")


@pytest.fixture(scope="module")
def before() -> Detector:
    known = np.concatenate([images(0, 100, 0), images(9, 100, 1)])
    return Detector.fit(known, ["a"] * 100 + ["b"] * 100)


def with_new(before: Detector, mean: float, human: int = 3) -> Detector:
    new = KnownClass.fit(
        "n1",
        "new",
        images(mean, 60, 2),
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
