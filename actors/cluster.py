"""Which Ray: one of our own, or a cluster that is there."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Before Ray is imported: it reads these once. Nothing leaves this machine unasked.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray would run its workers at the lowest priority but four; embedding is not background work.
os.environ.setdefault("RAY_worker_niceness", "0")

import ray

from monitor.config import Config
from monitor.errors import ConcladError

#: Features in flight are a few megabytes; the rest of the memory is the backbone's.
OBJECT_STORE_BYTES = 512 << 20


#: On a crowded machine Ray sometimes gives up on its own start after thirty seconds.
LOCAL_TRIES = 3


class ClusterUnavailable(ConcladError):
    """No Ray could be started or reached."""


class ResourcesMissing(ConcladError):
    """The cluster does not have what the actors ask for."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many embedders there will be, and what each takes."""

    embedders: int
    cpus: float
    gpus: float
    threads: int


def connect(address: str) -> None:
    """Start a Ray on this machine ('local'), or join the cluster at an address."""
    options: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "namespace": "conclad",
    }
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    tries = LOCAL_TRIES if address == "local" else 1
    for left in reversed(range(tries)):
        try:
            ray.init(address=address, **options)
            return
        except Exception as error:  # Ray raises bare Exceptions of its own
            ray.shutdown()
            if left:
                continue
            text = " ".join(str(error).split())[:300]
            raise ClusterUnavailable(
                f"Ray at {address!r} cannot be used ({text}); check that the cluster runs and "
                "that run.address or --address names it"
            ) from error


def places(config: Config) -> Places:
    """What the embedders take of this cluster, as configured or as it suggests itself."""
    run = config.run
    have: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = run.embedder_gpus
    if gpus is None:
        wants_gpu = config.backbone.engine in ("auto", "cuda")
        gpus = 1.0 if have.get("GPU", 0) >= 1 and wants_gpu else 0.0
    embedders = run.embedders or (max(1, int(have.get("GPU", 0) // gpus)) if gpus else 1)
    cpus = run.embedder_cpus
    if cpus is None:
        cpus = 1.0 if gpus else float(max(1, int(have.get("CPU", 1) // embedders)))
    return Places(embedders, cpus, gpus, config.backbone.threads or max(1, int(cpus)))


def wait_for_resources(
    config: Config, wanted: Places, *, say: Callable[[str], None] = lambda text: None
) -> None:
    """Wait until the cluster could hold one embedder; say what is missing if it cannot.

    One is enough to begin with: others start when their nodes come.
    """
    asked = {"CPU": wanted.cpus, "GPU": wanted.gpus, **config.run.embedder_resources}
    deadline = time.monotonic() + config.run.resources_seconds
    said = False
    while missing := _missing(asked):
        if config.run.address == "local" or time.monotonic() > deadline:
            raise ResourcesMissing(
                f"an embedder asks for {missing}, which no node of this cluster has; mend "
                "run.embedder_cpus, run.embedder_gpus or run.embedder_resources, or add a node"
            )
        if not said:
            say(f"waiting for a node with {missing}")
            said = True
        time.sleep(1.0)


def _missing(asked: dict[str, float]) -> str:
    """What no single living node has, such as '1 GPU'."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    nodes = [node["Resources"] for node in found if node["Alive"]]
    if any(all(node.get(k, 0) >= v for k, v in asked.items() if v) for node in nodes):
        return ""
    return ", ".join(f"{value:g} {name}" for name, value in asked.items() if value)
