"""Runs the inner loop of one pool at a time, as far as its answers go."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from actors.boxes import Box, Shelf
from monitor.novelty.arrays import Floats
from monitor.novelty.trigger import Tally
from monitor.pipeline.learning import Ask, Conclusion, Learner, Progress, cluster, tally


class Updater:
    """Holds nothing that could not be computed again."""

    def __init__(self) -> None:
        self._shelf = Shelf()
        self._learner = Learner()

    def ready(self) -> None:
        """Answers once it has started."""

    def tally(self, box: Box, features: Floats, sources: np.ndarray) -> dict[str, Tally]:
        return tally(self._shelf.take(box), features, sources)

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
