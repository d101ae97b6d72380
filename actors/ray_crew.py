"""The crew as Ray actors: replaced when they die, wherever there is room for them.

Ray could restart actors by itself; then calls on their way may arrive twice, late or not at all.
Here a dead actor is simply gone, everything it had in hand is reported as lost, and another one
takes its place, so there is one kind of failure and one way to deal with it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    RayActorError,
    RayError,
    RayTaskError,
)

from actors.boxes import Box
from actors.cluster import Places
from actors.crew import ROLES, Done, Role
from actors.embedder import Embedder, EngineFactory
from actors.querier import Querier
from actors.scorer import Scorer
from actors.updater import Updater
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.jobs.parts import open_engine_of
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint

#: Batches that wait at a scorer: scoring takes milliseconds, so a few hide every delay.
SCORER_ROOM = 8
#: A worker that cannot even start is tried again after this time, and longer each time.
RESTART_SECONDS, RESTART_MOST_SECONDS = 0.5, 30.0
#: How long a backbone may take to load on a slow disk or a crowded machine.
START_SECONDS = 600.0
#: How often a worker may be lost before it has begun; what its own code raises counts at once.
START_TRIES = 5


class WorkerFailed(ConcladError):
    """An actor could not start, and would not the next time either."""


@dataclass(slots=True)
class _Worker:
    role: Role
    actor: Any = None
    starting: Any = None
    """Ends when the actor is ready; until then it is given nothing to do."""
    busy: int = 0
    failures: int = 0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class _Call:
    """A piece of work on its way; ``payload`` stays in the cluster's memory."""

    worker: _Worker
    actor: Any
    key: Hashable
    payload: Any = field(default=None)


