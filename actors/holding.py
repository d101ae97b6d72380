"""One monitor for one state: the lease, and who may take it from the dead."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from monitor.errors import ConcladError
from monitor.store import Store
from monitor.store.errors import LeaseHeld
from monitor.store.rows import Lease

NAME = "coordinator"
#: The lease outlives a machine that is gone by this long, and no longer.
LEASE_TIME = timedelta(seconds=60)
LEASE_SECONDS = LEASE_TIME.total_seconds() / 4
#: How often a lease that has not run out yet is looked at.
LOOK_SECONDS = 1.0


class AlreadyRunning(ConcladError):
    """Another monitor works on this state."""


def hold(store: Store, *, sleep: Callable[[float], None] = time.sleep) -> Lease:
    """The right to be the only monitor of this state.

    A lease whose owner was a process of this machine that is no more is taken at once. One of
    another machine is waited for: the living renew theirs, and then the answer is no.
    """
    seen: Lease | None = None
    while True:
        with store.transaction() as tx:
            held = tx.leases.get(NAME)
            if held is not None and _is_dead(held.owner):
                tx.leases.release(held)
            try:
                return tx.leases.acquire(NAME, _me(), LEASE_TIME)
            except LeaseHeld:
                assert held is not None
        renewed = seen is not None and held.expires_at > seen.expires_at
        if _is_ours(held.owner) or renewed:
            raise AlreadyRunning(
                f"{store.folder}: another monitor ({held.owner}) works on this state since "
                f"{held.acquired_at:%Y-%m-%d %H:%M:%S} UTC; stop it first, or choose another "
                "state.dir"
            )
        seen = seen or held
        sleep(LOOK_SECONDS)


@contextmanager
def renewing(store: Store, lease: Lease) -> Iterator[None]:
    """Keep the lease for as long as this process lives, whatever it is busy with.

    In a thread of its own: a cluster may take minutes to start, and so may an inner loop where
    one process does everything.
    """
    over = threading.Event()

    def renew() -> None:
        while not over.wait(LEASE_SECONDS):
            # A lease that was lost is noticed by the next transaction that needs it.
            with suppress(ConcladError):
                store.renew_lease(lease, LEASE_TIME)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _me() -> str:
    return f"{_machine()} pid {os.getpid()} started {process_started(os.getpid())}"


def _machine() -> str:
    """The host, and which start of it: a process number means nothing after a reboot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text()[:8] if boot.exists() else '-'}"


def process_started(pid: int) -> str:
    """When a process began, in ticks since the machine did; numbers of processes come again."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "-"
    fields = status.rpartition(")")[2].split()
    # A zombie has died; only its parent has not looked yet.
    return "-" if fields[0] == "Z" else fields[19]


def _is_ours(owner: str) -> bool:
    return owner.startswith(f"{_machine()} pid ")


def _is_dead(owner: str) -> bool:
    """Whether the owner was a process of this machine that has ended."""
    if not _is_ours(owner) or not Path("/proc").exists():
        return False
    pid, _, began = owner.partition(" pid ")[2].partition(" started ")
    return not pid.isdigit() or process_started(int(pid)) != began
