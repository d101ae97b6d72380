"""All checks, in the order in which a person would fix what they find."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from monitor.config import Config
from monitor.doctor import cluster_check as cluster
from monitor.doctor import machine_check as machine
from monitor.doctor import storage_check as places
from monitor.doctor.findings import Check


def examine(
    config: Config,
    *,
    address: str | None = None,
    quick: bool = False,
    repair: bool = False,
    cameras: int | None = None,
) -> Iterator[Check]:
    """Look at everything that a monitor with this configuration needs.

    Nothing is changed, but with ``repair`` the state is closed to other users of the machine.
    ``quick`` leaves out what takes seconds: loading the backbone and running it once. With
    ``cameras`` its speed is measured, and what so many of them would need.
    """
    yield from machine.versions()
    yield machine.shared_memory()
    if "://" not in config.state.dir:
        yield machine.space(Path(config.state.dir).expanduser())
    yield places.feed(config)
    yield from places.state_folder(config, repair=repair)
    with places.opened(config) as (store, found):
        yield found
        yield places.clock(store)
        running = places.monitor_runs(store)
        for name in ("metrics", "desk"):
            section = getattr(config, name, None)
            if section is not None and getattr(section, "enabled", True):
                yield machine.port(name, section.host, section.port, monitor_runs=running)
        if not quick:
            # Late: torch takes seconds to import.
            from monitor.doctor import compute_check as compute

            yield compute.devices()
            yield from compute.backbone(config, store)
            if cameras is not None:
                from monitor.doctor.speed_check import speed

                yield from speed(config, store, cameras)
    where = address or config.run.address
    if where not in cluster.ALONE:
        yield from cluster.examine_cluster(config, where, cluster.look(where), version("ray"))
