"""Workers as Ray actors: replaced when they die, wherever there is room for them.

Ray could restart actors by itself; then calls on their way may arrive twice, late or not at all.
Here a dead actor is simply gone, all its tasks are reported as lost, and another one
takes its place, so there is one kind of failure and one way to deal with it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    GetTimeoutError,
    ObjectLostError,
    RayActorError,
    RayError,
    RayTaskError,
)

from actors.embedder_scaling import Bounds, FeedLoad, Scaler
from actors.ray_cluster import (
    ClusterLost,
    ClusterUnavailable,
    ResourcesMissing,
    check_head,
    connect,
    draining_nodes,
    head_address,
    living_nodes,
    node_of,
    wait_for_resources,
)
from actors.ray_worker import RayWorker, start_worker, why_it_died
from actors.shared_embedder import has_begun, name_of_group
from actors.worker_pool import DetectorRef, Done, EngineFactory
from monitor.config import Config
from monitor.errors import ConcladError, ErrorKind, kind_of
from monitor.jobs.actor_placement import Places
from monitor.jobs.from_config import open_engine_of
from monitor.novelty.detector import Detector
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.worker_tasks import ROLES, EmbedBatch, Role, Task

#: Batches that wait at a scorer: scoring takes milliseconds, so a few hide every delay.
SCORER_ROOM = 8
#: How long a backbone may take to load on a slow disk or a crowded machine.
START_SECONDS = 600.0
#: How often a worker may be lost before it has begun; what its own code raises counts at once.
START_TRIES = 5
#: How often it is seen to that the cluster's head is there: a minute later Ray would end us.
HEAD_CHECK_SECONDS = 2.0


class WorkerFailed(ConcladError):
    """An actor could not start, and would not the next time either."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A task on its way; ``features`` stay in the cluster's memory."""

    worker: RayWorker
    actor: Any
    task: Task
    features: Any = field(default=None)


