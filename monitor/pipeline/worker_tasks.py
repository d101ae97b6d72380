"""The work that takes long, one class for each kind: who does it, with what, and what comes back.

A task is a value that travels to a worker of its ``role`` and runs there with the tools of that
role and the detectors that it names by their version. Nothing here knows where the workers are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from monitor.feed.batch_plan import PlannedBatch
from monitor.jobs.score_batch import UNCORRECTED, EmbeddedBatch, ShiftCorrections, score_batch
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.trigger.measure_pool_novelty import Measure, MeasuredPools
from monitor.pipeline.embedder_and_querier_tools import BatchEmbedder, RowThumbnail, ThumbnailReader
from monitor.pipeline.finish_pool import PoolSettlement, SettlementInput, settle
from monitor.pipeline.inner_loop_driver import (
    InnerLoopDriver,
    LoopConclusion,
    LoopInput,
    RoundToAsk,
    cluster_pool,
)
from monitor.pipeline.pool_inspection import PoolInspection, SourceHistory, inspect_pool
from monitor.store import ScoredBatch
from monitor.store.scored_batches import SpoolPlace, spool_features

Role = Literal["embedder", "scorer", "querier", "updater"]
ROLES: tuple[Role, ...] = ("embedder", "scorer", "querier", "updater")


class UpdaterTools:
    """What an updater keeps between two tasks; all of it could be computed again."""

    def __init__(self) -> None:
        self.driver = InnerLoopDriver()
        self._sketch: tuple[int, Sketch] | None = None
        self._pools = MeasuredPools()

    def sketch_of(self, version: int, detector: Detector) -> Sketch:
        if self._sketch is None or self._sketch[0] != version:
            self._sketch = (version, Sketch.of(detector))
        return self._sketch[1]

    def measure_by(self, version: int) -> Measure:
        """Measures pools by the detector of a version; of a pool that is looked at twice, once."""
        return partial(self._pools.measure, version)


@dataclass(frozen=True, slots=True)
class EmbedBatch:
    """Read, decode and embed a batch.

    Gives the seconds that it took, and the features, which stay where they were computed: whoever
    waits for the task gets something to hand to :class:`ScoreBatch`.
    """

    role: ClassVar[Role] = "embedder"
    batch_id: int
    planned: PlannedBatch
    alone: bool = False
    """Whether its worker may have died of it before: one that others share runs nothing beside."""

    @property
    def versions(self) -> tuple[int, ...]:
        return ()

    def run(self, tools: BatchEmbedder) -> tuple[float, EmbeddedBatch]:
        began = time.perf_counter()
        batch = tools.embed(self.planned)
        return time.perf_counter() - began, batch


@dataclass(frozen=True, slots=True)
class ScoreBatch:
    """Score an embedded batch, which is passed with the task, against every known class.

    Large features are staged at ``spool``, where this worker can reach it.
    """

    role: ClassVar[Role] = "scorer"
    batch_id: int
    version: int
    corrections: ShiftCorrections = UNCORRECTED
    """Of shifted sources only, some kilobytes each."""
    spool: SpoolPlace | None = None

    @property
    def versions(self) -> tuple[int, ...]:
        return (self.version,)

    def run(self, tools: None, detector: Detector, batch: EmbeddedBatch) -> ScoredBatch:
        scored = score_batch(self.batch_id, batch, detector, self.version, self.corrections)
        return spool_features(scored, self.spool)


@dataclass(frozen=True, slots=True)
class RenderThumbnails:
    """Thumbnails of single rows of the feed: of the next questions, or of pseudo-labels."""

    role: ClassVar[Role] = "querier"
    pool_id: int
    rows: tuple[tuple[str, int], ...]
    """Files, and rows in them."""
    of: Literal["questions", "pseudo-labels"]
    digests: tuple[str | None, ...] | None = None
    """Of each row: the hash of the image that was scored there."""

    @property
    def versions(self) -> tuple[int, ...]:
        return ()

    def run(self, tools: ThumbnailReader) -> list[RowThumbnail]:
        return tools.render(self.rows, self.digests)


@dataclass(frozen=True, slots=True, eq=False)
class InspectPool:
    """Weigh a pool: what seems new in it, and what a shift explains."""

    role: ClassVar[Role] = "updater"
    pool_id: int
    version: int
    features: Floats
    sources: np.ndarray
    stats: Floats
    history: SourceHistory
    settings: DriftSettings

    @property
    def versions(self) -> tuple[int, ...]:
        return (self.version,)

    def run(self, tools: UpdaterTools, detector: Detector) -> PoolInspection:
        return inspect_pool(
            tools.sketch_of(self.version, detector),
            self.features,
            self.sources,
            self.stats,
            self.history,
            self.settings,
            measure=tools.measure_by(self.version),
        )


@dataclass(frozen=True, slots=True, eq=False)
class AdvanceInnerLoop:
    """Take the inner loop of a pool to its next round of questions, or to its end.

    ``base`` is the version that the pool was first asked about with.
    """

    role: ClassVar[Role] = "updater"
    pool_id: int
    version: int
    base: int
    state: LoopInput
    names: Mapping[str, str]
    features: Floats

    @property
    def versions(self) -> tuple[int, ...]:
        return (self.base, self.version)

    def run(
        self, tools: UpdaterTools, base: Detector, current: Detector
    ) -> RoundToAsk | LoopConclusion:
        return tools.driver.advance(self.state, base, current, self.names, self.features)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterPool:
    """Make provisional classes of what seems new in a pool that nobody answered about."""

    role: ClassVar[Role] = "updater"
    pool_id: int
    version: int
    features: Floats
    seed: int

    @property
    def versions(self) -> tuple[int, ...]:
        return (self.version,)

    def run(self, tools: UpdaterTools, current: Detector) -> LoopConclusion:
        return cluster_pool(self.pool_id, current, self.features, self.seed)


@dataclass(frozen=True, slots=True, eq=False)
class SettlePool:
    """Settle the verdicts of a pool that is over, and teach its classes.

    ``base`` is the version that the pool was asked about with, or the one in use.
    """

    role: ClassVar[Role] = "updater"
    pool_id: int
    version: int
    base: int
    state: SettlementInput
    features: Floats

    @property
    def versions(self) -> tuple[int, ...]:
        return (self.base, self.version)

    def run(self, tools: UpdaterTools, base: Detector, current: Detector) -> PoolSettlement:
        measure = tools.measure_by(self.base)
        return settle(self.state, base, current, self.features, measure=measure)


PoolTask = RenderThumbnails | InspectPool | AdvanceInnerLoop | ClusterPool | SettlePool
Task = EmbedBatch | ScoreBatch | PoolTask
