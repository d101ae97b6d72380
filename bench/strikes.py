"""Faults that begin now and end after some seconds, for bench.faults and bench.chaos."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import torch

from monitor.backbones.engine import Engine, Images
from monitor.config import Config
from monitor.jobs.from_config import open_engine_of
from tests.actors.engines import Around

#: Enough for the state of 50,000 images, and soon full.
DISK = "size=1g,nr_inodes=30000"
#: What each kind of device error looks like, in torch's own types where it has them.
DEVICE_ERRORS: dict[str, Callable[[], Exception]] = {
    "memory": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "blas-memory": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
    "accelerator": lambda: torch.AcceleratorError("CUDA error: an illegal memory access"),
    "assert": lambda: RuntimeError("CUDA error: device-side assert triggered"),
    "cudnn": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    "driver": lambda: RuntimeError("CUDA driver error: device unavailable"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a monitor stands on, and where it can be struck."""

    folder: Path
    """Holds the feed, the disk of the state and the files by which a run is told of a fault."""
    url: str | None = None
    """The database on a server; else it is a file below the state."""

    @property
    def feed(self) -> Path:
        return self.folder / "feed"

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def state(self) -> Path:
        return self.disk / "state"

    @property
    def device(self) -> Path:
        return self.folder / "device"

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    @property
    def pace(self) -> Path:
        """How many seconds a batch takes."""
        return self.folder / "pace"


Strike = Callable[[Place, float], None]


@contextmanager
def small_disk(place: Place) -> Iterator[bool]:
    """A disk of its own below the place, which can be filled; False where nobody may mount."""
    place.disk.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(place.disk)], capture_output=True
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(place.disk)], check=False)


def faulty_engine(place: Place, seconds: float | None, config: Config) -> Engine:
    """An engine on a device that can be struck, and that takes so long for each batch.

    None: as long as the place says at that moment.
    """
    broken: list[Exception] = []

    def before(_: Images) -> None:
        time.sleep(_pace(place) if seconds is None else seconds)
        said = place.device.read_text() if place.device.exists() else ""
        if said and not said.endswith("memory") and not broken:
            broken.append(DEVICE_ERRORS[said]())  # sticky: until the worker is replaced
        if broken:
            raise broken[0]
        if said:
            raise DEVICE_ERRORS[said]()

    return Around(open_engine_of(config), before)


def _pace(place: Place) -> float:
    try:
        return float(place.pace.read_text() or 0)
    except FileNotFoundError:
        return 0.0


def shifted_clock(place: Place) -> datetime:
    """The time, by a clock that can be struck."""
    try:
        seconds = float(place.clock.read_text() or 0)
    except FileNotFoundError:
        seconds = 0.0
    return datetime.now(UTC) + timedelta(seconds=seconds)


def later(action: Callable[[], object], seconds: float) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


# -- the feed -------------------------------------------------------------------------------


def hide_feed(place: Place, seconds: float) -> None:
    """Renamed away, as by a remount."""
    away = place.feed.with_name("feed-away")
    place.feed.rename(away)
    later(lambda: away.rename(place.feed), seconds)


def empty_feed(place: Place, seconds: float) -> None:
    """An empty folder where the mount point is."""
    away = place.feed.with_name("feed-away")
    place.feed.rename(away)
    place.feed.mkdir()

    def mount() -> None:
        place.feed.rmdir()
        away.rename(place.feed)

    later(mount, seconds)


def touch_files(place: Place, seconds: float) -> None:
    now = time.time()
    for number, file in enumerate(sorted(place.feed.iterdir())):
        os.utime(file, (now + number, now + number))


# -- the database ---------------------------------------------------------------------------


def freeze_server(place: Place, seconds: float) -> None:
    pids = _processes(place)
    _signal(pids, signal.SIGSTOP)
    later(lambda: _signal(pids, signal.SIGCONT), seconds)


