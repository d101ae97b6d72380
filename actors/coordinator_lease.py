"""One monitor for one state: its lease, also after a process died, and how its runs ended.

A batch that kills the coordinator leaves no witness. All that remains is that the last runs ended
without a word and without progress. Then the batches at the front of the ledger are tried one at a
time, each attempt recorded before it begins and struck out when it was survived; a run that dies
between two attempts clears them all.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from monitor.errors import ConcladError, is_outage
from monitor.store import Store
from monitor.store.errors import LeaseHeld, LeaseLost
from monitor.store.note_and_counter_names import COORDINATOR_LEASE
from monitor.store.records import Lease

log = logging.getLogger(__name__)

#: The lease outlives a machine that is gone by this long, and no longer.
LEASE_TIME = timedelta(seconds=60)
RENEW_SECONDS = LEASE_TIME.total_seconds() / 4
JOIN_SECONDS = 5.0
#: How often a lease that has not run out yet is looked at.
POLL_SECONDS = 1.0
#: Runs that ended without a word and without a single batch, before batches are suspected.
RUNS_IN_VAIN = 3

_RUN = ("monitor", "last_run")
_ATTEMPT = ("monitor", "attempted_batch")


class AlreadyRunning(ConcladError):
    """Another monitor works on this state."""


def acquire_lease(
    store: Store,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Lease:
    """The right to be the only monitor of this state.

    A lease whose owner was a process of this machine that is no more is taken at once, and one
    whose owner lives here is not taken at all, whatever the clock says. One of another machine is
    waited for: the living renew theirs, and then the answer is no. One that nobody renews while
    we look, for longer than a lease lasts, is taken also where a clock that was set back says
    that it has not run out.
    """
    seen: Lease | None = None
    since = clock()
    while True:
        with store.transaction() as tx:
            held = tx.leases.get(COORDINATOR_LEASE)
            is_left = clock() - since > LEASE_TIME.total_seconds() + RENEW_SECONDS
            if held is not None and (_is_dead(held.owner) or (seen is not None and is_left)):
                tx.leases.release(held)
            elif held is not None and _lives_here(held):
                raise _already_running(store, held)
            try:
                return tx.leases.acquire(COORDINATOR_LEASE, _me(), LEASE_TIME)
            except LeaseHeld:
                assert held is not None
        if seen is not None and held.expires_at != seen.expires_at:
            raise _already_running(store, held)
        seen = seen or held
        sleep(POLL_SECONDS)


def _already_running(store: Store, held: Lease) -> AlreadyRunning:
    return AlreadyRunning(
        f"{store.folder}: another monitor ({held.owner}) works on this state since "
        f"{held.acquired_at:%Y-%m-%d %H:%M:%S} UTC; stop it first, or choose another state.dir"
    )


def _lives_here(held: Lease) -> bool:
    """Whether the holder is another process of this machine that is alive."""
    return _is_ours(held.owner) and held.owner != _me() and not held.is_released


@contextmanager
def renew_lease(store: Store, lease: Lease) -> Iterator[None]:
    """Keep the lease for as long as this process lives, whatever it is busy with.

    In a thread of its own: a cluster may take minutes to start, and so may an inner loop where
    one process does everything.
    """
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_SECONDS):
            try:
                store.renew_lease(lease, LEASE_TIME)
            except LeaseLost:
                return  # the next transaction that needs it notices, and ends the monitor
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody took the lease
                # An outage is said by whoever waits for its end.
                level = logging.DEBUG if is_outage(error) else logging.WARNING
                log.log(level, "the lease could not be renewed, trying again: %s", error)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        # A database that hangs keeps the thread, and must not keep us.
        thread.join(timeout=JOIN_SECONDS)


def begin_run(store: Store, lease: Lease, *, first: int) -> bool:
    """Note that a run begins; says whether the ``first`` batches are now suspect."""
    with store.transaction(lease) as tx:
        done = sum(count.value for count in tx.counters.all("batches"))
        last = tx.notes.get(*_RUN, {"ended": True})
        died_in_vain = not last["ended"] and last["done"] == done
        in_vain = last["in_vain"] + 1 if died_in_vain else 0
        if in_vain > RUNS_IN_VAIN and tx.notes.get(*_ATTEMPT) is None:
            # The batches were being tried one by one, and it died with none of them begun.
            tx.batches.acquit()
            in_vain = 0
        suspicious = in_vain >= RUNS_IN_VAIN
        if suspicious:
            pending = tx.batches.pending(first)
            tx.batches.start([batch.id for batch in pending if not batch.tries])
        tx.notes.set(*_RUN, {"ended": False, "done": done, "in_vain": in_vain})
        tx.notes.set(*_ATTEMPT, None)
    return suspicious


def end_run(store: Store, lease: Lease) -> None:
    """Note that the run ended by itself, whatever its reason."""
    with store.transaction(lease) as tx:
        last: dict[str, Any] = tx.notes.get(*_RUN, {})
        tx.notes.set(*_RUN, {**last, "ended": True})


def record_attempt(store: Store, lease: Lease, batch_id: int) -> None:
    """Durable before the work: should the batch take this process along, it is known."""
    with store.transaction(lease) as tx:
        tx.batches.start([batch_id])
        tx.notes.set(*_ATTEMPT, batch_id)


def record_survival(store: Store, lease: Lease, batch_id: int) -> None:
    """The batch was embedded, and we are still here: it is a suspect no more."""
    with store.transaction(lease) as tx:
        tx.batches.acquit(batch_id)
        tx.notes.set(*_ATTEMPT, None)


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
