"""Runs of the monitor in processes of their own, which a fault point may kill."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from monitor.config import Config
from monitor.store.atomic_files import VARIABLE

# A server that has imported everything once: each run is a fork of it, and starts at once.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["actors.run_monitor", "tests.actors.story", "monitor.backbones.engine"]
)

KILLED = -9


def drain(config: Config, *, fault: str | None = None, timeout: float = 120) -> int:
    """Run the monitor once over the feed; returns the exit code of its process."""
    process = _server.Process(target=_drain, args=(config, fault))
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"a run with fault {fault} did not end within {timeout:g} s")
    return process.exitcode


def _drain(config: Config, fault: str | None) -> None:
    if fault is not None:
        os.environ[VARIABLE] = fault
    from actors.run_monitor import run

    run(config, once=True)


def at(config: Config, state: Path) -> Config:
    """The same configuration with its state elsewhere."""
    return config.model_copy(update={"state": config.state.model_copy(update={"dir": str(state)})})
