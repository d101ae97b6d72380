"""Who does the work: what the coordinator asks of a crew, and a crew of one process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from actors.boxes import Box
from actors.embedder import Embedder, EngineFactory
from actors.querier import Querier
from actors.scorer import Scorer
from actors.updater import Updater
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.jobs.parts import open_engine_of
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint

Role = Literal["embedder", "scorer", "querier", "updater"]
ROLES: tuple[Role, ...] = ("embedder", "scorer", "querier", "updater")


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """The end of one piece of work.

    ``value`` of an embedder is a pair: the header, and something to hand to a scorer. ``died``
    says that the worker was lost with the work, which says nothing yet about whose fault it is.
    """

    role: Role
    key: Hashable
    value: Any = None
    error: BaseException | None = None
    died: bool = False


class Crew(Protocol):
    """Workers of four roles. Work is done at least once; what counts is what gets committed."""

    def start(self) -> Fingerprint:
        """Bring everybody up; says what the embedders' features are like."""

    def room(self, role: Role) -> int:
        """How many more pieces of work a role should be given now."""

    def capacity(self, role: Role) -> int:
        """How many pieces of work a role takes at once."""

    def submit(self, role: Role, key: Hashable, method: str, *arguments: Any) -> None:
        """Give out a piece of work; its end comes from :meth:`wait`."""

    def wait(self, timeout: float) -> list[Done]:
        """What has ended meanwhile; returns at once if anything has."""

    def box(self, number: int, detector: Detector) -> Box:
        """A detector to be named in calls."""

    def heed(self, waiting: int) -> None:
        """Hear how many batches wait: a crew may grow and shrink with it."""

    def up(self) -> dict[str, int]:
        """Workers that are alive, by role."""

    def starting(self) -> dict[str, int]:
        """Workers that are not ready yet, or wait for a node, by role."""

    def restarts(self) -> dict[str, int]:
        """Workers that had to be replaced so far, by role."""

    def close(self) -> None:
        """Send everybody home."""


class InlineCrew:
    """The same work in the one process, piece by piece: for small machines, and for tests."""

    def __init__(self, config: Config, open_engine: EngineFactory = open_engine_of) -> None:
        self._config = config
        self._open_engine = open_engine
        self._queue: deque[tuple[Role, Hashable, str, tuple[Any, ...]]] = deque()

    def start(self) -> Fingerprint:
        embedder = Embedder(self._config, self._open_engine)
        self._workers = {
            "embedder": embedder,
            "scorer": Scorer(),
            "querier": Querier(self._config),
            "updater": Updater(),
        }
        return embedder.ready()

    def room(self, role: Role) -> int:
        return self.capacity(role) - sum(waiting[0] == role for waiting in self._queue)

    def capacity(self, role: Role) -> int:
        return 2

    def submit(self, role: Role, key: Hashable, method: str, *arguments: Any) -> None:
        self._queue.append((role, key, method, arguments))

    def wait(self, timeout: float) -> list[Done]:
        if not self._queue:
            time.sleep(timeout)
            return []
        role, key, method, arguments = self._queue.popleft()
        try:
            return [Done(role, key, getattr(self._workers[role], method)(*arguments))]
        except ConcladError as error:
            return [Done(role, key, error=error)]

    def box(self, number: int, detector: Detector) -> Box:
        return Box(number, detector)

    def heed(self, waiting: int) -> None:
        return

    def up(self) -> dict[str, int]:
        return dict.fromkeys(ROLES, 1)

    def starting(self) -> dict[str, int]:
        return {}

    def restarts(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._queue.clear()
