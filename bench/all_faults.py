"""Random faults of every kind, several at once, for as long as a feed lasts."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess

from bench.deaths import killable_actors
from bench.strikes import (
    CLOCK_STRIKES,
    DEVICE_STRIKES,
    DISK_STRIKES,
    FEED_STRIKES,
    SERVER_STRIKES,
    Place,
    Strike,
    faulty_engine,
    later,
    lock_file,
    shifted_clock,
)
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.jobs.from_config import open_existing_store
from tests.actors.driving import in_a_process
from tests.actors.nodes import Nodes

#: How long a fault lasts.
LASTS = (3.0, 20.0)
#: How many follow each other at once, as a storm.
STORM = (1, 4)
#: A minute away, now and then; it takes the whole cluster along.
HEAD_LASTS = (5.0, 60.0)
#: How often something is killed, and how often it is the head: a new start takes its time.
KILLED_SHARE, HEAD_SHARE = 0.15, 0.03
DRIVER_DEATHS = ("driver-killed", "driver-stopped", "driver-frozen")
DEATHS = (*DRIVER_DEATHS, "actor-killed", "node-lost")
#: While nothing was committed for so long, nothing new is broken: the feed must end some day.
CALM_SECONDS = 45.0


def run_struck(config: Config, place: Place) -> None:
    """The monitor, with a device and a clock that can be struck; in a process of its own."""
    from actors.run_monitor import run

    run(
        config,
        once=True,
        open_engine=partial(faulty_engine, place, None),
        clock=partial(shifted_clock, place),
        listener=lambda message: print(f"      {message.kind}: {message.text[:120]}", flush=True),
    )


class AllFaults:
    """Strikes at random until the monitor has come to its end.

    The feed is paced by what is left of it and of the time, since faults take most of the time: a
    pace that is set once would make an hour four.
    """

    def __init__(
        self,
        config: Config,
        place: Place,
        cluster: Nodes | None,
        *,
        disk: bool,
        pause: tuple[float, float],
        seed: int,
        images: int,
        seconds: float,
        rows_at_once: int,
    ) -> None:
        self._config, self._place, self._cluster = config, place, cluster
        self._pause, self._lot = pause, random.Random(seed)
        self._images, self._seconds, self._rows_at_once = images, seconds, rows_at_once
        self._began = time.monotonic()
        self.toll: Counter[str] = Counter()
        self._busy_until: dict[int, float] = {}
        self._seen = 0
        self._doomed = [cluster.add(site=1), cluster.add(site=1)] if cluster else []
        server: dict[str, Strike] = SERVER_STRIKES if place.url else {"database-locked": lock_file}
        self._groups: list[dict[str, Strike]] = [
            FEED_STRIKES,
            server,
            DEVICE_STRIKES,
            CLOCK_STRIKES,
            *([DISK_STRIKES] if disk else []),
        ]

    def run(self, say: Callable[[str], None]) -> float:
        """Run the monitor, again after each of its deaths; the seconds until all was done."""
        self._began = time.monotonic()
        while True:
            self._set_pace(self.images())
            with in_a_process(run_struck, self._config, self._place) as process:
                ended_by_us = self._disturb(process)
                process.join()
            say(f"{self.images()} images; {sum(self.toll.values())} faults so far")
            if ended_by_us:
                continue
            assert process.exitcode == 0, f"the monitor ended with {process.exitcode}"
            return time.monotonic() - self._began

    def _set_pace(self, done: int) -> None:
        """How long a batch takes, so that what is left lasts for the rest of the time."""
        left = max(0.0, self._seconds - (time.monotonic() - self._began))
        turns = max(1.0, (self._images - done) / self._rows_at_once)
        self._place.pace.write_text(str(left / turns))

    def _disturb(self, process: BaseProcess) -> bool:
        """Until the monitor ends: by us (True), or because it has done everything."""
        seen, moved_at = self.images(), time.monotonic()
        while process.is_alive():
            process.join(self._lot.uniform(*self._pause))
            now = self.images()
            self._set_pace(now)
            if now != seen:
                seen, moved_at = now, time.monotonic()
            if time.monotonic() - moved_at > CALM_SECONDS or not process.is_alive():
                continue
            for _ in range(self._lot.randint(*STORM)):
                if process.is_alive() and self._strike(process):
                    return True
        return False

    def _strike(self, process: BaseProcess) -> bool:
        """Break something; True if it was the monitor."""
        choice = self._lot.random()
        if choice < KILLED_SHARE:
            return self._kill(process)
        if choice < KILLED_SHARE + HEAD_SHARE and self._cluster is not None:
            self._lose_head(self._cluster)
            return False
        group = self._lot.randrange(len(self._groups))
        name = self._lot.choice(sorted(self._groups[group]))
        if time.monotonic() < self._busy_until.get(group, 0.0):
            return False
        seconds = self._lot.uniform(*LASTS)
        self._busy_until[group] = time.monotonic() + seconds + 1.0
        self._count(name)
        self._groups[group][name](self._place, seconds)
        return False

    def _kill(self, process: BaseProcess) -> bool:
        name = self._lot.choice(DEATHS if self._cluster else DRIVER_DEATHS)
        assert process.pid is not None
        if name == "actor-killed":
            assert self._cluster is not None
            if victims := sorted(killable_actors(self._cluster)):
                role, victim = self._lot.choice(victims)
                self._count(f"{role.lower()}-killed")
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            return False
        self._count(name)
        if name == "node-lost":
            assert self._cluster is not None
            self._cluster.remove(self._doomed.pop(0))
            self._doomed.append(self._cluster.add(site=1))
        elif name == "driver-frozen":
            os.kill(process.pid, signal.SIGSTOP)
            pid = process.pid
            later(lambda: _continue(pid), self._lot.uniform(*LASTS))
        elif name == "driver-killed":
            process.kill()
        else:
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, signal.SIGTERM)
        return name in ("driver-killed", "driver-stopped")

    def _lose_head(self, cluster: Nodes) -> None:
        self._count("head-lost")
        cluster.lose_head()
        time.sleep(self._lot.uniform(*HEAD_LASTS))
        cluster.start_head()
        self._doomed = [cluster.add(site=1), cluster.add(site=1)]

    def _count(self, name: str) -> None:
        self.toll[name] += 1
        print(f"  {time.strftime('%H:%M:%S')} {name}", flush=True)

    def images(self) -> int:
        """Images that are through; as many as before while the store is away."""
        try:
            with open_existing_store(self._config) as store, store.reading() as tx:
                self._seen = int(sum(count.value for count in tx.counters.all("images")))
        except ConcladError:
            pass
        return self._seen


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
