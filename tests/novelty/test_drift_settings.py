"""Every number of drift and of the trigger's rule does something."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt, adapted, looks_usual
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.pool_drift import split_by_shift
from monitor.novelty.drift.shift_correction import correction_of
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.drift.source_drift import accept, observation, observe
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.novelty.trigger.trigger_decision import Evidence, TriggerState
from monitor.novelty.trigger.trigger_settings import TriggerSettings
from tests.novelty.worlds import World

DAY = 86_400.0
KNOWN = 4
NAMES = ("brightness", "noise", "red", "contrast", "blue")

DRIFT: dict[str, Any] = {
    "false_alarm_days": 100_000.0,
    "quiet_pools": 4,
    "least_images": 300,
    "least_strength": 9.0,
    "calm_pools": 1,
    "conditions": 1,
    "directions": 3,
    "shrinkage": 5.0,
    "clearest": 1.0,
    "groups": 2,
    "halves": 3,
    "group_least": 20,
    "prior_spread": 3.0,
    "prior_pools": 100.0,
    "another_condition": 50.0,
    "reference": 0.01,
    "most_at_once": 1.0,
    "least_run": 1e9,
    "seen_before": 0.9999,
    "past_most": 1,
    "accepted_most": 1,
    "worth_a_word": 9.0,
    "words_most": 1,
    "alone_evidence": 90.0,
    "alone_strength": 9.0,
    "wider_most": 1.0,
    "corrected_fully": 1.0,
    "corrected_novel": 0.3,
    "eased_most": 1.0,
    "furthest": 0.1,
    "own_least": 1000,
    "own_mean": 1000,
    "further_most": 0,
    "further_share": 0.0,
    "modes_most": 1,
    "believed_alone": 0.2,
    "believed_beside_new": 1.0,
    "agreement": 1.0,
    "learnt_ratio": 100.0,
}


class Source:
    """A source with days, nights and three kinds of dirt, drawn once for all tests."""

    def __init__(self) -> None:
        self.world = World(classes=8, seed=15)
        self.detector: Detector = self.world.detector(KNOWN)
        rng = np.random.default_rng(0)
        self.dirt = [1.5 * rng.normal(size=24).astype(np.float32) for _ in range(3)]
        night = 0.8 * rng.normal(size=24).astype(np.float32)
        moves: list[Any] = [night * (n % 2) for n in range(12)]
        for dirt in (self.dirt[0], self.dirt[1], self.dirt[0], self.dirt[2], self.dirt[1]):
            moves += [dirt] * 4 + [0 * dirt] * 5
        self.pools: list[Floats] = [self._pool(70) + move for move in moves]
        self.stats = [
            rng.normal(float(np.any(move)), 1.0, size=(len(pool), len(NAMES)))
            for move, pool in zip(moves, self.pools, strict=True)
        ]
        self.new = self.world.draw(KNOWN + 1, 30)

    def _pool(self, count: int) -> Floats:
        parts = [self.world.draw(i, count // KNOWN) for i in range(KNOWN)]
        pool: Floats = np.concatenate(parts)
        return pool


@cache
def source() -> Source:
    return Source()


@cache
def seen(settings: DriftSettings) -> str:
    """All that these settings have to do with, as text."""
    case = source()
    sketch = Sketch.of(case.detector, settings)
    state, verdicts = None, []
    for number, (pool, stats) in enumerate(zip(case.pools, case.stats, strict=True)):
        found = observation(sketch, "cam", pool, at=number * DAY, stats=stats, names=NAMES)
        state, verdict = observe(state, found, settings)
        verdicts.append(verdict.to_json())
    mixed = np.concatenate([case.pools[0] + case.dirt[0], case.new])
    split = split_by_shift(sketch, mixed, ["cam"] * len(mixed))
    dirty = case.pools[0] + case.dirt[0] * np.linspace(0.5, 1.5, len(case.pools[0]))[:, None]
    correction = correction_of(sketch, dirty.astype(np.float32), strength=1.0)
    learnt = case.detector
    told = {0: 0, 20: 1, 40: 2, 5: 1}
    for dirt in (0.5 * case.dirt[0], case.dirt[1], 0.7 * case.dirt[2], case.dirt[0]):
        pool = np.concatenate([case.pools[0], case.pools[2]]) + dirt
        learnt = adapt(Sketch.of(learnt, settings), pool, told).detector
    beside = adapt(sketch, np.concatenate([pool, case.new]), told, new=(len(pool),))
    return json.dumps(
        [
            verdicts,
            state,
            split.explained.tolist(),
            [part.shifted for part in split.sources.values()],
            correction.to_json(),
            adapted(learnt, settings),
            learnt.s0(case.pools[1]).tolist(),
            [(one.samples, one.distance) for one in beside.adapted],
            looks_usual(learnt, case.new, settings),
        ]
    )


@pytest.mark.parametrize("number", [one.name for one in fields(DriftSettings)])
def test_every_number_of_drift(number: str) -> None:
    if number == "confirm_labels":
        return  # tests/pipeline: how many questions a shift alone may cost
    if number == "accepted_most":
        return  # below: it takes several shifts that people accept
    base = DriftSettings(quiet_pools=12, furthest=20.0)
    assert seen(base.replace(**{number: DRIFT[number]})) != seen(base)


def test_no_more_accepted_states_are_kept_than_set() -> None:
    case = source()
    for most in (1, 3):
        settings = DriftSettings(quiet_pools=2, accepted_most=most, conditions=1)
        sketch = Sketch.of(case.detector, settings)
        state: Any = None
        moves = [0 * case.dirt[0]] * 2
        for factor in (2.0, -2.0, 4.0, -4.0):
            moves += [factor * case.dirt[0]] * 3
        for number, move in enumerate(moves):
            seen_now = observation(sketch, "cam", case.pools[0] + move, at=number * DAY)
            state, verdict = observe(state, seen_now, settings)
            if verdict.shifted:
                state = accept(state, number * DAY, settings)
        kinds = [condition["kind"] for condition in state["conditions"]]
        assert kinds.count("accepted") == min(most + 1, 4)


TRIGGER: dict[str, Any] = {
    "false_rounds_per_month": 30.0,
    "start_credit": 5.0,
    "trickle_per_week": 2,
    "probe": 1,
    "scarce": 1.0,
    "recent": 2,
    "offset": 2.0,
    "stretch": 3.0,
    "windows": ((1, 1.0),),
    "whole": 0.9,
    "habit": 1.0,
    "sources_most": 2,
}


def decided(settings: TriggerSettings) -> str:
    """A month of pools of three sources; every round is answered with nothing new."""
    rng = np.random.default_rng(5)
    state, told = TriggerState(), []
    for number in range(60):
        by = dict(zip(("a", "b", "c"), rng.normal(0.9, 1.3, size=3).tolist(), strict=True))
        evidence = Evidence({EVERYWHERE: float(rng.normal(0.9, 1.3)), **by}, 300, 400)
        state, found = state.decided(evidence, at=number * DAY / 2, settings=settings)
        told.append([found.kind, found.chance, found.level, found.questions, found.sources])
        if found.triggered:
            state = state.nothing_new(evidence.strength, settings)
    return json.dumps([told, state.to_dict()])


@pytest.mark.parametrize("number", [one.name for one in fields(TriggerSettings)])
def test_every_number_of_the_trigger(number: str) -> None:
    # A habit takes several rounds in which nothing new is found.
    base = TriggerSettings(false_rounds_per_month=60.0 if number == "habit" else 1.0)
    assert decided(base.replace(**{number: TRIGGER[number]})) != decided(base)


def test_a_stricter_promise_asks_less() -> None:
    rounds = [
        decided(TriggerSettings(false_rounds_per_month=n, trickle_per_week=0)).count('"round"')
        for n in (0.01, 1.0, 30.0)
    ]
    assert rounds == sorted(rounds)
    assert rounds[0] < rounds[-1]


def test_another_measure_is_another_key() -> None:
    """What was learnt by one measure must not be compared by another."""
    detector = source().detector
    keys = {
        Sketch.of(detector, DriftSettings(**change)).key
        for change in ({}, {"directions": 8}, {"groups": 2}, {"clearest": 0.7}, {"halves": 3})
    }
    assert len(keys) == 5
    same = DriftSettings(false_alarm_days=3.0)
    assert Sketch.of(detector, same).key == Sketch.of(detector).key
