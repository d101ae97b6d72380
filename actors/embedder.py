"""Reads, decodes and embeds batches. Image bytes never leave it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from monitor.config import Config
from monitor.feed.plan import BatchSpec
from monitor.feed.source import Source
from monitor.jobs.parts import columns_of, open_engine_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.embedded import EmbeddedBatch

if TYPE_CHECKING:
    from monitor.feed.engine import Engine

EngineFactory = Callable[[Config], "Engine"]


@dataclass(frozen=True, slots=True)
class Header:
    """What the coordinator needs to know of a batch, whose features stay where they are."""

    embedded: int
    rejected: int
    seconds: float


class Embedder:
    """One copy of the backbone, and a reader of the feed."""

    def __init__(self, config: Config, open_engine: EngineFactory = open_engine_of) -> None:
        # Here rather than above: the coordinator names this class and should not load torch.
        from monitor.pipeline.embedding import BatchEmbedder

        # Its cores are the engine's: a small product of several threads would wait for them.
        threadpool_limits(1, "blas")
        self._engine = open_engine(config)
        self._work = BatchEmbedder(
            Source.at(config.feed.path),
            columns_of(config),
            self._engine,
            default_source=config.feed.default_source,
        )

    def ready(self) -> Fingerprint:
        """What its features are like; answered once the backbone is loaded."""
        return self._engine.fingerprint

    def embed(self, spec: BatchSpec) -> tuple[Header, EmbeddedBatch]:
        began = time.perf_counter()
        batch = self._work.embed(spec)
        seconds = time.perf_counter() - began
        return Header(len(batch.places), len(batch.rejected), seconds), batch
