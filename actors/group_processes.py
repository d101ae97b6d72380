"""A monitor for each group of sources, side by side: started, watched, and started again.

Each group is a process of its own, so that what happens to one happens to no other, and so that
one machine with three groups is the same thing as three machines with one each. They share the
Ray cluster; where none is named, the one that is started here. If its head dies, another one takes
its place here, and the monitors, which wait for it, join that.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from actors.event_sentences import Listener, MonitorMessage
from actors.run_monitor import StoppedInOutage, Summary, run, services, stopping_on_signals
from monitor.config import Config
from monitor.errors import ConcladError

#: A monitor that ended is started again after this time, and longer each time.
RESTART_SECONDS, RESTART_MOST_SECONDS = 1.0, 60.0
#: One that lived so long has started well: its next end is a new story.
WELL_SECONDS = 300.0
#: How long one may take to stop after its grace, before it is ended.
STOP_SECONDS = 30.0
#: How often it is seen to that a Ray of our own is there: a minute after its end Ray would end us.
RAY_CHECK_SECONDS = 2.0

# Not forked: Ray and torch have threads, which do not survive it.
_processes = multiprocessing.get_context("spawn")

log = logging.getLogger(__name__)


class GroupFailed(ConcladError):
    """A group's monitor ended before its work was done."""


@dataclass(slots=True)
class _Group:
    """A group's monitor, whether it lives or not."""

    name: str
    config: Config
    process: SpawnProcess | None = None
    heard: Connection | None = None
    failures: int = 0
    started_at: float = 0.0
    not_before: float = 0.0
    summary: Summary | None = None
    trouble: str = ""


def run_groups(
    configs: Mapping[str, Config],
    *,
    once: bool = False,
    listener: Callable[[str, MonitorMessage], None] = lambda group, message: None,
) -> dict[str, Summary]:
    """Watch every group until SIGTERM or SIGINT, or with ``once`` until all are through.

    A monitor that dies is started again, and the others do not notice. With ``once`` it is not:
    :class:`GroupFailed` names it, after the others have ended.
    """
    with _cluster(next(iter(configs.values()))) as cluster:
        groups = [_Group(name, _at(config, cluster.address)) for name, config in configs.items()]
        watch = _GroupWatch(groups, cluster, once, listener)
        try:
            with stopping_on_signals(watch.stop):
                watch.run()
        finally:
            watch.end()
    troubles = [f"{g.name}: {g.trouble}" for g in groups if g.trouble and (once or not g.summary)]
    if troubles:
        raise GroupFailed("; ".join(troubles))
    return {group.name: group.summary for group in groups if group.summary is not None}


class _GroupWatch:
    """The one loop over all groups."""

    def __init__(
        self,
        groups: list[_Group],
        cluster: _GroupCluster,
        once: bool,
        listener: Callable[[str, MonitorMessage], None],
    ) -> None:
        self._groups, self._cluster = groups, cluster
        self._once, self._listener = once, listener
        self._stopping: float | None = None

    def stop(self) -> None:
        """Ask every monitor to finish what is in flight; safe to call from a signal handler."""
        self._stopping = time.monotonic()
        for group in self._groups:
            if group.process is not None:
                group.process.terminate()

    def run(self) -> None:
        for group in self._groups:
            _start(group, self._once)
        while living := [g for g in self._groups if g.process is not None or self._is_due(g)]:
            for group in living:
                if group.process is None and time.monotonic() >= group.not_before:
                    _start(group, self._once)
            pipes = {g.heard: g for g in living if g.heard is not None}
            for ready in wait(list(pipes), timeout=0.5):
                self._hear(pipes[ready])  # type: ignore[index]
            self._end_those_who_hang()
            self._cluster.keep()

    def end(self) -> None:
        for group in self._groups:
            if group.process is not None:
                group.process.kill()
                group.process.join()

    def _is_due(self, group: _Group) -> bool:
        return not self._once and self._stopping is None

    def _hear(self, group: _Group) -> None:
        assert group.heard is not None
        try:
            kind, what = group.heard.recv()
        except (EOFError, OSError):
            self._has_ended(group)
            return
        if kind == "message":
            self._listener(group.name, what)
        elif kind == "summary":
            group.summary, group.trouble = what, ""
        else:
            group.trouble = what

    def _has_ended(self, group: _Group) -> None:
        assert group.process is not None
        assert group.heard is not None
        group.process.join()
        code = group.process.exitcode
        group.heard.close()
        group.process = group.heard = None
        if code == 0 or (self._stopping is not None and code == -signal.SIGTERM):
            return  # the latter: asked to stop before it had its own handlers
        group.trouble = group.trouble or f"its process ended with code {code}"
        lived = time.monotonic() - group.started_at
        group.failures = 1 if lived > WELL_SECONDS else group.failures + 1
        pause = min(RESTART_SECONDS * 2 ** (group.failures - 1), RESTART_MOST_SECONDS)
        group.not_before = time.monotonic() + pause
        again = f"; trying again in {pause:g} s" if self._is_due(group) else ""
        self._listener(group.name, MonitorMessage("group.ended", f"ended: {group.trouble}{again}"))

    def _end_those_who_hang(self) -> None:
        for group in self._groups:
            patience = group.config.run.grace_seconds + STOP_SECONDS
            late = self._stopping is not None and time.monotonic() - self._stopping > patience
            if late and group.process is not None:
                group.process.kill()