class RayWorkerPool:
    """Embedders as many as the feed needs, scorers as configured, one querier, one updater."""

    def __init__(
        self,
        config: Config,
        places: Places,
        open_engine: EngineFactory = open_engine_of,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config.model_copy(
            update={"backbone": config.backbone.model_copy(update={"threads": places.threads})}
        )
        self._places = places
        self._open_engine = open_engine
        self._clock = clock
        counts = {"embedder": places.least, "scorer": config.run.scorers}
        self._workers = [
            RayWorker(role, number=number)
            for role in ROLES
            for number in range(counts.get(role, 1))
        ]
        self._scaler = Scaler(
            Bounds(places.least, places.most, config.run.lag_seconds, config.run.idle_seconds)
        )
        self._calls: dict[Any, _Call] = {}
        self._waiting: list[tuple[Task, Sequence[DetectorRef], tuple[Any, ...]]] = []
        self._restarts: dict[str, int] = {}
        self._embedded = 0
        self._worked_by_ended = 0.0
        self._head: str | None = head_address()
        self._head_checked = -float("inf")

    # -- start and loss ---------------------------------------------------------------------

    def start(self) -> Fingerprint:
        """Bring everybody up. One embedder is enough: the others may wait for their nodes."""
        self._start_those_due()
        first = {worker.role: worker for worker in reversed(self._workers)}
        found = {role: self._await(worker) for role, worker in first.items()}
        fingerprint = found["embedder"]
        assert isinstance(fingerprint, Fingerprint)
        return fingerprint

    def _await(self, worker: RayWorker) -> Any:
        """Wait for a worker at the start; what keeps it from starting is said in one sentence."""
        for left in reversed(range(START_TRIES)):
            try:
                found = self._get(worker.starting)
            except RayTaskError as error:
                raise _cause(error) from error
            except (RayActorError, ActorUnschedulableError) as error:
                if getattr(error, "actor_init_failed", False) or not left:
                    raise WorkerFailed(why_it_died(worker.role, error)) from error
                # Its node or its process was lost before it began: another one may do better.
                self._lose(worker)
                self._start(worker)
                continue
            except GetTimeoutError as error:
                raise WorkerFailed(
                    f"no {worker.role} was ready within {START_SECONDS:g} s; is the cluster full?"
                ) from error
            break
        worker.starting = None
        return found

    def _get(self, ref: Any) -> Any:
        """What a worker says when it is ready; looks now and then whether the head is there."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self._check_head()
            try:
                return ray.get(ref, timeout=HEAD_CHECK_SECONDS)
            except GetTimeoutError:
                if time.monotonic() > deadline:
                    raise

    def _check_head(self) -> None:
        """Leave a cluster whose head is gone, and say so; :meth:`resume` joins it again."""
        if self._head is not None:
            try:
                check_head(self._head)
            except ClusterLost:
                self._head = None
                self._calls.clear()
                self._waiting.clear()
                for worker in self._workers:
                    worker.vanish()
                # Before a minute is over: then Ray would end this process.
                ray.shutdown()
                raise
        else:
            raise ClusterLost("Ray's head does not answer")
        self._head_checked = time.monotonic()

    def resume(self) -> None:
        if self._head is not None:
            return
        try:
            connect(self._config.run.address)
            # Its nodes come back after it, in their own time.
            wait_for_resources(self._config)
        except (ClusterUnavailable, ResourcesMissing) as error:
            ray.shutdown()
            raise ClusterLost(str(error)) from error
        self._head = head_address()

    def _start(self, worker: RayWorker) -> None:
        self._check_head()
        start_worker(worker, self._config, self._places, living_nodes(), self._open_engine)

    def _start_those_due(self) -> None:
        for worker in self._workers:
            if worker.actor is None and time.monotonic() >= worker.not_before:
                self._start(worker)

    def _lose(self, worker: RayWorker) -> None:
        worker.lose()
        self._restarts[worker.role] = self._restarts.get(worker.role, 0) + 1

    def _note_ready(self, refs: list[Any]) -> None:
        """Among references that have ended, those of workers that were starting."""
        for worker in self._workers:
            if worker.starting is not None and worker.starting in refs:
                try:
                    ray.get(worker.starting)
                    worker.starting = None
                except RayError:
                    self._lose(worker)

    # -- scaling ------------- ------------------------------------------------------------

    def scale(self, waiting: int) -> None:
        """Start or end embedders, within the bounds, for so many batches that wait."""
        self._check_head()
        self._leave_draining_nodes()
        for worker in self._workers:
            if worker.group is not None and worker.is_ready:
                worker.actor.stay.remote(worker.group)
        staying = [w for w in self._workers if w.role == "embedder" and not w.is_leaving]
        worked = sum(w.seconds_worked() for w in self._workers if w.role == "embedder")
        load = FeedLoad(self._clock(), waiting, self._embedded, worked + self._worked_by_ended)
        change = self._scaler.wanted(load, len(staying)) - len(staying)
        for _ in range(change):
            self._add("embedder")
        # First those that have not even begun, then those with the fewest tasks.
        for worker in sorted(staying, key=lambda w: (w.is_ready, w.busy))[: max(0, -change)]:
            worker.is_leaving = True
        self._end_idle_leavers()

    def _leave_draining_nodes(self) -> None:
        """Workers on nodes that are about to end get nothing new; others take their places."""
        leaving = draining_nodes()
        if not leaving:
            return
        for worker in [w for w in self._workers if w.takes_work]:
            # Asked only now: a worker never moves, and nodes drain rarely.
            worker.node = worker.node or node_of(worker.actor)
            if worker.node in leaving:
                worker.is_leaving = True
                self._add(worker.role)

    def _add(self, role: Role) -> None:
        taken = {worker.number for worker in self._workers if worker.role == role}
        free = next(number for number in itertools.count() if number not in taken)
        self._workers.append(RayWorker(role, number=free))

    def _end_idle_leavers(self) -> None:
        """End those that are leaving and have no task."""
        for worker in [w for w in self._workers if w.is_leaving and not w.busy]:
            self._worked_by_ended += worker.worked
            worker.end()
            self._workers.remove(worker)

    # -- work -------------------------------------------------------------------------------

    def capacity(self, role: Role) -> int:
        return self._each(role) * sum(
            worker.role == role and not worker.is_leaving for worker in self._workers
        )

    def room(self, role: Role) -> int:
        each = self._each(role)
        return sum(
            max(0, each - worker.busy)
            for worker in self._workers
            if worker.role == role and worker.takes_work
        )

    def _each(self, role: Role) -> int:
        if role == "embedder":
            return self._places.threads + 1 + self._config.run.in_flight
        return SCORER_ROOM if role == "scorer" else 1

    def submit(self, task: Task, detectors: Sequence[DetectorRef] = (), *features: Any) -> None:
        self._waiting.append((task, detectors, features))
        self._give_out()

    def _give_out(self) -> None:
        """Hand over what waits, as far as there is a worker for it.

        There may be none for a while: the only updater has died, and another one starts.
        """
        left = []
        for task, detectors, features in self._waiting:
            free = (w for w in self._workers if w.role == task.role and w.takes_work)
            worker = min(free, key=lambda w: w.busy, default=None)
            if worker is None:
                left.append((task, detectors, features))
                continue
            worker.begin_task()
            call = worker.actor.run
            if isinstance(task, EmbedBatch):
                shared = () if worker.group is None else (worker.group,)
                two = call.options(num_returns=2)
                seconds, found = two.remote(*shared, task, detectors, *features)
                self._calls[seconds] = _Call(worker, worker.actor, task, found)
            else:
                ref = call.remote(task, detectors, *features)
                self._calls[ref] = _Call(worker, worker.actor, task)
        self._waiting = left

    def wait(self, timeout: float) -> list[Done]:
        if time.monotonic() - self._head_checked > HEAD_CHECK_SECONDS:
            self._check_head()
        self._start_those_due()
        self._give_out()
        refs = [*self._calls, *(w.starting for w in self._workers if w.starting is not None)]
        if not refs:
            time.sleep(timeout)
            return []
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0.0, fetch_local=False)
        if not ready:
            ready, _ = ray.wait(refs, num_returns=1, timeout=timeout, fetch_local=False)
        calls = [ref for ref in ready if ref in self._calls]
        ends = [self._end(ref) for ref in calls]
        if len(calls) < len(ready):
            self._note_ready(ready)
        self._end_idle_leavers()
        return [done for done in ends if done is not None]

    def _end(self, ref: Any) -> Done | None:
        """The end of a call; None if its task is given out again without a word."""
        call = self._calls.pop(ref)
        worker, task = call.worker, call.task
        same = worker.actor is call.actor
        if same:
            worker.end_task()
        try:
            result = ray.get(ref)
        except RayTaskError as error:
            cause = _cause(error)
            if same and kind_of(cause) is ErrorKind.WORKER:
                # Its device is broken for this process; another one may have better luck.
                self._lose(worker)
            # A result that it needed was lost on the way: nobody's fault.
            return Done(task, error=cause, died=isinstance(cause, ObjectLostError))
        except RayActorError as error:
            if same:
                self._lose(worker)
            if isinstance(task, EmbedBatch) and self._was_not_its_turn(call.actor, task):
                self._waiting.append((task, (), ()))
                return None
            return Done(task, error=error, died=True)
        except RayError as error:
            # The result was lost with the node that held it.
            return Done(task, error=error, died=True)
        worker.failures = 0
        if not isinstance(task, EmbedBatch):
            return Done(task, result)
        self._embedded += 1
        return Done(task, (result, call.features))

    def _was_not_its_turn(self, actor: Any, task: EmbedBatch) -> bool:
        """Whether an embedder that groups share died before it began a task that runs alone."""
        if not task.alone or self._config.run.embedder_share is None:
            return False
        return not has_begun(actor, name_of_group(self._config), task)

    def send(self, number: int, detector: Detector) -> DetectorRef:
        return DetectorRef(number, ray.put(detector))

    def up(self) -> dict[str, int]:
        return {role: sum(w.role == role and w.is_ready for w in self._workers) for role in ROLES}

    def starting(self) -> dict[str, int]:
        return {
            role: sum(w.role == role and not w.is_ready for w in self._workers) for role in ROLES
        }

    def restarts(self) -> dict[str, int]:
        return dict(self._restarts)

    def forget(self) -> None:
        for call in self._calls.values():
            if call.worker.actor is call.actor:
                call.worker.end_task()
        self._calls.clear()
        self._waiting.clear()

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._calls.clear()
        self._waiting.clear()


def _cause(error: RayTaskError) -> BaseException:
    """What the actor's own code raised; a loss inside a dependency counts as one of ours."""
    cause = error.cause if isinstance(error.cause, BaseException) else None
    return cause or error
