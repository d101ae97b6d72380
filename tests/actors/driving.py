"""The monitor on Ray in a process of its own, with workers that somebody may kill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from actors.worker_pool import EngineFactory
from monitor.config import Config
from monitor.jobs.from_config import open_engine_of
from monitor.pipeline.worker_tasks import Role, Task
from monitor.store import Store
from monitor.store.atomic_files import VARIABLE

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    [
        "actors.run_monitor",
        "tests.actors.story",
        "monitor.backbones.engine",
        "tests.actors.engines",
    ]
)

#: A driver on a crowded machine; a quiet one needs a tenth of it.
PATIENCE = 600.0
Kills = Mapping[Role, tuple[int, ...]]


@contextmanager
def driver(
    config: Config,
    *,
    once: bool = True,
    engine: EngineFactory = open_engine_of,
    kills: Kills | None = None,
    fault: str | None = None,
) -> Iterator[BaseProcess]:
    """A monitor in a process of its own, which does not outlive the block.

    ``kills`` names pieces of work, counted by role from 1, that cost their worker its life.
    """
    with in_a_process(_drive, config, once, engine, kills or {}, fault) as process:
        yield process


@contextmanager
def in_a_process(action: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """Something in a process of its own, which does not outlive the block."""
    process = _server.Process(target=action, args=arguments)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def drive(config: Config, **options: Any) -> int:
    """Run a monitor to its end; returns the exit code."""
    with driver(config, **options) as process:
        process.join(PATIENCE)
        assert process.exitcode is not None, f"the monitor did not end within {PATIENCE:g} s"
        return process.exitcode


def _drive(
    config: Config, once: bool, engine: EngineFactory, kills: Kills, fault: str | None
) -> None:
    if fault is not None:
        os.environ[VARIABLE] = fault
    from actors import ray_worker_pool
    from actors.run_monitor import run

    if kills:
        sabotaged = _saboteur(ray_worker_pool.RayWorkerPool, kills)
        ray_worker_pool.RayWorkerPool = sabotaged  # type: ignore[misc]
    run(config, once=once, open_engine=engine)


def _saboteur(pool: Any, kills: Kills) -> Any:
    """A pool whose workers die right after they were given certain tasks."""
    import ray

    class Saboteur(pool):  # type: ignore[misc]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._given: Counter[Role] = Counter()
            self._due = {role: list(times) for role, times in kills.items()}

        def submit(self, task: Task, *arguments: Any) -> None:
            super().submit(task, *arguments)
            role = task.role
            self._given[role] += 1
            victims = [w.actor for w in self._workers if w.role == role and w.busy]
            due = self._due.get(role, [])
            if due and victims and self._given[role] >= due[0]:
                due.pop(0)
                ray.kill(victims[0])

    return Saboteur


def until(state: Path, is_so: Callable[[Any], bool], process: BaseProcess | None = None) -> None:
    """Wait until something holds in the store; look often, and give up when the driver has."""
    deadline = time.monotonic() + PATIENCE
    with Store.open(state) as store:
        while time.monotonic() < deadline:
            with store.reading() as tx:
                if is_so(tx):
                    return
            assert process is None or process.is_alive(), "the monitor has ended before"
            time.sleep(0.05)
    raise AssertionError(f"nothing of the kind within {PATIENCE:g} s")


def has_committed(batches: int) -> Callable[[Any], bool]:
    return lambda tx: tx.counters.value("batches", "", "done") >= batches


def terminate(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
