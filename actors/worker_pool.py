"""Workers of four roles, the detectors that they are sent, and a pool of them in one process.

Each role has its own tools, with which it runs its tasks. A detector version is read once, sent
once, and kept by number.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from threadpoolctl import threadpool_limits

from monitor.config import Config
from monitor.errors import ConcladError, ErrorKind
from monitor.jobs.from_config import (
    columns_of,
    decoding_of,
    feed_storage_of,
    load_detector,
    open_engine_of,
)
from monitor.jobs.score_batch import corrections_revision, read_corrections
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.pool_steps import CurrentDetector
from monitor.pipeline.worker_tasks import (
    ROLES,
    BatchEmbedder,
    Role,
    Task,
    ThumbnailReader,
    UpdaterTools,
)
from monitor.store import Store, Transaction
from monitor.store.records import Version

if TYPE_CHECKING:
    from monitor.backbones.engine import Engine


#: At the coordinator: the version in use, and the one that the pool under way began with.
SENT = 2
#: At a worker: one more, on its way.
RECEIVED = 3


@dataclass(frozen=True, slots=True)
class DetectorRef:
    """A version of the detector, or a reference to where Ray keeps it.

    Ray would fetch a reference that is an argument of its own; inside this class it stays closed
    until a worker needs what it refers to.
    """

    number: int
    content: Any


class DetectorCache:
    """The detectors that a worker has used lately."""

    def __init__(self) -> None:
        self._kept: dict[int, Detector] = {}

    def get(self, ref: DetectorRef) -> Detector:
        if ref.number not in self._kept:
            detector = _fetch(ref.content)
            while len(self._kept) >= RECEIVED:
                del self._kept[min(self._kept)]
            self._kept[ref.number] = detector
        return self._kept[ref.number]


def _fetch(content: Any) -> Detector:
    if isinstance(content, Detector):
        return content
    import ray

    found = ray.get(content)
    assert isinstance(found, Detector)
    return found


class DetectorVersions:
    """The versions that tasks name. Refuses those of another backbone.

    ``send`` gives a detector to the workers, once for each version, however many tasks name it.
    """

    def __init__(
        self,
        store: Store,
        fingerprint: Fingerprint,
        send: Callable[[int, Detector], DetectorRef],
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._send = send
        self._refs: dict[int, DetectorRef] = {}

    def refreshed(self, tx: Transaction, before: CurrentDetector | None) -> CurrentDetector:
        """The version in use now, with its corrections; what ``before`` has is not read again."""
        version = tx.versions.current()
        assert version is not None, "a monitor starts with a detector, and nothing takes it away"
        if before is None or version.number != before.number:
            return CurrentDetector(version.number, self._load(version), read_corrections(tx))
        if corrections_revision(tx) != before.corrections.revision:
            return replace(before, corrections=read_corrections(tx))
        return before

    def refs_of(self, task: Task) -> list[DetectorRef]:
        """The versions that a task names, in its order."""
        return [self.ref(number) for number in task.versions]

    def ref(self, number: int) -> DetectorRef:
        if number not in self._refs:
            with self._store.reading() as tx:
                version = tx.versions.get(number)
            self._load(version)
        return self._refs[number]

    def _load(self, version: Version) -> Detector:
        detector = load_detector(self._store, version, self._fingerprint)
        while len(self._refs) >= SENT:
            # The one that was sent first; should it be named again, it is read again.
            del self._refs[next(iter(self._refs))]
        self._refs[version.number] = self._send(version.number, detector)
        return detector


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

    def close(self) -> None:
        """Let go of what its tools hold open."""


class Embedder(Worker):
    """One copy of the backbone, and a reader of the feed. Image bytes never leave it."""

    def __init__(self, config: Config, open_engine: EngineFactory) -> None:
        # Its cores are the engine's: a small product of several threads would wait for them.
        threadpool_limits(1, "blas")
        self._engine = open_engine(config)
        super().__init__(embedder_tools(config, self._engine))

    def ready(self) -> Fingerprint:
        """What its features are like; answered once the backbone is loaded."""
        return self._engine.fingerprint

    def close(self) -> None:
        self._tools.close()


def embedder_tools(config: Config, engine: Engine) -> BatchEmbedder:
    """What embeds the batches of a feed."""
    return BatchEmbedder(
        feed_storage_of(config),
        columns_of(config),
        engine,
        default_source=config.feed.default_source,
        reuse=config.feed.reuse_unchanged,
    )


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
                feed_storage_of(config),
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


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """The end of a task: its result, or the error that it ended with.

    Of an ``EmbedBatch`` the result is a pair: its seconds, and something to give to a
    ``ScoreBatch``. ``died`` says that the worker was lost with the task, which says nothing yet
    about whose fault it is.
    """

    task: Task
    result: Any = None
    error: BaseException | None = None
    died: bool = False


class WorkerPool(Protocol):
    """Workers of four roles. A task is run at least once; what counts is what gets committed."""

    def start(self) -> Fingerprint:
        """Start all workers; says what the embedders' features are like."""

    def room(self, role: Role) -> int:
        """How many more tasks a role should be given now."""

    def capacity(self, role: Role) -> int:
        """How many tasks a role takes at once."""

    def submit(self, task: Task, detectors: Sequence[DetectorRef] = (), *features: Any) -> None:
        """Give out a task; its end comes from :meth:`wait`."""

    def wait(self, timeout: float) -> list[Done]:
        """What has ended meanwhile; returns at once if anything has."""

    def send(self, number: int, detector: Detector) -> DetectorRef:
        """A detector to be named in tasks."""

    def scale(self, waiting: int) -> None:
        """Grow or shrink for so many batches that wait."""

    def up(self) -> dict[str, int]:
        """Workers that are alive, by role."""

    def starting(self) -> dict[str, int]:
        """Workers that are not ready yet, or wait for a node, by role."""

    def restarts(self) -> dict[str, int]:
        """Workers that had to be replaced so far, by role."""

    def forget(self) -> None:
        """Drop every task that is under way: nobody waits for what comes of it."""

    def resume(self) -> None:
        """Be ready to work again, where what the workers run on was lost; raises if it still is."""

    def close(self) -> None:
        """End all workers."""


