"""A memory limit that the kernel enforces on a bench and on everything that it starts.

Needs the right to make a control group (root, or a delegated one). Without it a watcher looks
twenty times a second and ends the bench above the limit, which a short peak may escape.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.process_tree import memory, processes

GROUP = "CONCLAD_BENCH_GROUP"
"""Set in the limited process: the folder of its control group, or nothing."""

_ROOT = Path("/sys/fs/cgroup")
_LOOK_SECONDS, _WATCH_SECONDS = 0.005, 0.05


def is_limited() -> bool:
    return GROUP in os.environ


def run_limited(module: str, arguments: Sequence[str], most: int) -> int:
    """Run ``python -m module`` with its children in so many bytes; its exit code."""
    group = _make_group(most)
    if group is None:
        print("no control group can be made here: watched, not enforced by the kernel")
    environment = {**os.environ, GROUP: str(group or "")}
    command = [sys.executable, "-m", module, *arguments]
    try:
        with (
            subprocess.Popen([sys.executable, "-c", _ENTER, *command], env=environment) as process,
            _watched(0 if group else most),
        ):
            code = process.wait()
        if group is not None:
            print(f"limit of {most / 2**30:g} GB reached {_times_reached(group)} times")
    finally:
        if group is not None:
            _remove(group)
    if code == -signal.SIGKILL:
        print("ended: it took more than its limit")
    return code


# The group is entered before anything is imported: memory counts where it was first touched.
_ENTER = f"""
import os, sys
group = os.environ[{GROUP!r}]
if group:
    with open(group + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
"""


class UsedMemory:
    """The most memory while something runs."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()

    def watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS if os.environ.get(GROUP) else _WATCH_SECONDS):
            self.most = max(self.most, used())

    def stop(self) -> None:
        self._over.set()


@contextmanager
def peak() -> Iterator[UsedMemory]:
    watched = UsedMemory()
    watcher = threading.Thread(target=watched.watch)
    watcher.start()
    try:
        yield watched
    finally:
        watched.stop()
        watcher.join()


def used() -> int:
    """Bytes that count against the limit now; what is kept of files that were read counts too."""
    group = os.environ.get(GROUP)
    if not group:
        return memory()
    return int(_first(group, "memory.current", "memory.usage_in_bytes"))


def _make_group(most: int) -> Path | None:
    """Below the group that this process is in, so that no other limit is left."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, own = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        folder = _ROOT / kinds / own.lstrip("/") / f"conclad-bench-{os.getpid()}"
        try:
            folder.mkdir()
            # A limit of memory alone would only send it to the swap space.
            limits = [("memory.max", "memory.swap.max", 0)]
            limits += [("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", most)]
            for memory_file, swap_file, swap in limits:
                if (folder / memory_file).exists():
                    (folder / memory_file).write_text(str(most))
                    with suppress(OSError):
                        (folder / swap_file).write_text(str(swap))
                    return folder
            folder.rmdir()
        except OSError:
            continue
    return None


def _remove(group: Path) -> None:
    """Its last processes may need a moment until they have ended."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(_WATCH_SECONDS)
        else:
            return


def _times_reached(group: Path) -> int:
    said = _first(str(group), "memory.events", "memory.failcnt").split()
    if "max" in said:
        return int(said[said.index("max") + 1])
    with_swap = group / "memory.memsw.failcnt"
    return int(said[0]) + (int(with_swap.read_text()) if with_swap.exists() else 0)


def _first(group: str, *names: str) -> str:
    for name in names:
        with suppress(FileNotFoundError):
            return Path(group, name).read_text()
    raise FileNotFoundError(f"{group}: none of {', '.join(names)}")


@contextmanager
def _watched(most: int) -> Iterator[None]:
    """End what this process started above so many bytes; 0 watches nothing."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_SECONDS):
            if memory(with_own=False) > most:
                for each in processes() - {os.getpid()}:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    if most:
        watcher.start()
    try:
        yield
    finally:
        over.set()
