"""What the coordinator asks of its workers, and workers in the one process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from actors.detector_refs import DetectorRef
from actors.worker import WORKERS, EngineFactory
from monitor.config import Config
from monitor.errors import ConcladError, ErrorKind
from monitor.jobs.from_config import open_engine_of
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.worker_tasks import ROLES, EmbedBatch, Role, Task


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
        except Exception as error:
            # Whatever a library raises is the batch's fault until others fail alike.
            if not isinstance(task, EmbedBatch):
                raise
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
