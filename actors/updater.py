"""Runs the inner loop of one pool at a time, as far as its answers go."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from actors.boxes import Box, Shelf
from monitor.novelty.arrays import Floats
from monitor.novelty.drift import DriftSettings, Sketch
from monitor.pipeline.learning import Ask, Conclusion, Learner, Progress, cluster
from monitor.pipeline.looking import Looked, Past, look


class Updater:
    """Holds nothing that could not be computed again."""

    def __init__(self) -> None:
        self._shelf = Shelf()
        self._learner = Learner()
        self._sketch: tuple[int, Sketch] | None = None

    def ready(self) -> None:
        """Answers once it has started."""

    def look(
        self,
        box: Box,
        features: Floats,
        sources: np.ndarray,
        stats: Floats,
        past: Past,
        settings: DriftSettings,
    ) -> Looked:
        if self._sketch is None or self._sketch[0] != box.number:
            self._sketch = (box.number, Sketch.of(self._shelf.take(box)))
        return look(self._sketch[1], features, sources, stats, past, settings)

    def advance(
        self,
        base: Box,
        current: Box,
        progress: Progress,
        names: Mapping[str, str],
        features: Floats,
    ) -> Ask | Conclusion:
        return self._learner.advance(
            progress, self._shelf.take(base), self._shelf.take(current), names, features
        )

    def cluster(self, box: Box, pool_id: int, features: Floats, seed: int) -> Conclusion:
        return cluster(pool_id, self._shelf.take(box), features, seed)
