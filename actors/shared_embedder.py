"""An embedder that several groups of sources share, each by its share (``run.embedder_share``).

It is an actor by a name of its own, which belongs to no monitor: the first group that needs it
starts it, the others find it, and it ends when the last one has left or has not been heard of for
a while. One copy of the backbone serves all of them; each has a reader of its own feed.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from actors.fair_turns import FairTurns
from actors.worker_pool import DetectorRef, EngineFactory, embedder_tools
from monitor import __version__
from monitor.config import Config
from monitor.jobs.actor_placement import Places
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.worker_tasks import EmbedBatch

#: An embedder of which no group has been heard for so long ends itself.
FORSAKEN_SECONDS = 60.0
#: Calls that wait inside an embedder: some of each of a dozen groups.
CALLS_MOST = 64


class SharedEmbedder:
    """One copy of the backbone, with a reader for each group. Image bytes never leave it."""

    def __init__(self, config: Config, open_engine: EngineFactory, threads: int) -> None:
        # Here rather than above: only an embedder needs them.
        from threadpoolctl import threadpool_limits

        threadpool_limits(1, "blas")
        self._engine = open_engine(config)
        self._turns = FairTurns(places=threads + 1)
        self._groups: dict[str, tuple[float, Any]] = {}
        self._heard = {"": time.monotonic()}
        self._id = ray.get_runtime_context().get_actor_id() or ""
        threading.Thread(target=self._end_when_forsaken, daemon=True).start()

    @ray.method(concurrency_group="groups")
    def join(self, group: str, config: Config) -> Fingerprint:
        """A group comes, or comes again; says what the features are like."""
        share = config.run.embedder_share or 1.0
        self._groups[group] = share, embedder_tools(config, self._engine)
        self._heard.pop("", None)
        self._heard[group] = time.monotonic()
        return self._engine.fingerprint

    @ray.method(concurrency_group="groups")
    def stay(self, group: str) -> None:
        """A group is still there."""
        self._heard[group] = time.monotonic()

    @ray.method(concurrency_group="groups")
    def leave(self, group: str) -> None:
        self._heard.pop(group, None)
        if not self._heard:
            _end()

    def run(self, group: str, task: EmbedBatch, detectors: Sequence[DetectorRef]) -> Any:
        """The same as an embedder of one group does, when it is this group's turn."""
        share, tools = self._groups[group]
        with self._turns.turn(group, share=share, cost=task.planned.rows, alone=task.alone):
            if task.alone:
                # Who dies of it cannot tell; the others must know that it was none of theirs.
                _internal_kv_put(_mark(self._id), _named(group, task), overwrite=True)
            return task.run(tools)

    def _end_when_forsaken(self) -> None:
        while True:
            time.sleep(FORSAKEN_SECONDS / 10)
            last = max([*self._heard.values()], default=0.0)
            if self._turns.is_idle and time.monotonic() - last > FORSAKEN_SECONDS:
                _end()


def _end() -> None:
    """End the actor that this runs in."""
    ray.kill(ray.get_runtime_context().current_actor)


def shared_name(config: Config, places: Places, number: int) -> str:
    """The name of an embedder: the same for all groups whose embedders would be alike."""
    alike = {
        "version": __version__,
        "backbone": config.backbone.model_dump(mode="json"),
        "max_pixels": config.feed.max_pixels,
        "bands": config.feed.bands.model_dump(mode="json"),
        "needs": [places.cpus, places.gpus, places.threads, config.run.embedder_resources],
        "labels": config.run.embedder_labels,
    }
    text = json.dumps(alike, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"embedder-{digest}-{number}"


def name_of_group(config: Config) -> str:
    return config.group or os.path.abspath(config.state.dir)


def has_begun(actor: Any, group: str, task: EmbedBatch) -> bool:
    """Whether an embedder that has died was running this task, alone."""
    try:
        found = _internal_kv_get(_mark(actor._actor_id.hex()))
    except (RayError, ConnectionError, RuntimeError):  # the head is gone, too: nobody can tell
        return True
    return bool(found == _named(group, task).encode())


def _mark(actor_id: str) -> str:
    return f"conclad-alone-{actor_id}"


def _named(group: str, task: EmbedBatch) -> str:
    return f"{group}/{task.batch_id}/{task.planned.first_row}"
