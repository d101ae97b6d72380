"""The graph of a pool: who is whose neighbour, and what flows along the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.novelty.array_types import Floats
from monitor.novelty.common_settings import GraphSettings
from monitor.novelty.pool_graph import PoolGraph, PoolSpace

GRAPH = GraphSettings()


def clusters(sizes: list[int], *, apart: float = 6.0, seed: int = 0) -> tuple[Floats, np.ndarray]:
    """Points around orthogonal directions, and the direction of each."""
    rng = np.random.default_rng(seed)
    centres = np.eye(len(sizes), 12) * apart
    truth = np.repeat(np.arange(len(sizes)), sizes)
    points = centres[truth] + rng.normal(size=(len(truth), 12))
    return points.astype(np.float32), truth


def test_edges_join_each_node_to_its_nearest_both_ways() -> None:
    points, truth = clusters([30, 30, 30])
    graph = PoolGraph.of(points, GRAPH)
    dense = graph.weights.toarray()
    np.testing.assert_allclose(dense, dense.T, rtol=1e-6)
    assert (dense.diagonal() == 0).all(), "nobody is their own neighbour"
    assert ((dense > 0).sum(axis=1) >= GRAPH.neighbours).all()
    within = dense[truth[:, None] == truth].sum()
    assert within > 0.95 * dense.sum()


def test_sharper_edges_put_more_weight_on_the_nearest() -> None:
    points, _ = clusters([40, 40], apart=2.0)
    soft, sharp = (
        PoolGraph.of(points, GraphSettings(sharpness=power)).weights.toarray() for power in (1, 6)
    )

    def concentration(weights: np.ndarray) -> float:
        share = weights / weights.sum(axis=1, keepdims=True)
        return float((share**2).sum(axis=1).mean())

    assert concentration(sharp) > concentration(soft)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_pool_smaller_than_its_neighbourhood_has_a_graph_too(count: int) -> None:
    points, _ = clusters([count])
    graph = PoolGraph.of(points, GRAPH)
    assert graph.weights.shape == (count, count)
    assert np.isfinite(graph.smoothed(np.arange(count, dtype=float), 0.8, 20)).all()


def test_smoothing_averages_within_a_cluster_and_keeps_clusters_apart() -> None:
    points, truth = clusters([40, 40])
    rng = np.random.default_rng(1)
    values = truth + rng.normal(size=len(truth))
    smooth = PoolGraph.of(points, GRAPH).smoothed(values, 0.8, 20)
    for index in (0, 1):
        mine = truth == index
        assert smooth[mine].std() < 0.5 * values[mine].std()
    assert smooth[truth == 1].mean() - smooth[truth == 0].mean() > 0.7


def test_smoothing_leaves_a_constant_as_it_is_and_takes_many_columns_at_once() -> None:
    points, _ = clusters([25, 25])
    graph = PoolGraph.of(points, GRAPH)
    np.testing.assert_allclose(graph.smoothed(np.full(50, 3.0), 0.8, 20), 3.0, rtol=1e-5)
    columns = np.random.default_rng(0).normal(size=(50, 4))
    together = graph.smoothed(columns, 0.8, 5)
    for column in range(4):
        np.testing.assert_allclose(together[:, column], graph.smoothed(columns[:, column], 0.8, 5))
    np.testing.assert_array_equal(graph.smoothed(columns, 0.0, 5), columns)


@given(seed=st.integers(0, 200), weight=st.floats(0, 0.99), steps=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_smoothing_never_leaves_the_range_of_its_values(
    seed: int, weight: float, steps: int
) -> None:
    points, _ = clusters([15, 15], seed=seed)
    values = np.random.default_rng(seed).normal(size=30)
    smooth = PoolGraph.of(points, GRAPH).smoothed(values, weight, steps)
    assert smooth.min() >= values.min() - 1e-6
    assert smooth.max() <= values.max() + 1e-6


def test_labels_reach_their_cluster_and_no_other() -> None:
    points, truth = clusters([40, 40, 40])
    graph = PoolGraph.of(points, GRAPH)
    nodes = np.array([0, 40, 80])
    shares = graph.propagated(nodes, np.array([0, 1, 2]), 3, GRAPH)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(shares[nodes], np.eye(3))
    assert (shares.argmax(axis=1) == truth).mean() > 0.97


def test_a_class_with_many_labels_does_not_flood_one_with_few() -> None:
    points, truth = clusters([40, 40], apart=3.0)
    graph = PoolGraph.of(points, GRAPH)
    nodes = np.array([*range(30), 40])
    classes = np.array([0] * 30 + [1])
    shares = graph.propagated(nodes, classes, 2, GRAPH)
    rest = np.setdiff1d(np.flatnonzero(truth == 1), nodes)
    assert (shares[rest, 1] > 0.5).mean() > 0.9


def test_without_propagation_labels_stay_where_they_are() -> None:
    points, _ = clusters([30, 30])
    graph = PoolGraph.of(points, GRAPH)
    still = graph.propagated(np.array([0, 30]), np.array([0, 1]), 2, GraphSettings(propagation=0))
    np.testing.assert_allclose(still[1:30], 0.5, atol=1e-6)
    np.testing.assert_array_equal(still[0], [1, 0])


def test_peaks_go_to_one_cluster_each() -> None:
    points, truth = clusters([60, 30, 15, 8])
    graph = PoolGraph.of(points, GRAPH)
    weights = np.ones(len(points))
    nothing = np.empty(0, np.intp)
    apart = graph.peaks(weights, 4, asked=nothing, dimming=50.0)
    assert set(truth[apart]) == {0, 1, 2, 3}
    assert len(set(apart.tolist())) == 4
    crowded = graph.peaks(weights, 4, asked=nothing, dimming=0.0)
    assert len(set(truth[crowded])) < 4, "without dimming, questions crowd together"


def test_peaks_go_where_the_weight_is_and_not_where_somebody_was_asked() -> None:
    points, truth = clusters([30, 30, 30])
    graph = PoolGraph.of(points, GRAPH)
    weights = np.where(truth == 2, 5.0, 1.0)
    first = graph.peaks(weights, 1, asked=np.empty(0, np.intp), dimming=50.0)
    assert truth[first].tolist() == [2]
    asked = np.flatnonzero(truth == 2)[:5]
    others = graph.peaks(np.ones(90), 2, asked=asked, dimming=50.0)
    assert set(truth[others]) == {0, 1}
    assert not set(others.tolist()) & set(asked.tolist())


def test_peaks_end_when_everybody_was_asked() -> None:
    points, _ = clusters([6, 6])
    graph = PoolGraph.of(points, GRAPH)
    picked = graph.peaks(np.ones(12), 50, asked=np.arange(4), dimming=50.0)
    assert sorted(picked.tolist()) == list(range(4, 12))


def test_weights_of_a_part_of_the_nodes_choose_among_these() -> None:
    points, _ = clusters([20, 20])
    graph = PoolGraph.of(points, GRAPH)
    picked = graph.peaks(np.ones(15), 15, asked=np.empty(0, np.intp), dimming=50.0)
    assert picked.max() < 15


class Lively:
    """Classes that vary wildly in some directions and differ in others."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.loud = np.r_[np.full(6, 8.0), np.full(14, 0.5)]

    def draw(self, index: int, count: int) -> Floats:
        centre = np.zeros(20)
        centre[6 + index] = 3.0
        drawn: Floats = (centre + self.rng.normal(size=(count, 20)) * self.loud).astype(np.float32)
        return drawn


