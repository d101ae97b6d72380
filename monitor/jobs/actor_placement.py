"""Who runs where: what each actor asks of a cluster, and whether any of its nodes has it.

Values in, values out, without Ray: the worker pool asks before it starts workers, and
``conclad doctor`` beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.config import Config


@dataclass(frozen=True, slots=True)
class Node:
    """A living machine of the cluster, with all that it has, given out or not."""

    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    id: str = ""

    @property
    def works(self) -> bool:
        """Whether it is there to compute; heads and the monitor's own node offer nothing."""
        return self.resources.get("CPU", 0) > 0 or self.resources.get("GPU", 0) > 0


@dataclass(frozen=True, slots=True)
class ActorRequest:
    """What an actor must find on its node."""

    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        """
        >>> str(ActorRequest({"CPU": 2, "GPU": 0.5}, {"region": "north"}))
        '2 CPU, 0.5 GPU, label region=north'
        """
        amounts = [f"{amount:g} {name}" for name, amount in self.resources.items() if amount]
        return ", ".join([*amounts, *(f"label {k}={v}" for k, v in self.labels.items())])

    def fits(self, node: Node) -> int:
        """How many such actors an empty node would hold.

        >>> ActorRequest({"CPU": 2, "GPU": 0.5}).fits(Node({"CPU": 8, "GPU": 1}))
        2
        """
        if not all(is_selected(node.labels.get(name), said) for name, said in self.labels.items()):
            return 0
        # A little more than nothing: 1 / 0.1 is not quite ten.
        shares = [
            int(node.resources.get(name, 0) / amount + 1e-9)
            for name, amount in self.resources.items()
            if amount
        ]
        # Who asks for nothing finds room anywhere; a thousand is as good as any number.
        return min(shares, default=1000)

    def found_in(self, nodes: Sequence[Node]) -> bool:
        return any(self.fits(node) for node in nodes)


@dataclass(frozen=True, slots=True)
class Places:
    """How many embedders there will be, and what each takes."""

    least: int
    most: int
    cpus: float
    gpus: float
    threads: int


def places(config: Config, nodes: Sequence[Node]) -> Places:
    """What the embedders take of these nodes, as configured or as they suggest themselves.

    By default one embedder for each GPU and, where there is none, for each node that computes;
    groups of sources that share the cluster share it evenly, unless they share the embedders.

    >>> places(Config(), [Node({"CPU": 0}), Node({"CPU": 4}), Node({"CPU": 8})])
    Places(least=2, most=2, cpus=4.0, gpus=0.0, threads=4)
    """
    run = config.run
    groups = max(1, len(config.groups)) if run.embedder_share is None else 1
    all_gpus = sum(node.resources.get("GPU", 0) for node in nodes)
    cores = [node.resources["CPU"] for node in nodes if node.resources.get("CPU", 0) > 0]
    gpus = run.embedder_gpus
    if gpus is None:
        wants_gpu = all_gpus >= 1 and config.backbone.engine in ("auto", "cuda")
        gpus = min(1.0, _share(all_gpus, groups)) if wants_gpu else 0.0
    least = run.embedders
    if least is None:
        by_itself = int(all_gpus // (gpus * groups)) if gpus else len(cores) // groups
        least = 1 if run.embedders_most else max(1, by_itself)
    most = max(least, run.embedders_most or least)
    cpus = run.embedder_cpus
    if cpus is None:
        alike = _share(sum(cores), most * groups) if cores else 1.0
        cpus = 1.0 if gpus or not cores else float(min(alike, *cores))
    return Places(least, most, cpus, gpus, config.backbone.threads or max(1, int(cpus)))


def embedder_request(config: Config, chosen: Places) -> ActorRequest:
    amounts = {"CPU": chosen.cpus, "GPU": chosen.gpus, **config.run.embedder_resources}
    return ActorRequest(amounts, config.run.embedder_labels)


def helper_request(config: Config) -> ActorRequest:
    """Of scorers, the querier and the updater; by default any node that computes will do."""
    return ActorRequest(config.run.helper_resources, config.run.helper_labels)


def helper_nodes(config: Config, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes for an actor that asks for nothing, the best first.

    Those that compute, never the head by accident: Ray would put it anywhere, also where it may
    take the cluster down. Without a GPU where there is such a node: what a helper takes of the
    processor the GPU waits for. And always in the same order, so that helpers come together: an
    autoscaler takes no node away that holds an actor, even one that asks for nothing, and helpers
    all over the cluster would keep all of it.

    An actor that asks for resources is left to Ray, which waits until they are free.

    >>> small, large = Node({"CPU": 4}, id="a"), Node({"CPU": 8}, id="b")
    >>> gpu = Node({"CPU": 8, "GPU": 1}, id="c")
    >>> [node.id for node in helper_nodes(Config(), [gpu, small, large])]
    ['b', 'a']
    """
    ask = helper_request(config)
    if ask.resources:
        return ()
    fit = [node for node in nodes if node.works and ask.fits(node)]
    without = [node for node in fit if not node.resources.get("GPU", 0)]
    return tuple(sorted(without or fit, key=lambda n: (-n.resources.get("CPU", 0), n.id)))


def is_selected(value: str | None, said: str) -> bool:
    """Whether a node's label is what a selector in Ray's notation says.

    >>> is_selected("a", "a"), is_selected("a", "!a"), is_selected(None, "in(a, b)")
    (True, False, False)
    """
    if said.startswith("!"):
        return not is_selected(value, said[1:])
    if said.startswith("in(") and said.endswith(")"):
        return value in [name.strip() for name in said[3:-1].split(",")]
    return value == said


def _share(whole: float, parts: int) -> float:
    """An even share, in whole numbers where it is more than one.

    >>> _share(8, 3), _share(2, 3)
    (2.0, 0.66)
    """
    share = whole / parts
    return float(math.floor(share)) if share >= 1 else math.floor(share * 100) / 100
