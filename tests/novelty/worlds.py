"""Small worlds of classes to test on: Gaussian blobs with a spread of their own each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.settings import Settings


class World:
    """Classes that can be drawn from again and again."""

    def __init__(self, classes: int = 6, dimension: int = 24, *, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._means = self._rng.normal(size=(classes, dimension)) * 2.5
        self._mixing = self._rng.normal(size=(classes, dimension, dimension)) * 0.25

    def draw(self, index: int, count: int) -> Floats:
        noise = self._rng.normal(size=(count, len(self._means[index])))
        drawn: Floats = (self._means[index] + noise @ self._mixing[index]).astype(np.float32)
        return drawn

    def labelled(self, classes: Sequence[int], count: int) -> tuple[Floats, list[str]]:
        features = np.concatenate([self.draw(c, count) for c in classes])
        return features, [name(c) for c in classes for _ in range(count)]

    def detector(self, known: int = 3, *, settings: Settings | None = None) -> Detector:
        features, labels = self.labelled(range(known), 120)
        return Detector.fit(features, labels, settings=settings)


def name(index: int) -> str:
    return f"class-{index}"