def separation(points: np.ndarray, truth: np.ndarray) -> float:
    """Distance of two class means in units of the spread around them."""
    first, second = (points[truth == i] for i in (0, 1))
    within = (first.var(axis=0).sum() + second.var(axis=0).sum()) / 2
    gap = first.mean(axis=0) - second.mean(axis=0)
    return float(gap @ gap / within)


def test_whitening_makes_classes_stand_apart() -> None:
    lively = Lively()
    reserve = np.concatenate([lively.draw(0, 60), lively.draw(1, 60)])
    classes = np.repeat([0, 1], 60)
    pool = np.concatenate([lively.draw(2, 40), lively.draw(3, 40)])
    truth = np.repeat([0, 1], 40)
    white, raw = (
        PoolSpace.of(pool, reserve, classes, GraphSettings(whitening=w)).place(pool)
        for w in (0.1, 1.0)
    )
    assert separation(white, truth) > 2 * separation(raw, truth)


def test_the_space_has_as_many_directions_as_asked_for_and_no_more_than_there_are() -> None:
    lively = Lively()
    reserve, pool = lively.draw(0, 30), lively.draw(1, 30)
    classes = np.zeros(30, np.intp)
    for principal, found in ((5, 5), (100, 20)):
        space = PoolSpace.of(pool, reserve, classes, GraphSettings(principal=principal))
        assert space.matrix.shape == (20, found)
    few = PoolSpace.of(pool[:7], reserve, classes, GRAPH)
    assert few.place(pool).shape == (30, 7)


def test_the_space_is_centred_on_the_pool_and_of_unit_scale() -> None:
    lively = Lively()
    reserve, pool = lively.draw(0, 50), lively.draw(1, 50) + 100
    space = PoolSpace.of(pool, reserve, np.zeros(50, np.intp), GRAPH)
    placed = space.place(pool)
    np.testing.assert_allclose(placed.mean(axis=0), 0.0, atol=1e-3)
    assert placed.std() == pytest.approx(1.0, rel=1e-3)


def test_references_that_are_all_alike_leave_the_space_as_it_is() -> None:
    pool = Lively().draw(0, 30)
    space = PoolSpace.of(pool, np.ones((10, 20), np.float32), np.zeros(10, np.intp), GRAPH)
    assert np.isfinite(space.place(pool)).all()
