"""A Ray cluster as seen from outside: does it answer, and does it have what is asked for?"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.config import Config
from monitor.doctor.findings import Check, good, problem, warning
from monitor.jobs.actor_placement import Node, embedder_request, helper_request, places

#: What stands for no cluster.
ALONE = ("local", "none")
#: A cluster that is there answers in a second; Ray itself would try for two minutes.
ANSWER_SECONDS = 60.0
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster says of itself."""

    ray: str
    nodes: tuple[Node, ...]

    def total(self, name: str) -> float:
        return sum(node.resources.get(name, 0.0) for node in self.nodes)


def look(address: str, *, seconds: float = ANSWER_SECONDS) -> Cluster | str:
    """Ask the cluster at an address; what came in the way, in one sentence, if it did not answer.

    In a process of its own: Ray keeps what it learnt of a cluster until the process ends, and may
    end the process itself.
    """
    unheard = _unheard(address)
    if unheard:
        return unheard
    try:
        done = subprocess.run(
            [sys.executable, "-m", "actors.cluster_probe", address],
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"the cluster at {address} did not answer within {seconds:.0f} s"
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0 or not last.startswith("{"):
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        return f"the cluster at {address} cannot be asked ({said or 'the look ended in silence'})"
    answer: dict[str, Any] = json.loads(last)
    if "error" in answer:
        return str(answer["error"])
    nodes = (Node(node["resources"], node["labels"]) for node in answer["nodes"])
    return Cluster(answer["ray"], tuple(nodes))


def _unheard(address: str) -> str:
    """Whether nobody listens there, which Ray takes two minutes to say."""
    host, colon, number = address.rpartition(":")
    if not colon or not number.isdigit():
        return ""
    try:
        socket.create_connection((host.strip("[]"), int(number)), CONNECT_SECONDS).close()
    except OSError as error:
        return (
            f"nobody listens at {address} ({error}); check that the head runs, and that nothing "
            "between here and there blocks the port"
        )
    return ""


def examine_cluster(
    config: Config, address: str, found: Cluster | str, ray: str
) -> Iterator[Check]:
    """What a look at the cluster means for this configuration."""
    if isinstance(found, str):
        yield problem("cluster", found)
        return
    if found.ray != ray:
        yield problem(
            "cluster",
            f"{address} runs Ray {found.ray}, this machine {ray}; both must be the same",
        )
    totals = ", ".join(
        f"{found.total(name):g} {name}s" for name in ("CPU", "GPU") if found.total(name)
    )
    yield good("cluster", f"{address} answers: {len(found.nodes)} nodes, {totals or 'no CPUs'}")
    yield resources(config, found.nodes)


def resources(config: Config, nodes: Sequence[Node]) -> Check:
    """Whether the actors that the configuration asks for have a place each."""
    chosen = places(config, nodes)
    ask, helper = embedder_request(config, chosen), helper_request(config)
    possible = sum(ask.fits(node) for node in nodes)
    if not possible:
        return problem(
            "resources",
            f"an embedder asks for {ask}, which no node of the cluster has; correct "
            "run.embedder_cpus, run.embedder_gpus, run.embedder_resources or run.embedder_labels, "
            "or add a node",
        )
    if not helper.found_in(nodes):
        return problem(
            "resources",
            f"a scorer, querier or updater asks for {helper}, which no node of the cluster has; "
            "correct run.helper_resources or run.helper_labels, or add a node",
        )
    if possible < chosen.most:
        return warning(
            "resources",
            f"up to {chosen.most} embedders of {ask} each were asked for, there is room for "
            f"{possible}; the others wait for nodes: add some, or lower run.embedders or "
            "run.embedders_most",
        )
    return good("resources", f"room for {possible} embedders of {ask} each")
