"""Waiting through outages, keeping the lease through them, and stopping at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from actors import coordinator_lease
from actors.batch_retries import FailureLog
from actors.coordinator_lease import AlreadyRunning, acquire_lease, renew_lease
from actors.run_monitor import Stop, Waiting
from monitor.errors import ErrorKind
from monitor.outages import PAUSE_MOST_SECONDS, Outages
from monitor.store import Store
from monitor.store.errors import DiskUnavailable, NotFound, StoreUnreachable
from monitor.store.note_and_counter_names import COORDINATOR_LEASE
from tests.store.conftest import Clock


def test_an_outage_is_said_once_waited_out_and_over() -> None:
    heard: list[str] = []
    outages = Outages(report=lambda kind, text: heard.append(kind))
    tries = iter([StoreUnreachable("gone"), StoreUnreachable("gone"), None])

    def action() -> str:
        error = next(tries)
        if error is not None:
            raise error
        return "done"

    waiting = Waiting(outages, Stop())
    assert waiting.until_done(action) == "done"
    assert heard == ["store.unavailable", "store.back"]
    assert outages.current() == ()


def test_one_outage_may_follow_another() -> None:
    heard: list[str] = []
    tries = iter([StoreUnreachable("gone"), DiskUnavailable("full"), None])

    def action() -> None:
        if (error := next(tries)) is not None:
            raise error

    outages = Outages(report=lambda kind, text: heard.append(kind))
    Waiting(outages, Stop()).until_done(action)
    assert heard == ["store.unavailable", "store.back", "disk.unavailable", "disk.back"]


def test_what_is_no_outage_is_not_waited_for() -> None:
    def action() -> None:
        raise NotFound("class 'x'")

    with pytest.raises(NotFound):
        Waiting(Outages(), Stop()).until_done(action)


def test_a_stop_ends_the_waiting() -> None:
    stop = Stop()
    threading.Timer(0.2, stop).start()

    def action() -> None:
        raise StoreUnreachable("gone")

    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        Waiting(Outages(), stop).until_done(action)
    assert time.monotonic() - began < 5


def test_pauses_grow_and_stay_bounded() -> None:
    outages = Outages()
    pauses = []
    for _ in range(30):
        outages.begin(StoreUnreachable("gone"))
        pauses.append(outages.pause(ErrorKind.STORE))
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 < pauses[-1] == PAUSE_MOST_SECONDS


def test_a_stop_that_came_first_is_heard_by_whoever_comes_later() -> None:
    stop, heard = Stop(), []
    stop()
    stop.then(lambda: heard.append(1))
    assert heard == [1]


def test_renewal_survives_whatever_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_lease, "RENEW_SECONDS", 0.02)
    with Store.open(tmp_path) as store:
        lease = store.acquire_lease(COORDINATOR_LEASE, "me", timedelta(minutes=1))
        renew, troubles = store.renew_lease, [OSError("disk"), StoreUnreachable("x"), KeyError("y")]
        renewed = threading.Event()

        def flaky(*arguments: object) -> object:
            if troubles:
                raise troubles.pop()
            renewed.set()
            return renew(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "renew_lease", flaky)
        with renew_lease(store, lease):
            assert renewed.wait(30)
    assert troubles == []


def _other_owner() -> str:
    """Our parent, which lives on this machine, as it would name itself."""
    pid = os.getppid()
    me = coordinator_lease._me()
    machine = me.partition(" pid ")[0]
    return f"{machine} pid {pid} started {coordinator_lease.process_started(pid)}"


def test_a_living_holder_of_this_machine_keeps_its_lease_whatever_the_clock_says(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with Store.open(tmp_path, clock=clock) as store:
        held = store.acquire_lease(COORDINATOR_LEASE, _other_owner(), timedelta(minutes=1))
        clock.advance(days=1)
        with pytest.raises(AlreadyRunning):
            acquire_lease(store)
        store.release_lease(held)
        assert acquire_lease(store).owner != held.owner


def test_a_lease_that_nobody_renews_is_taken_although_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    clock, ticks = Clock(), [0.0]
    with Store.open(tmp_path, clock=clock) as store:
        store.acquire_lease(COORDINATOR_LEASE, "elsewhere/x pid 1 started 2", timedelta(minutes=1))
        clock.advance(days=-1)

        def sleep(seconds: float) -> None:
            ticks[0] += seconds

        assert acquire_lease(store, sleep=sleep, clock=lambda: ticks[0]).owner != "elsewhere"
    assert 60 < ticks[0] < 120


def test_batches_that_fail_alike_are_told_from_one_that_fails() -> None:
    log = FailureLog("embedding")
    said = [log.failed(n, ValueError(f"file /data/{n}.parquet row {n}"), at=n) for n in (1, 2, 3)]
    assert said == [1, 2, 3], "what differs from batch to batch does not count"
    assert log.failed(4, KeyError("x"), at=4) == 1
    log.passed(at=5)
    assert log.failed(5, ValueError("file /data/5.parquet row 5"), at=6) == 1


def _catches(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
def test_a_monitor_that_is_asked_to_stop_in_its_first_seconds_stops(
    tmp_path: Path, seconds: float
) -> None:
    """While Python still loads what it needs there is nothing to finish, and that is no failure."""
    command = [sys.executable, "-m", "monitor.cli", "run", "--set", f"state.dir={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not _catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    # An empty state has no detector, which is said if it comes to that; never a signal's death.
    assert process.returncode == 0 or (process.returncode == 2 and "holds no state" in said)
