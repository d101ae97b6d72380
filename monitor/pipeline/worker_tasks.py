"""The work that takes long, one class for each kind: who does it, with what, and what comes back.

A task is a value that travels to a worker of its ``role`` and runs there with the tools of that
role and the detectors that it names by their version. Nothing here knows where the workers are.
Image bytes are read on the node of the worker; features or newly encoded thumbnails are returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader, read_pieces
from monitor.feed.errors import FeedError, SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns, RejectedRow, Row, RowIdentity
from monitor.images.decode import Decoding
from monitor.images.image_stats import STATS
from monitor.images.isolated_decoding import decoders_for
from monitor.images.reject_reasons import Rejected
from monitor.images.thumbnail import SIDE
from monitor.jobs.score_batch import (
    UNCORRECTED,
    CopiedRow,
    EmbeddedBatch,
    ShiftCorrections,
    score_batch,
)
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.trigger.measure_pool_novelty import Measure, MeasuredPools
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

if TYPE_CHECKING:
    from monitor.backbones.embed_images import Embedded, Reuse
    from monitor.backbones.engine import Engine

Role = Literal["embedder", "scorer", "querier", "updater"]
ROLES: tuple[Role, ...] = ("embedder", "scorer", "querier", "updater")


# -- the tools of workers ---------------------------------------------------------------------


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
        reuse: Reuse = "never",
    ) -> None:
        # Here rather than above: only an embedder needs the backbone's framework.
        from monitor.backbones.embed_images import embed_frames

        self._engine = engine
        self._embed_frames = embed_frames
        self._reuse = reuse
        self._reader = BatchReader(source, columns, default_source=default_source)
        self._reading = threading.Lock()

    def embed(self, planned: PlannedBatch) -> EmbeddedBatch:
        """Every row of the batch: embedded, a copy of another, or rejected with its reason."""
        found: list[Embedded[RowIdentity]] = []
        unread: list[RejectedRow] = []
        pieces = read_pieces(self._reader, planned)
        while piece := self._next(pieces):
            unread += [row for row in piece if isinstance(row, RejectedRow)]
            images = [(row.identity, row.image) for row in piece if isinstance(row, Row)]
            found.append(
                self._embed_frames(images, self._engine, self._reuse, attrgetter("source_id"))
            )
        dimension = self._engine.fingerprint.dimension
        features = [np.empty((0, dimension), np.float32), *(part.features for part in found)]
        rejected = [row.rejected(why) for part in found for row, why in part.rejected]
        stats = [np.empty((0, len(STATS)), np.float32), *(part.stats for part in found)]
        before = list(accumulate((len(part.keys) for part in found), initial=0))
        numbered = list(zip(found, before, strict=False))
        return EmbeddedBatch(
            planned,
            tuple(row for part in found for row in part.keys),
            np.concatenate(features),
            np.concatenate(stats),
            tuple(sorted((*unread, *rejected), key=lambda row: row.row)),
            tuple(CopiedRow(row, n + at) for part, n in numbered for row, at in part.copies),
            tuple((n + one, n + of) for part, n in numbered for one, of in part.checked),
        )

    def _next(self, pieces: Iterator[list[Row | RejectedRow]]) -> list[Row | RejectedRow]:
        """The rest of a batch, or some of it where images are large; nothing at its end."""
        with self._reading:
            return next(pieces, [])

    def close(self) -> None:
        self._reader.close()


#: A file that alone stays away for so long is gone: then there is no picture of its images.
ALONE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RowThumbnail:
    """What a person is shown, and what the label column says, if there is one.

    Both may be None: a feed's file can be gone by the time somebody is asked about it.
    """

    thumbnail: bytes | None = None
    label: str | None = None
    is_other: bool = False
    """Whether another image stands there than the one that was scored: it is not shown."""


class ThumbnailReader:
    """Reads single rows of the feed and renders them."""

    def __init__(
        self,
        source: FeedStorage,
        columns: Columns,
        decoding: Decoding,
        *,
        default_source: str | None = None,
        side: int = SIDE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._away_since: float | None = None
        self._source = source
        self._columns = columns
        self._decoding = decoding
        self._default_source = default_source
        self._side = side

    def render(
        self,
        places: Sequence[tuple[str, int]],
        digests: Sequence[str | None] | None = None,
    ) -> list[RowThumbnail]:
        """One thumbnail for each (file, row), in their order.

        With ``digests`` only of images that are still those which were scored. Raises
        SourceUnavailable while the feed is away: a question without its picture is a lost one.
        """
        known = digests or [None] * len(places)
        order = sorted(range(len(places)), key=lambda i: places[i])
        chosen = [(*places[i], known[i]) for i in order]
        rendered = dict(zip(order, self._in_order(chosen), strict=True))
        return [rendered[i] for i in range(len(places))]

    def _in_order(self, places: Sequence[tuple[str, int, str | None]]) -> Iterator[RowThumbnail]:
        """Sorted by file and row, so that each file is walked through once."""
        with BatchReader(
            self._source, self._columns, default_source=self._default_source
        ) as reader:
            for path, row, digest in places:
                try:
                    found = reader.read_row(path, row)
                except SourceUnavailable as error:
                    self._check_alone(error)
                    yield RowThumbnail()
                except FeedError:
                    yield RowThumbnail()
                else:
                    self._away_since = None
                    yield self._thumbnail(found, digest) if found else RowThumbnail()

    def _check_alone(self, error: SourceUnavailable) -> None:
        """Raise, unless the feed is there and only this file has been away for long."""
        now = self._clock()
        self._away_since = now if self._away_since is None else self._away_since
        if not self._source.is_there() or now - self._away_since < ALONE_SECONDS:
            raise error

    def _thumbnail(self, row: Row, digest: str | None) -> RowThumbnail:
        if digest is not None and row.identity.digest != digest:
            return RowThumbnail(is_other=True)
        rendered = decoders_for(self._decoding).thumbnail(row.image, self._side)
        return RowThumbnail(None if isinstance(rendered, Rejected) else rendered, row.label)


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


# -- the tasks --------------------------------------------------------------------------------


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
