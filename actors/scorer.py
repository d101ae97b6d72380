"""Scores features with the version it is told to use."""

from __future__ import annotations

from actors.boxes import Box, Shelf
from monitor.pipeline.embedded import EmbeddedBatch
from monitor.pipeline.judging import Judged, judge


class Scorer:
    """Holds the detector in use; a new version takes effect between two batches."""

    def __init__(self) -> None:
        self._shelf = Shelf()

    def ready(self) -> None:
        """Answers once it has started."""

    def score(self, batch: EmbeddedBatch, box: Box) -> Judged:
        return judge(batch, self._shelf.take(box), box.number)
