"""What a detector makes of a single sample: its class, and how unlike that class it is."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.robust.robust_settings import RobustSettings

_DIMENSION = 160
_RICH, _POOR = 400, 30


class Rooms:
    """Three classes with the same lively spread at different places; the last is rarely seen."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(3)
        self._means = self._rng.normal(size=(3, _DIMENSION)) * 0.6
        falling = np.linspace(1.5, 0.3, _DIMENSION)
        self._mixing = np.linalg.qr(self._rng.normal(size=(_DIMENSION, _DIMENSION)))[0] * falling

    def draw(self, index: int, count: int) -> Floats:
        spread = self._rng.normal(size=(count, _DIMENSION)) @ self._mixing.T
        drawn: Floats = (self._means[index] + spread).astype(np.float32)
        return drawn

    def detector(self, *, settings: RobustSettings) -> Detector:
        counts = (_RICH, _RICH, _POOR)
        features = np.concatenate([self.draw(i, n) for i, n in enumerate(counts)])
        labels = [name for name, n in zip("abc", counts, strict=True) for _ in range(n)]
        return Detector.fit(features, labels, settings=settings)


def _right(rooms: Rooms, detector: Detector, index: int) -> float:
    return float((detector.score(rooms.draw(index, 300)).nearest == index).mean())


def test_a_class_of_few_samples_is_recognised_beside_rich_ones() -> None:
    rooms = Rooms()
    fair, by_fre = (rooms.detector(settings=RobustSettings(opinions=o)) for o in (True, False))
    assert _right(rooms, by_fre, 2) < 0.2  # the reason why FRE alone is not asked
    assert _right(rooms, fair, 2) > 0.8
    assert min(_right(rooms, fair, 0), _right(rooms, fair, 1)) > 0.9


@pytest.mark.parametrize("kept", [1, 2])
def test_one_class_and_two_classes_have_a_nearest_class_too(kept: int) -> None:
    rooms = Rooms()
    detector = rooms.detector(settings=RobustSettings())
    for known in detector.classes[kept:]:
        detector = detector.without_class(known.id)
    assert _right(rooms, detector, 0) > 0.9


def test_a_merged_class_is_recognised_by_each_of_its_looks() -> None:
    rooms = Rooms()
    detector = rooms.detector(settings=RobustSettings()).merged("a", ["c"])
    assert [known.name for known in detector.classes] == ["a", "b"]
    for look in (0, 2):
        assert (detector.score(rooms.draw(look, 300)).nearest == 0).mean() > 0.8
    assert _right(rooms, detector, 1) > 0.8


def test_a_sample_far_beyond_everything_known_is_novel_whatever_its_direction() -> None:
    rooms = Rooms()
    detector = rooms.detector(settings=RobustSettings())
    mean = detector.classes[0].modes[0].mean
    far = np.stack([mean * length for length in (40.0, -40.0, 400.0)])
    assert detector.score(far).novel.all()


def test_more_of_the_same_light_is_no_news() -> None:
    """The opinions forget how long a feature vector is."""
    rooms = Rooms()
    detector = rooms.detector(settings=RobustSettings())
    by_fre = rooms.detector(settings=RobustSettings(opinions=False))
    brighter = rooms.draw(0, 300) * np.float32(1.25)
    assert detector.score(brighter).novel.mean() < 0.7 * by_fre.score(brighter).novel.mean()


def test_the_score_does_not_depend_on_the_rows_beside() -> None:
    rooms = Rooms()
    detector = rooms.detector(settings=RobustSettings())
    batch = rooms.draw(2, 50)
    alone = np.concatenate([detector.score(row[None]).score for row in batch])
    np.testing.assert_allclose(detector.score(batch).score, alone, rtol=1e-4)
