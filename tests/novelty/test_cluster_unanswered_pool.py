"""Groups in a pool that nobody answered about."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.cluster_unanswered_pool import provisional_clusters
from tests.novelty.worlds import World


@pytest.mark.parametrize("seed", range(3))
def test_each_new_class_is_a_group_of_its_own_the_largest_first(seed: int) -> None:
    world = World(seed=seed)
    detector = world.detector(3)
    pool, labels = world.pool({0: 80, 1: 80, 2: 80, 3: 60, 4: 40}, seed=seed)
    groups = provisional_clusters(detector, pool)
    assert [len(group) > 30 for group in groups] == [True, True]
    for group, truth in zip(groups, ("class-3", "class-4"), strict=True):
        assert (np.array(labels)[group] == truth).mean() > 0.95


def test_groups_share_no_image_and_hold_only_novel_ones() -> None:
    world = World(seed=1)
    detector = world.detector(3)
    pool, _ = world.pool({0: 60, 1: 60, 4: 50, 5: 50})
    groups = provisional_clusters(detector, pool)
    together = np.concatenate(groups)
    assert len(together) == len(set(together.tolist()))
    assert detector.score(pool).novel[together].all()


def test_a_handful_above_t_inner_is_no_group() -> None:
    world = World(seed=0)
    detector = world.detector(3)
    pool, _ = world.pool({0: 20, 1: 20, 2: 20})
    assert detector.score(pool).novel.sum() < detector.settings.least
    assert provisional_clusters(detector, pool) == []


def test_the_order_of_the_pool_does_not_matter() -> None:
    world = World(seed=1)
    detector = world.detector(3)
    pool, labels = world.pool({0: 80, 3: 60, 4: 40})
    turned = provisional_clusters(detector, pool[::-1])
    straight = provisional_clusters(detector, pool)
    last = len(labels) - 1
    assert [set(g.tolist()) for g in straight] == [{last - i for i in g.tolist()} for g in turned]
