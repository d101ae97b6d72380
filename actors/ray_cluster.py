"""Connects to Ray: starts one of our own, or joins a cluster that is there."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# Before Ray is imported: it reads these once. Nothing leaves this machine unasked.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray would run its workers at the lowest priority but four; embedding is not background work.
os.environ.setdefault("RAY_worker_niceness", "0")
# What a worker raised comes with its task; Ray would print it again for results nobody fetches.
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")

import ray
from ray._private import ray_constants
from ray._private import state as ray_state
from ray._private import worker as ray_worker
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
from ray._raylet import Config as RayConfig  # type: ignore[attr-defined]

from monitor.config import Config
from monitor.errors import ConcladError, ErrorKind
from monitor.jobs.actor_placement import Node, Places, embedder_request, helper_request, places

#: Features in flight are a few megabytes; the rest of the memory is the backbone's.
OBJECT_STORE_BYTES = 512 << 20
#: On a crowded machine Ray sometimes gives up on its own start after thirty seconds.
LOCAL_TRIES = 3
#: A head that refuses so many connections, or takes none for this time each, is gone.
HEAD_TRIES, HEAD_SECONDS = 3, 2.0
#: "0": Ray takes loopback for its own address and listens there; else on all of the machine's.
ON_LOOPBACK = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR

GCS_PORT = ray_constants.GCS_PORT_ENVIRONMENT_VARIABLE

log = logging.getLogger(__name__)


class ClusterUnavailable(ConcladError):
    """No Ray could be started or reached."""


class ClusterLost(ConcladError):
    """The cluster that this process had joined is gone: its head does not answer."""

    kind = ErrorKind.CLUSTER


class ResourcesMissing(ConcladError):
    """The cluster does not have what the actors ask for."""


def connect(address: str) -> None:
    """Start a Ray on this machine ('local'), or join the cluster at an address."""
    options: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "namespace": "conclad",
    }
    # Ray prints what befalls workers and nodes to stdout, in the middle of our results. What
    # matters of it is among the monitor's own events; the rest is for whoever turns up the log.
    ray_worker.print_to_stdstream = _note
    is_first = False
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        is_first = _close_to_others()
    _read_variables_again()
    tries = LOCAL_TRIES if address == "local" else 1
    for left in reversed(range(tries)):
        try:
            with _our_signal_handlers():
                ray.init(address=address, **options)
            return
        except Exception as error:  # Ray raises bare Exceptions of its own
            ray.shutdown()
            if left:
                continue
            if is_first:
                disconnect()
            text = " ".join(str(error).split())[:300]
            raise ClusterUnavailable(
                f"Ray at {address!r} cannot be used ({text}); check that the cluster runs and "
                "that run.address or --address names it"
            ) from error


def start_again(address: str) -> None:
    """Another Ray of our own in place of one that is gone: by address and token the same.

    So those who had joined that one find this one, too.
    """
    ray.shutdown()
    _set({GCS_PORT: address.rpartition(":")[2]})
    try:
        connect("local")
    finally:
        _set({GCS_PORT: None})


def disconnect() -> None:
    """Leave Ray, and end it if it was started here; harmless to repeat."""
    ray.shutdown()
    _set(_BEFORE)
    _BEFORE.clear()


_BEFORE: dict[str, str | None] = {}
"""Variables as they were before a Ray was started here."""


def _close_to_others() -> bool:
    """A Ray that is started here listens on loopback, and wants a token that only we know.

    Ray's own would lie in the home folder and be the same for all clusters. Ours is in the
    environment of this process and of those below it, also of monitors that join from there; so
    it stays the same until :func:`disconnect`. False if it is there already.
    """
    if _BEFORE:
        return False
    ours = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_AUTH_TOKEN_PATH": None,
        ON_LOOPBACK: "0",
    }
    for name in ours:
        _BEFORE[name] = os.environ.get(name)
    _set(ours)
    return True


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _read_variables_again() -> None:
    """Ray reads them when it is imported. Only before it starts: its threads need the token."""
    ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(ON_LOOPBACK) != "0"
    RayConfig.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _our_signal_handlers() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM by one that exits at once; ours finishes the batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def head_address() -> str:
    """Where the head of the cluster that this process has joined listens."""
    return str(ray.get_runtime_context().gcs_address)


def check_head(address: str) -> None:
    """Raise ClusterLost if nobody listens there.

    Asked by a connection of our own: while its head is away, Ray's own calls wait for a minute
    and then end the process.
    """
    host, _, port = address.rpartition(":")
    for left in reversed(range(HEAD_TRIES)):
        try:
            socket.create_connection((host.strip("[]"), int(port)), HEAD_SECONDS).close()
            return
        except OSError as error:
            if not left:
                reason = error.strerror or str(error)
                raise ClusterLost(f"Ray's head at {address} does not answer ({reason})") from error
            time.sleep(HEAD_SECONDS / HEAD_TRIES)


def _note(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    for line in data["lines"]:
        log.info("%s", line)


def living_nodes() -> tuple[Node, ...]:
    """The nodes of the cluster that this process has joined, without those that are leaving it."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    leaving = draining_nodes()
    return tuple(
        Node(node["Resources"], node.get("Labels", {}), node["NodeID"])
        for node in found
        if node["Alive"] and node["NodeID"] not in leaving
    )


def draining_nodes() -> frozenset[str]:
    """Nodes that were told to end: an autoscaler or SIGTERM gives them half a minute.

    Ray puts no new actors there; what it does not do is keep work from those that are there.
    """
    return frozenset(ray_state.state.get_draining_nodes())


def node_of(actor: Any) -> str:
    """The id of the node on which an actor runs; empty where Ray does not know it (yet)."""
    found = ray_state.actors(actor._actor_id.hex())
    return str(found.get("Address", {}).get("NodeID", ""))


def wait_for_resources(
    config: Config,
    *,
    say: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Places:
    """Wait until the cluster could hold one of each role; say what is missing if it cannot.

    One embedder is enough to begin with: others start when their nodes come. Returns what the
    embedders take of the cluster as it is then.
    """
    deadline = time.monotonic() + config.run.resources_seconds
    said = ""
    while True:
        nodes = living_nodes()
        chosen = places(config, nodes)
        problem = what_is_missing(config, chosen, nodes)
        if not problem:
            return chosen
        if config.run.address == "local" or time.monotonic() > deadline:
            raise ResourcesMissing(problem)
        if problem != said:
            say(f"waiting for nodes: {problem}")
            said = problem
        sleep(1.0)


def what_is_missing(config: Config, chosen: Places, nodes: Sequence[Node]) -> str:
    """A sentence about what no single node has; nothing if all can be placed."""
    asks = (
        (
            "an embedder",
            embedder_request(config, chosen),
            "run.embedder_cpus, run.embedder_gpus, run.embedder_resources or run.embedder_labels",
        ),
        (
            "a scorer, querier or updater",
            helper_request(config),
            "run.helper_resources or run.helper_labels",
        ),
    )
    for who, ask, keys in asks:
        if not ask.found_in(nodes):
            return (
                f"{who} asks for {ask}, which no node of this cluster has; fix {keys}, or add a "
                "node"
            )
    return ""
