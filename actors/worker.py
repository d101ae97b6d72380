"""The workers of the four roles: the tools of each, with which it runs its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from actors.detector_refs import DetectorCache, DetectorRef
from monitor.config import Config
from monitor.feed.feed_storage import FeedStorage
from monitor.jobs.from_config import columns_of, decoding_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.row_thumbnails import ThumbnailReader
from monitor.pipeline.worker_tasks import Role, Task, UpdaterTools

if TYPE_CHECKING:
    from monitor.backbones.engine import Engine

EngineFactory = Callable[[Config], "Engine"]


class Worker:
    """Runs tasks of one role. Holds nothing that could not be computed again."""

    def __init__(self, tools: Any = None) -> None:
        self._tools = tools
        self._detectors = DetectorCache()

    def ready(self) -> Fingerprint | None:
        """Answers once it has started."""
        return None

    def run(self, task: Task, detectors: Sequence[DetectorRef], *features: Any) -> Any:
        """The result of a task; ``features`` are what an earlier task left with the workers."""
        given: list[Any] = [*map(self._detectors.get, detectors), *features]
        return task.run(self._tools, *given)


class Embedder(Worker):
    """One copy of the backbone, and a reader of the feed. Image bytes never leave it."""

    def __init__(self, config: Config, open_engine: EngineFactory) -> None:
        # Here rather than above: only an embedder needs the backbone's framework.
        from monitor.pipeline.embed_batch import BatchEmbedder

        # Its cores are the engine's: a small product of several threads would wait for them.
        threadpool_limits(1, "blas")
        self._engine = open_engine(config)
        super().__init__(
            BatchEmbedder(
                FeedStorage.at(config.feed.path),
                columns_of(config),
                self._engine,
                default_source=config.feed.default_source,
            )
        )

    def ready(self) -> Fingerprint:
        """What its features are like; answered once the backbone is loaded."""
        return self._engine.fingerprint


class Scorer(Worker):
    """Needs nothing but the detector that a task names."""

    def __init__(self, config: Config, open_engine: EngineFactory) -> None:
        super().__init__()


class Querier(Worker):
    """Reads single rows of the feed."""

    def __init__(self, config: Config, open_engine: EngineFactory) -> None:
        columns = columns_of(config)
        if config.labels.oracle_column is not None:
            columns = replace(columns, label=config.labels.oracle_column)
        super().__init__(
            ThumbnailReader(
                FeedStorage.at(config.feed.path),
                columns,
                decoding_of(config),
                default_source=config.feed.default_source,
            )
        )


class Updater(Worker):
    """Inspects pools and runs their inner loops, one at a time."""

    def __init__(self, config: Config, open_engine: EngineFactory) -> None:
        super().__init__(UpdaterTools())


WORKERS: Mapping[Role, Callable[[Config, EngineFactory], Worker]] = {
    "embedder": Embedder,
    "scorer": Scorer,
    "querier": Querier,
    "updater": Updater,
}