def lag_server(place: Place, seconds: float) -> None:
    """It answers, half a second late, again and again."""
    pids = _processes(place)
    end = time.monotonic() + seconds

    def stutter() -> None:
        while time.monotonic() < end:
            _signal(pids, signal.SIGSTOP)
            time.sleep(0.5)
            _signal(pids, signal.SIGCONT)
            time.sleep(0.5)

    threading.Thread(target=stutter, daemon=True).start()


def drop_sessions(place: Place, seconds: float) -> None:
    """Every session is ended, again and again, as by a server that restarts in a loop."""
    end = time.monotonic() + seconds

    def storm() -> None:
        while time.monotonic() < end:
            with contextlib.suppress(psycopg.Error), _session(place) as ours:
                ours.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            time.sleep(0.5)

    threading.Thread(target=storm, daemon=True).start()


def lock_file(place: Place, seconds: float) -> None:
    """Somebody holds SQLite's lock."""
    other = sqlite3.connect(
        place.state / "conclad.db", isolation_level=None, check_same_thread=False, timeout=30
    )
    try:
        other.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:  # busy, or its disk is full: no lock this time
        other.close()
        return
    later(other.close, seconds)


def _session(place: Place) -> psycopg.Connection[tuple[object, ...]]:
    assert place.url is not None
    base = place.url.rpartition("/")[0]
    return psycopg.connect(f"{base}/postgres", autocommit=True, connect_timeout=120)


def _processes(place: Place) -> list[int]:
    """All processes of the server: its head, and one for each session."""
    with _session(place) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL")
        sessions = [int(str(row[0])) for row in rows]
    head = int(Path(f"/proc/{sessions[0]}/stat").read_text().rpartition(")")[2].split()[1])
    return [head, *(pid for pid in sessions if Path(f"/proc/{pid}").exists())]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# -- the disk of the state ------------------------------------------------------------------


def fill_disk(place: Place, seconds: float) -> None:
    """Not a byte is left."""
    ballast = place.disk / "ballast"
    piece = bytes(1 << 16)
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as sink:
        while True:
            sink.write(piece)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as sink:
        while True:
            sink.write(b"x")
    later(lambda: ballast.unlink(missing_ok=True), seconds)


def fill_inodes(place: Place, seconds: float) -> None:
    """Not a file more can be made."""
    folder = Path(tempfile.mkdtemp(prefix="inodes-", dir=place.disk))
    for number in range(1_000_000):
        try:
            (folder / str(number)).touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
    later(lambda: shutil.rmtree(folder), seconds)


def make_read_only(place: Place, seconds: float) -> None:
    """As a kernel does with a disk that has errors; it fails while files are open to be written."""

    def remount(how: str) -> bool:
        command = ["mount", "-o", f"remount,{how}", str(place.disk)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if remount("ro"):
        later(lambda: remount("rw"), seconds)


# -- the machine ----------------------------------------------------------------------------


def strike_device(kind: str, place: Place, seconds: float) -> None:
    place.device.write_text(kind)
    later(lambda: place.device.write_text(""), seconds)


def set_clock(by: float, place: Place, seconds: float) -> None:
    place.clock.write_text(str(by))
    later(lambda: place.clock.write_text("0"), seconds)


DEVICE_STRIKES: dict[str, Strike] = {
    f"device-{kind}": partial(strike_device, kind) for kind in DEVICE_ERRORS
}
CLOCK_STRIKES: dict[str, Strike] = {
    "clock-ahead": partial(set_clock, 86_400.0),
    "clock-behind": partial(set_clock, -86_400.0),
}
FEED_STRIKES: dict[str, Strike] = {
    "feed-away": hide_feed,
    "feed-empty": empty_feed,
    "files-touched": touch_files,
}
SERVER_STRIKES: dict[str, Strike] = {
    "database-frozen": freeze_server,
    "database-lagging": lag_server,
    "database-sessions": drop_sessions,
}
DISK_STRIKES: dict[str, Strike] = {"disk-full": fill_disk, "disk-inodes": fill_inodes}
