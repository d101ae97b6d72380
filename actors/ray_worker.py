"""One worker as a Ray actor: what is asked of Ray for it, and what it has to do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.shared_embedder import CALLS_MOST, SharedEmbedder, name_of_group, shared_name
from actors.worker_pool import WORKERS, EngineFactory
from monitor.config import Config
from monitor.jobs.actor_placement import Node, Places, helper_nodes
from monitor.pipeline.worker_tasks import Role

#: A worker that cannot even start is tried again after this time, and longer each time.
RESTART_SECONDS, RESTART_MOST_SECONDS = 0.5, 30.0


@dataclass(slots=True)
class RayWorker:
    """An actor, or the place of one that is about to be started again."""

    role: Role
    actor: Any = None
    starting: Any = None
    """Ends when the actor is ready; until then it is given nothing to do."""
    busy: int = 0
    failures: int = 0
    not_before: float = 0.0
    is_leaving: bool = False
    """Is given nothing new, and ends when it has no task."""
    worked: float = 0.0
    """Seconds with a task, until the last time that it had none."""
    busy_since: float = 0.0
    node: str = ""
    """Where the actor runs, once it is ready."""
    number: int = 0
    """Among the embedders of a pool; those that groups share are found by it."""
    group: str | None = None
    """The group under whose name it is used, if others use it too."""

    @property
    def is_ready(self) -> bool:
        return self.actor is not None and self.starting is None

    @property
    def takes_work(self) -> bool:
        return self.is_ready and not self.is_leaving

    def begin_task(self) -> None:
        """It has one more task."""
        if not self.busy:
            self.busy_since = time.monotonic()
        self.busy += 1

    def end_task(self) -> None:
        self.busy -= 1
        if not self.busy:
            self.worked += time.monotonic() - self.busy_since

    def seconds_worked(self) -> float:
        return self.worked + (time.monotonic() - self.busy_since if self.busy else 0.0)

    def lose(self) -> None:
        """The actor is gone, with its tasks; it is started again after a pause."""
        if self.actor is not None:
            with contextlib.suppress(RayError, ValueError):
                ray.kill(self.actor)
        self.vanish()
        pause = min(RESTART_SECONDS * 2**self.failures, RESTART_MOST_SECONDS)
        self.not_before = time.monotonic() + (pause if self.failures else 0.0)
        self.failures += 1

    def end(self) -> None:
        """End the actor, whatever it does; one that others use is only left."""
        if self.actor is not None:
            with contextlib.suppress(RayError, ValueError):
                if self.group is None:
                    ray.kill(self.actor)
                else:
                    self.actor.leave.remote(self.group)
        self.vanish()

    def vanish(self) -> None:
        """The actor is no more, and nobody need be told."""
        while self.busy:
            self.end_task()
        self.actor = self.starting = None
        self.node = ""


def start_worker(
    worker: RayWorker,
    config: Config,
    places: Places,
    nodes: Sequence[Node],
    open_engine: EngineFactory,
) -> None:
    """Ask Ray for an actor; it may have to wait until a node is there."""
    options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
    if worker.role == "embedder":
        options |= _options(
            {"CPU": places.cpus, "GPU": places.gpus, **config.run.embedder_resources},
            config.run.embedder_labels,
        )
        # A thread more than cores: while some compute, one decodes.
        options["max_concurrency"] = places.threads + 1
        if config.run.embedder_share is not None:
            _find_or_start(worker, config, places, open_engine, options)
            return
    else:
        options |= _options(config.run.helper_resources, config.run.helper_labels)
        options["scheduling_strategy"] = _beside_the_head(config, nodes, worker.failures)
    actor = ray.remote(**options)(WORKERS[worker.role])
    worker.actor = actor.remote(config, open_engine)
    worker.starting = worker.actor.ready.remote()


def _find_or_start(
    worker: RayWorker,
    config: Config,
    places: Places,
    open_engine: EngineFactory,
    options: dict[str, Any],
) -> None:
    """An embedder that groups share: the first one starts it, for as long as anybody needs it."""
    options |= {
        "name": shared_name(config, places, worker.number),
        "lifetime": "detached",
        "get_if_exists": True,
        "max_concurrency": CALLS_MOST,
        "concurrency_groups": {"groups": 1},
    }
    worker.group = name_of_group(config)
    actor = ray.remote(**options)(SharedEmbedder)
    worker.actor = actor.remote(config, open_engine, places.threads)
    worker.starting = worker.actor.join.remote(worker.group, config)


def _beside_the_head(
    config: Config, nodes: Sequence[Node], failures: int
) -> NodeAffinitySchedulingStrategy | None:
    """On the best node that computes; after a failure on the next: something may be wrong there.

    Not a soft preference, which Ray ignores for actors that ask for nothing. Should the node be
    gone by then, the actor fails to start and another one is started.
    """
    fit = helper_nodes(config, nodes)
    if not fit:
        return None
    return NodeAffinitySchedulingStrategy(fit[failures % len(fit)].id, soft=False)


def _options(resources: dict[str, float], labels: dict[str, str]) -> dict[str, Any]:
    """In the words of Ray, which wants CPUs and GPUs apart from the rest."""
    rest = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    return {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": rest or None,
        "label_selector": labels or None,
    }


def why_it_died(role: Role, error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Error: " in line or "monitor." in line]
    return f"the {role} cannot start: {(ours or lines or ['it died'])[-1][:500]}"