def _start(group: _Group, once: bool) -> None:
    group.heard, theirs = _processes.Pipe(duplex=False)
    group.process = _processes.Process(
        target=_run_one, args=(group.config, once, theirs), name=f"conclad-{group.name}"
    )
    group.process.start()
    # Ours would keep the pipe open after they have gone.
    theirs.close()
    group.started_at = time.monotonic()


def _run_one(config: Config, once: bool, pipe: Connection) -> None:
    """In the process of one group: the monitor, as if it were alone."""
    # Ctrl-C is for the one who started us, and who asks us to stop in our own time.
    os.setsid()
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()

    alone = threading.Lock()  # a pipe is for one thread, and several have something to say

    def say(kind: str, what: Any) -> None:
        with suppress(OSError), alone:
            pipe.send((kind, what))

    listener: Listener = partial(say, "message")
    try:
        beside = partial(services, with_desk=not once)
        say("summary", run(config, once=once, listener=listener, services=beside))
    except StoppedInOutage as stopped:
        say("message", MonitorMessage("monitor.stopped", str(stopped)))
    except ConcladError as error:
        say("trouble", str(error))
        raise SystemExit(2) from None


def _leave_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _GroupCluster:
    """The Ray that all groups use, at an address that stays."""

    def __init__(self, address: str) -> None:
        self.address = address

    def keep(self) -> None:
        """Somebody else sees to a cluster that was there before us."""


class _OwnRay(_GroupCluster):
    """Started here, and again at the same address if its head is lost."""

    def __init__(self) -> None:
        from actors.ray_cluster import connect, head_address

        connect("local")
        super().__init__(head_address())
        self._checked = time.monotonic()

    def keep(self) -> None:
        from actors.ray_cluster import ClusterLost, ClusterUnavailable, check_head, start_again

        if time.monotonic() - self._checked < RAY_CHECK_SECONDS:
            return
        try:
            check_head(self.address)
        except ClusterLost as lost:
            log.warning("%s; starting another one", lost)
            try:
                start_again(self.address)
            except ClusterUnavailable as error:  # the monitors wait, and so do we
                log.warning("%s", error)
        self._checked = time.monotonic()


@contextmanager
def _cluster(config: Config) -> Iterator[_GroupCluster]:
    """The Ray that all groups use; 'local' starts it here, once for all."""
    if config.run.address != "local":
        yield _GroupCluster(config.run.address)
        return
    from actors.ray_cluster import disconnect

    try:
        yield _OwnRay()
    finally:
        disconnect()


def _at(config: Config, address: str) -> Config:
    return config.model_copy(update={"run": config.run.model_copy(update={"address": address})})
