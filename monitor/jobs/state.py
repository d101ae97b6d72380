"""From the configuration to the store, without loading a backbone on the way.

Commands that only look at the state come here: ``monitor.jobs.parts`` brings torch along, which
takes seconds.
"""

from __future__ import annotations

from pathlib import Path

from monitor.config import Config
from monitor.jobs.errors import GroupNeeded, NoDetector
from monitor.store import Store
from monitor.store.database import DATABASE_FILE
from monitor.store.rows import Version
from monitor.store.store import Clock


def open_store(config: Config, clock: Clock | None = None) -> Store:
    """The state, made if it is not there yet."""
    _require_group(config)
    if config.state.url is not None:
        return Store.open(config.state.url, files=config.state.dir, clock=clock)
    return Store.open(Path(config.state.dir).expanduser(), clock=clock)


def open_existing_store(config: Config, clock: Clock | None = None) -> Store:
    """The state, for those who only read it: a misspelt folder is not created."""
    folder = Path(config.state.dir).expanduser()
    _require_group(config)
    if config.state.url is None and not (folder / DATABASE_FILE).exists():
        raise NoDetector(
            f"{folder}: holds no state; fit a detector first with conclad fit, or say where it "
            "is with --set state.dir=FOLDER"
        )
    return open_store(config, clock)


def _require_group(config: Config) -> None:
    if config.groups and config.group is None:
        raise GroupNeeded(
            "the configuration has groups of sources, each with a state of its own; say which "
            f"one is meant with --group: {', '.join(config.groups)}"
        )


def current_version(store: Store) -> Version:
    with store.reading() as tx:
        version = tx.versions.current()
    if version is None:
        raise NoDetector(
            f"{store.folder}: holds no detector yet; fit one with conclad fit --data FILES"
        )
    return version
