"""Small worlds of classes to test on, from plain Gaussian blobs to what a backbone gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.novelty.array_types import Floats
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import Detector


class World:
    """Classes that can be drawn from again and again: blobs with a spread of their own each."""

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

    def detector(self, known: int = 3, *, settings: MethodSettings | None = None) -> Detector:
        features, labels = self.labelled(range(known), 120)
        return Detector.fit(features, labels, settings=settings)

    def pool(self, sizes: dict[int, int], *, seed: int = 0) -> tuple[Floats, list[str]]:
        """So many of each class, shuffled, and their names."""
        features = np.concatenate([self.draw(c, n) for c, n in sizes.items()])
        labels = [name(c) for c, n in sizes.items() for _ in range(n)]
        order = np.random.default_rng(seed).permutation(len(labels))
        return features[order], [labels[i] for i in order]


class BackboneWorld(World):
    """Features as a pooled backbone gives them: never negative, of falling variance, and of
    lengths that vary from image to image more than from class to class."""

    def __init__(self, classes: int = 6, dimension: int = 96, *, seed: int = 0) -> None:
        super().__init__(classes, dimension, seed=seed)
        falling = np.geomspace(1.0, 0.05, dimension)
        self._means = self._rng.normal(size=(classes, dimension)) * falling * 0.9
        self._shared = np.linalg.qr(self._rng.normal(size=(dimension, dimension)))[0]
        self._falling = falling

    def draw(self, index: int, count: int) -> Floats:
        noise = self._rng.normal(size=(count, len(self._falling))) * self._falling
        activations = np.maximum((self._means[index] + noise) @ self._shared + 0.3, 0.0)
        length = np.exp(self._rng.normal(0.0, 0.25, size=(count, 1)))
        drawn: Floats = (activations * length).astype(np.float32)
        return drawn


def name(index: int) -> str:
    return f"class-{index}"
