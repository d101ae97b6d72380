"""The machine itself: versions, memory shared between processes, space, ports."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from monitor.doctor.findings import Check, good, problem, warning

PYTHON_LEAST = (3, 11)
#: Older releases can be taken over through their job interface.
RAY_LEAST = (2, 54)

#: A container's default of 64 MB lets Ray fall back to disk, many times slower.
SHARED_LEAST = 256 << 20
#: SQLite needs room for its log and a merge for its result; below this a busy day ends it.
FREE_LEAST, FREE_COMFORTABLE = 1 << 30, 10 << 30


def versions(python: tuple[int, ...] = tuple(sys.version_info[:3])) -> Iterator[Check]:
    shown = ".".join(map(str, python))
    if python < PYTHON_LEAST:
        yield problem("python", f"{shown} is too old; conclad needs 3.11 or newer")
    else:
        yield good("python", shown)
    yield ray_version(_installed("ray"))


def ray_version(found: str | None) -> Check:
    """
    >>> print(ray_version("2.40.0").sentence)
    2.40.0 has known security holes; upgrade with: pip install 'ray>=2.54'
    """
    if found is None:
        return problem("ray", "is not installed; install conclad again, it brings Ray along")
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < RAY_LEAST:
        return problem(
            "ray", f"{found} has known security holes; upgrade with: pip install 'ray>=2.54'"
        )
    return good("ray", found)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    if not folder.is_dir():
        return warning("shared memory", f"{folder} is not there; Ray will use the disk instead")
    size = shutil.disk_usage(folder).total
    if size < SHARED_LEAST:
        return warning(
            "shared memory",
            f"{folder} has {size / 1e6:.0f} MB, so Ray's object store falls back to disk; give the "
            "container more (--shm-size=1g)",
        )
    return good("shared memory", f"{size / 1e9:.1f} GB in {folder}")


def space(folder: Path) -> Check:
    """Room on the disk that holds the state, or will hold it."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    shown = f"{usage.free / 1e9:.1f} GB free on the disk of {folder}"
    if usage.free < FREE_LEAST:
        return problem("space", f"{shown}; make room before it ends in the middle of a night")
    if usage.free < FREE_COMFORTABLE:
        return warning("space", f"{shown}; see 'Retention' on the operations page")
    return good("space", shown)


def port(name: str, host: str, number: int, *, monitor_runs: bool) -> Check:
    """Whether something could listen there; a running monitor already does."""
    where = f"{host}:{number}"
    if number == 0:
        return good(name, "any free port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # A port whose last connection closed a moment ago is free for a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            if monitor_runs:
                return good(name, f"{where} is in use, presumably by the monitor that runs here")
            return problem(
                name,
                f"cannot listen on {where} ({os.strerror(error.errno or 0)}); another program may "
                f"have it: choose another with {name}.port, or stop that program",
            )
    return good(name, f"{where} is free")
