"""What is switched off is missed: the direction of each ablation on features like a backbone's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monitor.evaluation.methods.ablations import ABLATIONS
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.presets import preset_settings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, measure_novelty
from monitor.novelty.trigger.trigger_decision import threshold
from tests.novelty.worlds import BackboneWorld, name

KNOWN = 4
SEEDS = range(3)


class Case:
    """Four known classes, one new one of a tenth of the pool, and images of no pool."""

    def __init__(self, seed: int, settings: MethodSettings) -> None:
        world = BackboneWorld(seed=seed)
        features, labels = world.labelled(range(KNOWN), 80)
        self.pool, self.labels = world.pool({0: 50, 1: 50, 2: 50, 3: 50, 4: 22}, seed=seed)
        self.clean, _ = world.pool(dict.fromkeys(range(KNOWN), 50), seed=seed)
        self.test = np.concatenate([world.draw(i, 60) for i in range(KNOWN + 1)])
        self.truth = np.repeat(range(KNOWN + 1), 60) == KNOWN
        self.new = np.array(self.labels) == name(KNOWN)
        self.detector = Detector.fit(features, labels, settings=settings, seed=seed)

    def loop(self, budget: int) -> Update:
        loop = inner_loop(self.detector, self.pool, budget=budget)
        return drive(loop, lambda i: self.labels[i])


def single(settings: MethodSettings) -> float:
    """AUROC of the verdict on single images."""
    found = []
    for seed in SEEDS:
        case = Case(seed, settings)
        found.append(roc_auc_score(case.truth, case.detector.score(case.test).score))
    return float(np.mean(found))


def noticed(settings: MethodSettings) -> tuple[float, float]:
    """Mean strength of pools with a new class, and AUROC of their images."""
    strengths, aurocs = [], []
    for seed in SEEDS:
        case = Case(seed, settings)
        found = measure_novelty(case.detector, case.pool, seed=seed)
        strengths.append(found.strength[EVERYWHERE])
        aurocs.append(roc_auc_score(case.new, found.score))
    return float(np.mean(strengths)), float(np.mean(aurocs))


@cache
def looped(settings: MethodSettings, budget: int = 6) -> tuple[float, float, float]:
    """Share of seeds in which the class was found, AUROC, and pseudo-labels of it."""
    found, aurocs, counts = [], [], []
    for seed in SEEDS:
        case = Case(seed, settings)
        update = case.loop(budget)
        found.append(bool(update.discoveries))
        aurocs.append(roc_auc_score(case.truth, update.score(case.test)))
        counts.append(sum(len(d.pseudo) for d in update.discoveries))
    return float(np.mean(found)), float(np.mean(aurocs)), float(np.mean(counts))


def test_opinions_are_what_single_images_live_by() -> None:
    assert single(RobustSettings()) > single(RobustSettings(opinions=False)) + 0.05
    assert single(RobustSettings()) > single(preset_settings("paper")) + 0.05


def test_cross_fitting_is_what_lets_a_pool_be_noticed() -> None:
    strong, weak = noticed(RobustSettings())[0], noticed(RobustSettings(folds=0))[0]
    assert strong > threshold(1 / 30) > weak


def test_neighbours_are_what_lets_a_pool_be_noticed_by_its_strength() -> None:
    lone = RobustSettings().replace(pool={"smoothing": 0.0})
    assert noticed(RobustSettings())[0] > 1.5 * noticed(lone)[0]


@pytest.mark.parametrize("change", [{"alone": 0.0}, {"sharpen": False}])
def test_what_sharpens_the_score_of_a_pool_does_not_blunt_it(change: dict[str, Any]) -> None:
    plain = RobustSettings().replace(pool=change)
    assert noticed(RobustSettings())[1] >= noticed(plain)[1] - 0.01


def test_no_clean_pool_is_noticed() -> None:
    for seed in SEEDS:
        case = Case(seed, RobustSettings())
        found = measure_novelty(case.detector, case.clean, seed=seed)
        assert found.strength[EVERYWHERE] < threshold(1 / 30)


def test_robust_finds_a_rare_class_with_six_questions() -> None:
    found, auroc, pseudo = looped(RobustSettings())
    assert found == 1.0
    assert auroc > 0.97
    assert pseudo > 10


def test_questions_at_random_find_a_rare_class_less_often() -> None:
    by_views = looped(RobustSettings(), 3)[0]
    at_random = looped(RobustSettings(query="random"), 3)[0]
    assert by_views > at_random


def test_without_pseudo_labels_a_class_is_what_people_named() -> None:
    found, auroc, pseudo = looped(RobustSettings(pseudo_labels=False))
    assert (found, pseudo) == (1.0, 0.0)
    assert auroc <= looped(RobustSettings())[1] + 0.01


def test_without_propagation_labels_reach_nobody_in_particular() -> None:
    """Every sample then has the same share of all classes, and none is sure enough."""
    settings = RobustSettings(least_evidence=0.5, mind_shift=False)
    case = Case(0, settings.replace(graph={"propagation": 0.0}))
    update = case.loop(6)
    assert update.discoveries
    assert all(d.pseudo == () for d in update.discoveries)


@pytest.mark.parametrize("preset", list(ABLATIONS))
def test_every_ablation_changes_settings_that_exist_and_runs(preset: str) -> None:
    for ablation, (says, changes) in ABLATIONS[preset].items():
        before = preset_settings(preset)
        after = before.replace(**changes)
        assert after != before, ablation
        assert says
    assert {"sup-top", "sup-rand", "no-iters", "no-pseudo"} <= set(ABLATIONS[preset])


@pytest.mark.parametrize("ablation", list(ABLATIONS["robust"]))
def test_every_ablation_of_robust_comes_to_an_end(ablation: str) -> None:
    settings = preset_settings("robust").replace(**ABLATIONS["robust"][ablation][1])
    case = Case(1, settings)
    update = case.loop(8)
    assert update.labels <= 8
    assert np.isfinite(update.score(case.test)).all()
