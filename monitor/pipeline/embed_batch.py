"""Some rows of a file to features: the work of an embedder, one batch at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from monitor.backbones.embed_images import embed_part
from monitor.backbones.engine import Engine
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader
from monitor.feed.contract import Columns
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.row_parsing import Row
from monitor.images.image_stats import STATS
from monitor.pipeline.score_batch import EmbeddedBatch


class BatchEmbedder:
    """Reads, decodes and embeds batches. May be called from several threads at once.

    Each thread decodes its own batch while others compute, which is all the overlap a backbone
    needs. Reading goes through one reader that keeps its place, since the batches of a file are
    asked for in order.
    """

    def __init__(
        self,
        source: FeedStorage,
        columns: Columns,
        engine: Engine,
        *,
        default_source: str | None = None,
    ) -> None:
        self._engine = engine
        self._reader = BatchReader(source, columns, default_source=default_source)
        self._reading = threading.Lock()

    def embed(self, planned: PlannedBatch) -> EmbeddedBatch:
        """Every row of the batch, embedded or rejected with its reason."""
        with self._reading:
            batch = self._reader.read(planned)
        found = [
            embed_part([(row.identity, row.image) for row in part], self._engine)
            for part in _parts(batch.rows, self._engine.batch)
        ]
        dimension = self._engine.fingerprint.dimension
        features = [np.empty((0, dimension), np.float32), *(part.features for part in found)]
        rejected = [row.rejected(why) for part in found for row, why in part.rejected]
        stats = [np.empty((0, len(STATS)), np.float32), *(part.stats for part in found)]
        return EmbeddedBatch(
            planned,
            tuple(row for part in found for row in part.keys),
            np.concatenate(features),
            np.concatenate(stats),
            tuple(sorted((*batch.rejected, *rejected), key=lambda row: row.row)),
        )

    def close(self) -> None:
        self._reader.close()


def _parts(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
