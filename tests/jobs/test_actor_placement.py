"""What embedders and helpers take of a cluster, with GPUs and without."""

from __future__ import annotations

from itertools import permutations

import pytest

from monitor.config import Config, load
from monitor.jobs.actor_placement import (
    ActorRequest,
    Node,
    Places,
    embedder_request,
    helper_nodes,
    helper_request,
    places,
)

HEAD = Node({"CPU": 0.0, "node:__internal_head__": 1.0})
SMALL, LARGE = Node({"CPU": 4.0}), Node({"CPU": 16.0})
GPUS = Node({"CPU": 8.0, "GPU": 2.0})


def config(*overrides: str) -> Config:
    return load(overrides=overrides, environ={}).config


def test_by_default_one_embedder_for_each_node_that_computes() -> None:
    assert places(config(), [LARGE]) == Places(1, 1, 16.0, 0.0, 16)
    # As large as the smallest node: what fits there fits everywhere.
    assert places(config(), [HEAD, SMALL, LARGE]) == Places(2, 2, 4.0, 0.0, 4)


def test_by_default_one_embedder_for_each_gpu() -> None:
    assert places(config(), [HEAD, SMALL, GPUS]) == Places(2, 2, 1.0, 1.0, 1)
    assert places(config("run.embedder_gpus=0.5"), [GPUS]) == Places(4, 4, 1.0, 0.5, 1)
    assert places(config("backbone.engine=openvino"), [GPUS]).gpus == 0


def test_a_number_that_follows_the_feed_begins_with_one() -> None:
    chosen = places(config("run.embedders_most=4"), [LARGE])
    assert (chosen.least, chosen.most, chosen.cpus) == (1, 4, 4.0)
    assert places(config("run.embedders=2", "run.embedders_most=1"), [LARGE]).most == 2


def test_groups_share_a_machine() -> None:
    three = [f"groups.{name}={{}}" for name in ("a", "b", "c")]
    assert places(config(*three), [LARGE]) == Places(1, 1, 5.0, 0.0, 5)
    assert places(config(*three), [Node({"CPU": 2.0})]).cpus == 0.66
    assert places(config(*three), [GPUS]) == Places(1, 1, 1.0, 0.66, 1)


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("run.embedder_labels={region: north}", True),
        ("run.embedder_labels={region: '!north'}", False),
        ("run.embedder_labels={region: 'in(north, south)'}", True),
        ("run.embedder_labels={region: west}", False),
        ("run.embedder_resources={harbour: 1}", True),
        ("run.embedder_cpus=32", False),
    ],
)
def test_what_an_embedder_asks_for(setting: str, found: bool) -> None:
    north = Node({"CPU": 8.0, "harbour": 1.0}, {"region": "north"})
    asking = config(setting)
    assert embedder_request(asking, places(asking, [north])).found_in([HEAD, north]) is found


def test_helpers_ask_for_nothing_unless_told() -> None:
    assert helper_request(config()).found_in([HEAD])
    told = config("run.helper_resources={CPU: 0.5}", "run.helper_labels={role: helper}")
    assert not helper_request(told).found_in([HEAD, LARGE])
    assert str(helper_request(told)) == "0.5 CPU, label role=helper"


def test_helpers_run_where_others_compute_and_not_on_the_head() -> None:
    labelled = Node({"CPU": 4.0}, {"role": "helper"})
    told = config("run.helper_labels={role: helper}")
    assert helper_nodes(told, [HEAD, SMALL, labelled]) == (labelled,)
    assert helper_nodes(config("run.helper_resources={CPU: 1}"), [HEAD, SMALL]) == ()
    assert helper_nodes(config(), [HEAD]) == ()


def test_helpers_stay_off_gpus_where_there_is_another_node() -> None:
    assert helper_nodes(config(), [HEAD, GPUS, SMALL]) == (SMALL,)
    assert helper_nodes(config(), [HEAD, GPUS]) == (GPUS,)


def test_helpers_come_together_so_that_the_other_nodes_may_go() -> None:
    fleet = [Node({"CPU": 4.0}, id=str(n)) for n in range(5)]
    assert {helper_nodes(config(), list(order))[0].id for order in permutations(fleet)} == {"0"}
    # What is larger comes first: there they disturb least.
    assert helper_nodes(config(), [*fleet, LARGE])[0] is LARGE


def test_fractions_add_up() -> None:
    assert ActorRequest({"GPU": 0.1}).fits(Node({"GPU": 1.0})) == 10