class InlineWorkerPool:
    """A worker of each role in this process, one task after the other."""

    def __init__(self, config: Config, open_engine: EngineFactory = open_engine_of) -> None:
        self._config = config
        self._open_engine = open_engine
        self._queue: deque[tuple[Task, Sequence[DetectorRef], tuple[Any, ...]]] = deque()
        self._restarts: dict[str, int] = {}
        self._workers: dict[Role, Worker] = {}

    def start(self) -> Fingerprint:
        self._workers = {role: WORKERS[role](self._config, self._open_engine) for role in ROLES}
        fingerprint = self._workers["embedder"].ready()
        assert fingerprint is not None
        return fingerprint

    def room(self, role: Role) -> int:
        return self.capacity(role) - sum(task.role == role for task, *_ in self._queue)

    def capacity(self, role: Role) -> int:
        return 2

    def submit(self, task: Task, detectors: Sequence[DetectorRef] = (), *features: Any) -> None:
        self._queue.append((task, detectors, features))

    def wait(self, timeout: float) -> list[Done]:
        if not self._queue:
            time.sleep(timeout)
            return []
        task, detectors, features = self._queue.popleft()
        try:
            return [Done(task, self._workers[task.role].run(task, detectors, *features))]
        except ConcladError as error:
            if error.kind is ErrorKind.WORKER:
                self._replace(task.role)
            return [Done(task, error=error)]
        except Exception as error:  # noqa: BLE001 - whoever gave the task out judges it
            return [Done(task, error=error)]

    def _replace(self, role: Role) -> None:
        self._restarts[role] = self._restarts.get(role, 0) + 1
        self._workers[role] = WORKERS[role](self._config, self._open_engine)

    def send(self, number: int, detector: Detector) -> DetectorRef:
        return DetectorRef(number, detector)

    def scale(self, waiting: int) -> None:
        return

    def up(self) -> dict[str, int]:
        return dict.fromkeys(ROLES, 1)

    def starting(self) -> dict[str, int]:
        return {}

    def restarts(self) -> dict[str, int]:
        return dict(self._restarts)

    def forget(self) -> None:
        self._queue.clear()

    def resume(self) -> None:
        return

    def close(self) -> None:
        self._queue.clear()
        for worker in self._workers.values():
            worker.close()
