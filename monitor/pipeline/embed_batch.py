"""Some rows of a file to features: the work of an embedder, one batch at a time."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from monitor.backbones.embed_images import Embedded, embed_part
from monitor.backbones.engine import Engine
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader
from monitor.feed.contract import Columns, RejectedRow, Row, RowIdentity
from monitor.feed.feed_storage import FeedStorage
from monitor.images.image_stats import STATS
from monitor.jobs.score_batch import EmbeddedBatch

PART_BYTES = 64 << 20
"""Encoded images that are in memory at once: a batch holds more only if its images are few and
large, and those are then embedded some at a time."""


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
        found: list[Embedded[RowIdentity]] = []
        unread: list[RejectedRow] = []
        first = planned.first_row
        end = planned.first_row + planned.rows
        while first < end:
            part = self._read(planned, first, end - first)
            first += len(part)
            unread += [row for row in part if isinstance(row, RejectedRow)]
            images = [(row.identity, row.image) for row in part if isinstance(row, Row)]
            size = self._engine.batch
            for start in range(0, len(images), size):
                found.append(embed_part(images[start : start + size], self._engine))
        dimension = self._engine.fingerprint.dimension
        features = [np.empty((0, dimension), np.float32), *(part.features for part in found)]
        rejected = [row.rejected(why) for part in found for row, why in part.rejected]
        stats = [np.empty((0, len(STATS)), np.float32), *(part.stats for part in found)]
        return EmbeddedBatch(
            planned,
            tuple(row for part in found for row in part.keys),
            np.concatenate(features),
            np.concatenate(stats),
            tuple(sorted((*unread, *rejected), key=lambda row: row.row)),
        )

    def _read(self, planned: PlannedBatch, first: int, rows: int) -> list[Row | RejectedRow]:
        """The rest of a batch, or some of it where images are large."""
        part: list[Row | RejectedRow] = []
        held = 0
        with self._reading:
            for row in self._reader.iter_rows(replace(planned, first_row=first, rows=rows)):
                part.append(row)
                held += len(row.image) if isinstance(row, Row) else 0
                if held > PART_BYTES:
                    break
        return part

    def close(self) -> None:
        self._reader.close()