class RayCrew:
    """Embedders and scorers as configured, one querier, one updater."""

    def __init__(
        self, config: Config, places: Places, open_engine: EngineFactory = open_engine_of
    ) -> None:
        self._config = config.model_copy(
            update={"backbone": config.backbone.model_copy(update={"threads": places.threads})}
        )
        self._places = places
        self._open_engine = open_engine
        counts = {"embedder": places.embedders, "scorer": config.run.scorers}
        self._workers = [_Worker(role) for role in ROLES for _ in range(counts.get(role, 1))]
        self._calls: dict[Any, _Call] = {}
        self._waiting: list[tuple[Role, Hashable, str, tuple[Any, ...]]] = []
        self._restarts: dict[str, int] = {}

    # -- life and death ---------------------------------------------------------------------

    def start(self) -> Fingerprint:
        """Bring everybody up. One embedder is enough: the others may wait for their nodes."""
        for worker in self._workers:
            self._hire(worker)
        first = {worker.role: worker for worker in reversed(self._workers)}
        found = {role: self._await(worker) for role, worker in first.items()}
        fingerprint = found["embedder"]
        assert isinstance(fingerprint, Fingerprint)
        return fingerprint

    def _await(self, worker: _Worker) -> Any:
        """Wait for a worker at the start; what keeps it from starting is said in one sentence."""
        for left in reversed(range(START_TRIES)):
            try:
                found = ray.get(worker.starting, timeout=START_SECONDS)
            except RayTaskError as error:
                raise _cause(error) from error
            except RayActorError as error:
                if error.actor_init_failed or not left:
                    raise WorkerFailed(_why_it_died(worker.role, error)) from error
                # Its node or its process was lost before it began: another one may do better.
                self._replace(worker)
                self._hire(worker)
                continue
            except GetTimeoutError as error:
                raise WorkerFailed(
                    f"no {worker.role} was ready within {START_SECONDS:g} s; is the cluster full?"
                ) from error
            break
        worker.starting = None
        return found

    def _hire(self, worker: _Worker) -> None:
        worker.actor = self._actor(worker.role)
        worker.starting = worker.actor.ready.remote()

    def _actor(self, role: Role) -> Any:
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0}
        if role == "embedder":
            options |= {
                "num_cpus": self._places.cpus,
                "num_gpus": self._places.gpus,
                "resources": self._config.run.embedder_resources or None,
                # A thread more than cores: while some compute, one decodes.
                "max_concurrency": self._places.threads + 1,
            }
            actor = ray.remote(**options)(Embedder)
            return actor.remote(self._config, self._open_engine)
        if role == "querier":
            return ray.remote(**options)(Querier).remote(self._config)
        return ray.remote(**options)(Scorer if role == "scorer" else Updater).remote()

    def _replace(self, worker: _Worker) -> None:
        with contextlib.suppress(RayError, ValueError):
            ray.kill(worker.actor)
        worker.actor = worker.starting = None
        worker.busy = 0
        pause = min(RESTART_SECONDS * 2**worker.failures, RESTART_MOST_SECONDS)
        worker.not_before = time.monotonic() + (pause if worker.failures else 0.0)
        worker.failures += 1
        self._restarts[worker.role] = self._restarts.get(worker.role, 0) + 1

    def _living(self, role: Role) -> Iterator[_Worker]:
        """The workers of a role that are ready; those that are due are hired on the way."""
        for worker in self._workers:
            if worker.role != role:
                continue
            if worker.actor is None and time.monotonic() >= worker.not_before:
                self._hire(worker)
            if worker.starting is not None:
                self._see_whether_ready(worker)
            if worker.actor is not None and worker.starting is None:
                yield worker

    def _see_whether_ready(self, worker: _Worker) -> None:
        ready, _ = ray.wait([worker.starting], timeout=0.0)
        if ready:
            try:
                ray.get(ready[0])
                worker.starting = None
            except RayError:
                self._replace(worker)

    # -- work -------------------------------------------------------------------------------

    def capacity(self, role: Role) -> int:
        return self._each(role) * sum(worker.role == role for worker in self._workers)

    def room(self, role: Role) -> int:
        return sum(max(0, self._each(role) - worker.busy) for worker in self._living(role))

    def _each(self, role: Role) -> int:
        if role == "embedder":
            return self._places.threads + 1 + self._config.run.in_flight
        return SCORER_ROOM if role == "scorer" else 1

    def submit(self, role: Role, key: Hashable, method: str, *arguments: Any) -> None:
        self._waiting.append((role, key, method, arguments))
        self._give_out()

    def _give_out(self) -> None:
        """Hand over what waits, as far as there is anybody to take it.

        Nobody may be there for a while: the only updater has died, and another one starts.
        """
        left = []
        for role, key, method, arguments in self._waiting:
            worker = min(self._living(role), key=lambda w: w.busy, default=None)
            if worker is None:
                left.append((role, key, method, arguments))
                continue
            worker.busy += 1
            call = getattr(worker.actor, method)
            if role == "embedder":
                header, payload = call.options(num_returns=2).remote(*arguments)
                self._calls[header] = _Call(worker, worker.actor, key, payload)
            else:
                self._calls[call.remote(*arguments)] = _Call(worker, worker.actor, key)
        self._waiting = left

    def wait(self, timeout: float) -> list[Done]:
        self._give_out()
        if not self._calls:
            time.sleep(timeout)
            return []
        refs = list(self._calls)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0.0, fetch_local=False)
        if not ready:
            ready, _ = ray.wait(refs, num_returns=1, timeout=timeout, fetch_local=False)
        return [self._end(ref) for ref in ready]

    def _end(self, ref: Any) -> Done:
        call = self._calls.pop(ref)
        worker, role = call.worker, call.worker.role
        same = worker.actor is call.actor
        if same:
            worker.busy -= 1
        try:
            value = ray.get(ref)
        except RayTaskError as error:
            cause = _cause(error)
            # A result that it needed was lost on the way: nobody's fault.
            return Done(role, call.key, error=cause, died=isinstance(cause, ObjectLostError))
        except RayActorError as error:
            if same:
                self._replace(worker)
            return Done(role, call.key, error=error, died=True)
        except RayError as error:
            # The result was lost with the node that held it.
            return Done(role, call.key, error=error, died=True)
        worker.failures = 0
        return Done(role, call.key, (value, call.payload) if role == "embedder" else value)

    def box(self, number: int, detector: Detector) -> Box:
        return Box(number, ray.put(detector))

    def up(self) -> dict[str, int]:
        return {
            role: sum(
                w.role == role and w.actor is not None and w.starting is None for w in self._workers
            )
            for role in ROLES
        }

    def restarts(self) -> dict[str, int]:
        return dict(self._restarts)

    def close(self) -> None:
        for worker in self._workers:
            if worker.actor is not None:
                with contextlib.suppress(RayError, ValueError):
                    ray.kill(worker.actor)
                worker.actor = None
        self._calls.clear()
        self._waiting.clear()


def _cause(error: RayTaskError) -> BaseException:
    """What the actor's own code raised; a loss inside a dependency counts as one of ours."""
    cause = error.cause if isinstance(error.cause, BaseException) else None
    return cause or error


def _why_it_died(role: Role, error: RayActorError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Error: " in line or "monitor." in line]
    return f"the {role} cannot start: {(ours or lines or ['it died'])[-1][:500]}"
