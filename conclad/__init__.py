"""What programs may import: a configuration, the jobs, the detector and its inner loop.

Everything else (`monitor`, `actors`) is internal and may change between releases. Importing this
package is quick; what a name needs (torch, Ray) is imported when the name is first used.

>>> config = configure({"state.dir": "/data/state", "pools.size": 500}, environ={})
>>> config.state.dir, config.pools.size
('/data/state', 500)
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from actors.run_monitor import run
    from monitor import __version__
    from monitor.config import Config
    from monitor.errors import ConcladError
    from monitor.jobs.embed_files import embed
    from monitor.jobs.fit_detector import fit
    from monitor.jobs.from_config import open_engine_of as open_engine
    from monitor.jobs.score_files import score
    from monitor.novelty.detector import Detector
    from monitor.novelty.inner_loop import drive, inner_loop

__all__ = [
    "ConcladError",
    "Config",
    "Detector",
    "__version__",
    "configure",
    "drive",
    "embed",
    "fit",
    "inner_loop",
    "load_detector",
    "open_engine",
    "read_verdicts",
    "run",
    "score",
]

_WHERE = {
    "ConcladError": ("monitor.errors", "ConcladError"),
    "Config": ("monitor.config", "Config"),
    "Detector": ("monitor.novelty.detector", "Detector"),
    "__version__": ("monitor", "__version__"),
    "drive": ("monitor.novelty.inner_loop", "drive"),
    "embed": ("monitor.jobs.embed_files", "embed"),
    "fit": ("monitor.jobs.fit_detector", "fit"),
    "inner_loop": ("monitor.novelty.inner_loop", "inner_loop"),
    "open_engine": ("monitor.jobs.from_config", "open_engine_of"),
    "run": ("actors.run_monitor", "run"),
    "score": ("monitor.jobs.score_files", "score"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'conclad' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__


def configure(
    values: Mapping[str, Any] | None = None,
    *,
    path: str | Path | None = None,
    group: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration that the `conclad` command would use, with values on top of it.

    ``values`` has keys of docs/configuration.md, with their dots. ``path`` is a configuration file;
    without it, ``ray_config.yaml`` of the working folder is read if it is there.
    """
    from monitor.config import load

    overrides = [f"{key}={json.dumps(value, default=str)}" for key, value in (values or {}).items()]
    return load(path, overrides=overrides, environ=environ, group=group).config


def load_detector(config: Config, version: int | None = None) -> Detector:
    """The detector in use in a state folder, or the one of a version."""
    from monitor.jobs.from_config import current_version, open_existing_store
    from monitor.store.snapshots import load_snapshot

    with open_existing_store(config) as store:
        found = current_version(store)
        if version is not None:
            with store.reading() as tx:
                found = tx.versions.get(version)
        return load_snapshot(store.folder, found.snapshot, sha256=found.sha256)


def read_verdicts(
    config: Config,
    *,
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    class_: str | None = None,
    verdict: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Every image's immediate verdict with its settled one beside it, in the order of the feed.

    Memory stays flat: rows come a few thousand at a time. ``pa.Table.from_batches`` makes a table
    of them. Filters are those of ``conclad verdicts``.
    """
    from monitor.jobs.from_config import open_existing_store
    from monitor.store.read_verdicts import read_verdicts as standing

    with open_existing_store(config) as store:
        yield from standing(
            store, source=source, since=since, until=until, class_=class_, verdict=verdict
        )
