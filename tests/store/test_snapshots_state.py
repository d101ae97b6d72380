"""A detector as arrays and plain values: nothing is lost, and nothing broken comes back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.novelty.detector import Detector
from monitor.novelty.errors import InvalidDetector
from monitor.novelty.presets import preset_settings
from monitor.store.snapshots import from_state, to_state
from tests.novelty.worlds import World

PRESETS = pytest.mark.parametrize("preset", ["robust", "paper"])


def made(preset: str = "robust", seed: int = 0) -> tuple[World, Detector]:
    world = World(seed=seed)
    return world, world.detector(4, settings=preset_settings(preset))


def through_json(detector: Detector) -> Detector:
    arrays, meta = to_state(detector)
    return from_state(arrays, json.loads(json.dumps(meta)))


@PRESETS
def test_verdicts_are_the_same_to_the_bit(preset: str) -> None:
    world, detector = made(preset)
    pool, _ = world.pool({0: 30, 1: 30, 4: 30})
    one, other = detector.score(pool), through_json(detector).score(pool)
    for name in ("score", "ratio", "novel", "nearest", "p_known"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@PRESETS
def test_everything_that_a_class_carries_survives(preset: str) -> None:
    _, detector = made(preset)
    changed = detector.renamed("c1", "a new name").merged("c3", ["c4"])
    again = through_json(changed)
    assert [(c.id, c.name, c.count, c.origin, c.confirmed) for c in again.classes] == [
        (c.id, c.name, c.count, c.origin, c.confirmed) for c in changed.classes
    ]
    assert len(again.find("c3").modes) == 2
    for mine, theirs in zip(again.classes, changed.classes, strict=True):
        np.testing.assert_array_equal(mine.said, theirs.said)
        np.testing.assert_array_equal(mine.references, theirs.references)
    assert again.settings == changed.settings
    assert again.fingerprint == changed.fingerprint
    assert again.calibration == changed.calibration


def test_a_detector_that_was_read_back_goes_on_learning_alike() -> None:
    """What was saved of its opinions is of its own classes, not of those that come later."""
    world, detector = made()
    again = through_json(detector)
    pool, _ = world.pool({0: 20, 5: 20})
    one = detector.without_class("c4").score(pool)
    other = again.without_class("c4").score(pool)
    np.testing.assert_array_equal(one.score, other.score)


def test_the_arrays_are_not_copies_of_one_another() -> None:
    """A snapshot stores each array by itself: two names of one memory would be stored twice."""
    _, detector = made()
    arrays, _ = to_state(detector)
    assert len({array.ctypes.data for array in arrays.values() if array.size}) == len(
        [array for array in arrays.values() if array.size]
    )


@pytest.mark.parametrize("gone", ["classes", "fre_calibration", "fingerprint", "settings"])
def test_an_incomplete_state_is_refused(gone: str) -> None:
    _, detector = made()
    arrays, meta = to_state(detector)
    del meta[gone]
    with pytest.raises(InvalidDetector, match="incomplete"):
        from_state(arrays, meta)


@pytest.mark.parametrize("gone", ["c1.references", "c2.own", "c2.said", "c3.0.mean", "c3.0.basis"])
def test_a_missing_array_is_refused_and_named(gone: str) -> None:
    _, detector = made()
    arrays, meta = to_state(detector)
    del arrays[gone]
    with pytest.raises(InvalidDetector, match=gone):
        from_state(arrays, meta)


def test_a_class_of_another_width_is_refused() -> None:
    _, detector = made()
    arrays, meta = to_state(detector)
    arrays["c2.0.mean"] = arrays["c2.0.mean"][:-1]
    with pytest.raises(InvalidDetector, match="class-1"):
        from_state(arrays, meta)


def test_a_class_without_a_subspace_is_refused() -> None:
    _, detector = made()
    arrays, meta = to_state(detector)
    meta["classes"][0]["modes"] = []
    with pytest.raises(InvalidDetector, match="class-0"):
        from_state(arrays, meta)
