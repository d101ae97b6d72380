"""Every number does something: change it, and what the method computes changes."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest

from monitor.novelty.cluster_unanswered_pool import provisional_clusters
from monitor.novelty.common_settings import GraphSettings, MethodSettings
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.errors import ClassTooSmall
from monitor.novelty.inner_loop import drive, inner_loop
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.trigger.measure_pool_novelty import measure_novelty
from monitor.novelty.trigger.noticeable_share import sensitivity
from monitor.novelty.trigger.trigger_settings import PoolNoveltySettings, SensitivitySettings
from tests.novelty.worlds import World, name

KNOWN = 4
# Seen where no shift is believed: then the views weigh new against known.
UNMOVED = ("steepness", "least_evidence", "significant")

# A value for each number that differs enough to be seen.
BOTH: dict[str, Any] = {
    "squared": None,  # the other one
    "least": 1000,
    "validation": 0.5,
    "validation_least": 20,
    "references_most": 3,
    "deviations": 1.0,
    "pseudo_labels": False,
    "missed_certainty": 0.5,
    "provisional_share": 0.9,
    "variance": 0.5,
}
PAPER: dict[str, Any] = BOTH | {
    "query": "top",
    "first_share": 0.9,
    "rounds": 1,
    "iterations": 1,
    "alpha": 0.9,
    "learning_rate": 0.5,
    "batch": 3,
    "epochs": 1,
}
ROBUST: dict[str, Any] = BOTH | {
    "folds": 3,
    "opinions": False,
    "whitening": 0.1,
    "whitening_axes": 2,
    "whitening_folds": 2,
    "judged_most": 20,
    "far": 0.0,
    "false_novel": 0.3,
    "own_distribution": 10_000,
    "views": ("reach",),
    "smoothing": 0.2,
    "smoothing_steps": 1,
    "reach_floor": 0.5,
    "contrast": 0.0,
    "extreme": 0.2,
    "steepness": 0.05,
    "least_evidence": 0.5,
    "query": "top",
    "one_shot": True,
    "ask_first": 0.1,
    "ask_where_new": 0.9,
    "everywhere_from": 3,
    "dimming": 0.5,
    "quiet_labels": 2,
    "significant": 1.0,
    "confidence": 0.999,
    "keep": 0.4,
    "mind_shift": False,
    "shift_agreement": 1.0,
    "shift_own": 1,
    "shift_lessons": 1,
    "second_opinion": False,
    "sure": 1.0,
    "shrinkage": 0.9,
    "own_scale": 0,
    "ask_confirm": 0.0,
    "opinion_weight": 0.0,
    "share_floor": 0.1,
    "sure_member": 0.999,
}
# test_settle_pool.py and test_class_growth.py: nothing of them shows before a pool is over.
AFTERWARDS = (
    "guessed_wider",
    "decided",
    "false_new",
    "certain",
    "references_new",
    "rare",
    "unusual",
    "confirm_answers",
    "dissent",
    "grow_sure",
    "grow_least",
    "mature",
    "still_new",
    "anchor",
)
GRAPH: dict[str, Any] = {
    "whitening": 1.0,
    "principal": 2,
    "neighbours": 3,
    "sharpness": 1,
    "propagation": 0.0,
    "propagation_steps": 1,
}
POOL: dict[str, Any] = {
    "components": 3,
    "smoothing": 0.2,
    "smoothing_steps": 2,
    "parts": 2,
    "permutations": 40,
    "alone": 3.0,
    "sharpen": False,
    "sharpen_components": 3,
    "sharpen_steepness": 0.2,
    "seems_new": 0.3,
    "sharpen_shrinkage": 0.9,
    "false_novel": 0.4,
    "beside_most": 60,
    "beside_least": 119,
    "mixture_prior": 5000.0,
    "blur": 0.9,
    "source_least": 1000,
    "skew": (0.1, 0.2),
}
SENSITIVITY: dict[str, Any] = {
    "classes_most": 2,
    "shares": (0.1,),
    "certainty": 4.0,
    "least": 1000,
    "hidden_least": 10,
    "references_most": 40,
}


def digest(*values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()[:12]


def loop(detector: Detector, pool: np.ndarray, labels: list[str], budget: int) -> str:
    update = drive(inner_loop(detector, pool, budget=budget), lambda i: labels[i])
    found = [(d.name, d.human, d.pseudo) for d in update.discoveries]
    asked = [r.asked for r in update.rounds]
    return digest(asked, found, update.missed, update.score(pool), update.score.threshold)


@cache
def observed(settings: MethodSettings) -> tuple[str, ...]:
    """All that a user could see of a detector with these settings, in a small world."""
    world = World(classes=6, seed=4)
    features, labels = world.labelled(range(KNOWN), 40)
    mixed, truth = world.pool({0: 15, 1: 15, 2: 15, 3: 15, 4: 15, 5: 8})
    clean, known = world.pool(dict.fromkeys(range(KNOWN), 20))
    dirt = 1.5 * np.random.default_rng(3).normal(size=24).astype(np.float32)
    try:
        detector = Detector.fit(features, labels, settings=settings)
    except ClassTooSmall as error:
        return (str(error),)
    scores = detector.score(mixed)
    right = {i: int(known[i][-1]) for i in range(0, 80, 8)}
    wrong = {i: (place + 1) % KNOWN for i, place in right.items()}
    # As noise does: every class goes to nearly the same place.
    middle = clean.mean(axis=0)
    blurred = middle + 0.15 * (clean - middle) + 3 * dirt
    sketch = Sketch.of(detector, DriftSettings(furthest=50.0))
    return (
        digest(scores.score, scores.p_known, scores.novel),
        digest(detector.calibration, detector.fre_calibration),
        loop(detector, mixed, truth, 15),
        loop(detector, clean, known, 20),
        loop(detector, clean + dirt, known, 20),
        loop(detector, mixed + dirt, truth, 20),
        digest([group.tolist() for group in provisional_clusters(detector, mixed)]),
        digest(adapt(sketch, clean + dirt, right).detector.s0(clean)),
        digest(*(adapt(sketch, blurred, told).detector.s0(clean) for told in (right, wrong))),
        digest(measure_novelty(detector, mixed).score),
    )


@pytest.mark.parametrize("number", [one.name for one in fields(RobustSettings)])
def test_every_number_of_robust(number: str) -> None:
    if number in ("graph", "pool"):
        return  # groups with tests of their own
    if number in AFTERWARDS:
        return
    if number in ("shift_few", "quiet_shifted", "ask_clean"):
        return  # test_pool_belief_shift.py: they take a pool of their own
    if number == "references_taught":
        return  # test_torn_pools.py: its classes run into each other
    change = False if number == "squared" else ROBUST[number]

    before = RobustSettings(mind_shift=number not in UNMOVED)
    assert observed(before.replace(**{number: change})) != observed(before)


@pytest.mark.parametrize("number", [one.name for one in fields(PaperSettings)])
def test_every_number_of_paper(number: str) -> None:
    if number in ("graph", "pool"):
        return
    change = True if number == "squared" else PAPER[number]
    assert observed(PaperSettings().replace(**{number: change})) != observed(PaperSettings())


@pytest.mark.parametrize("settings", [RobustSettings(), PaperSettings()], ids=["robust", "paper"])
@pytest.mark.parametrize("number", [one.name for one in fields(GraphSettings)])
def test_every_number_of_the_graph_under_both_presets(
    settings: MethodSettings, number: str
) -> None:
    changed = settings.replace(graph={number: GRAPH[number]})
    assert observed(changed) != observed(settings)


@cache
def pool_seen(settings: MethodSettings) -> str:
    world = World(classes=6, dimension=32, seed=1)
    features, labels = world.labelled(range(3), 120)
    detector = Detector.fit(features, labels, settings=settings)
    pool = np.concatenate([world.draw(0, 90), world.draw(1, 30), world.draw(2, 8)])
    pool = np.concatenate([pool, world.draw(4, 12)])
    sources = ["a"] * 70 + ["b"] * 70
    found = measure_novelty(detector, pool, sources)
    return digest(found.score, found.p_known, found.novel, sorted(found.strength.items()))


@pytest.mark.parametrize("settings", [RobustSettings(), PaperSettings()], ids=["robust", "paper"])
@pytest.mark.parametrize("number", [one.name for one in fields(PoolNoveltySettings)])
def test_every_number_of_a_pools_novelty_under_both_presets(
    settings: MethodSettings, number: str
) -> None:
    if isinstance(settings, PaperSettings) and number in (
        "beside_most",
        "beside_least",
        "mixture_prior",
    ):
        # The paper keeps a dozen references a class: fewer than any of these bounds.
        settings = settings.replace(validation=0.9)
    changed = settings.replace(pool={number: POOL[number]})
    assert pool_seen(changed) != pool_seen(settings)


@pytest.mark.parametrize("number", [one.name for one in fields(SensitivitySettings)])
def test_every_number_of_what_could_be_noticed(number: str) -> None:
    world = World(classes=6, dimension=48, seed=2)
    features, labels = world.labelled(range(4), 50)
    detector = Detector.fit(features, labels)
    changed = SensitivitySettings().replace(**{number: SENSITIVITY.get(number, 0.01)})
    if number == "poor":
        # Whether more references would help is said of shares that nobody would want to miss.
        found = sensitivity(detector, 4000)
        assert found is not None
        changed = SensitivitySettings(poor=0.9 * found.one_pool)
    assert sensitivity(detector, 4000, settings=changed) != sensitivity(detector, 4000)


def test_the_classes_are_called_as_these_tests_expect() -> None:
    assert [name(i)[-1] for i in range(KNOWN)] == ["0", "1", "2", "3"]
