"""What a detector could see is told from its own classes, left out in turn."""

from __future__ import annotations

import numpy as np

from monitor.novelty.detector import Detector
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, measure_novelty
from monitor.novelty.trigger.noticeable_share import sensitivity
from monitor.novelty.trigger.trigger_decision import threshold
from monitor.novelty.trigger.trigger_settings import SensitivitySettings
from tests.novelty.worlds import World


def detector_of(world: World, known: int, labelled: int) -> Detector:
    features, labels = world.labelled(range(known), labelled)
    return Detector.fit(features, labels)


def test_more_labelled_images_and_larger_pools_see_smaller_shares() -> None:
    world = World(classes=6, dimension=48)
    few, many = (sensitivity(detector_of(world, 4, n), 400) for n in (40, 160))
    larger = sensitivity(detector_of(world, 4, 160), 4000)
    assert few is not None
    assert many is not None
    assert larger is not None
    assert larger.one_pool < many.one_pool < few.one_pool
    assert many.ten_pools <= many.one_pool


def test_what_it_promises_is_noticed() -> None:
    noticed = 0
    for seed in range(8):
        world = World(classes=6, dimension=48, seed=seed)
        detector = detector_of(world, 4, 100)
        found = sensitivity(detector, 300, seed=seed)
        assert found is not None
        new = int(np.ceil(found.one_pool * 300))
        known = [world.draw(c, (300 - new) // 4) for c in range(4)]
        pool = np.concatenate([*known, world.draw(5, new)])
        strength = measure_novelty(detector, pool, seed=seed).strength[EVERYWHERE]
        noticed += strength > threshold(1 / 30)
    assert noticed >= 6


def test_two_classes_are_too_few_to_judge_by() -> None:
    assert sensitivity(detector_of(World(), 2, 60), 300) is None


def test_few_references_are_told_how_many_would_do() -> None:
    world = World(classes=6, dimension=48, seed=3)
    poor = sensitivity(detector_of(world, 4, 20), 400, settings=SensitivitySettings(poor=0.01))
    assert poor is not None
    assert poor.one_pool > 0.01
    assert poor.references is None or poor.references > 20
    rich = sensitivity(detector_of(world, 4, 160), 4000, settings=SensitivitySettings(poor=1.0))
    assert rich is not None
    assert rich.references is None, "what is noticed already needs no more references"


def test_rarer_false_rounds_cost_sensitivity() -> None:
    detector = detector_of(World(classes=6, dimension=48), 4, 100)
    often, seldom = (sensitivity(detector, 300, false_rounds_per_month=n) for n in (2.0, 0.1))
    assert often is not None
    assert seldom is not None
    assert often.one_pool < seldom.one_pool
    assert often.to_dict()["pool"] == 300
