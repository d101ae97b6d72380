"""Drift of known classes is told, with its rate of false alarms; new classes are not drift."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.novelty.array_types import Floats
from monitor.novelty.drift import drift_alarm
from monitor.novelty.drift.pool_drift import observe_pool, split_by_shift
from monitor.novelty.drift.sketch import coherence
from monitor.novelty.drift.source_drift import (
    DriftSettings,
    DriftVerdict,
    Sketch,
    accept,
    observation,
    observe,
)
from monitor.novelty.drift.source_state import Displacement
from monitor.novelty.errors import InvalidSettings
from monitor.novelty.inner_loop import drive, inner_loop
from tests.novelty.worlds import World, name

DAY = 86_400.0
KNOWN = 4
DIRT = np.random.default_rng(7).normal(size=24).astype(np.float32)
STATS = ("brightness", "noise")


class Feed:
    """A source that shows known classes in an ever changing mix, clean or dirty.

    With so few dimensions a new class often points where a shift would; in this world it does not.
    """

    def __init__(self, seed: int = 15) -> None:
        self.world = World(classes=8, seed=seed)
        self.detector = self.world.detector(KNOWN)
        self.sketch = Sketch.of(self.detector)
        self._rng = np.random.default_rng(seed)

    def pool(self, count: int = 150, *, dirt: float = 0.0, new: float = 0.0) -> Floats:
        share = self._rng.dirichlet(np.full(KNOWN, 3.0)) * (1 - new)
        counts = self._rng.multinomial(count, [*share, new])
        parts = [self.world.draw(i, n) + dirt * DIRT for i, n in enumerate(counts[:KNOWN])]
        pool = np.concatenate([*parts, self.world.draw(KNOWN + 1, counts[-1])])
        shuffled: Floats = pool[self._rng.permutation(len(pool))]
        return shuffled

    def see(
        self,
        state: dict[str, Any] | None,
        pools: list[Floats],
        *,
        first: float,
        per_day: float = 1.0,
        light: float = 0.5,
        options: DriftSettings | None = None,
    ) -> tuple[dict[str, Any] | None, list[DriftVerdict]]:
        verdicts = []
        for number, pool in enumerate(pools):
            look = self._rng.normal((light, 0.1), 0.05, size=(len(pool), 2))
            seen = observation(
                self.sketch, "cam", pool, at=first + number * DAY / per_day, stats=look, names=STATS
            )
            state, verdict = observe(state, seen, options or DriftSettings())
            # What is kept between two pools goes through a database.
            state = json.loads(json.dumps(state))
            verdicts.append(verdict)
        return state, verdicts


@pytest.fixture(scope="module")
def feed() -> Feed:
    return Feed()


@pytest.fixture(scope="module")
def settled(feed: Feed) -> dict[str, Any]:
    state, verdicts = feed.see(None, [feed.pool() for _ in range(20)], first=0.0)
    assert [v.learning for v in verdicts] == list(range(19, -1, -1))
    assert state is not None
    return state


def test_a_sudden_shift_is_told_at_the_second_pool(feed: Feed, settled: dict[str, Any]) -> None:
    dirty = [feed.pool(dirt=1.5) for _ in range(3)]
    _, verdicts = feed.see(settled, dirty, first=30 * DAY, light=0.2)
    assert [v.shifted for v in verdicts] == [False, True, True]
    assert [v.started for v in verdicts] == [False, True, False]
    assert verdicts[1].since == 30 * DAY
    assert verdicts[1].words == ("darker",)
    assert "darker" in str(verdicts[1])
    assert verdicts[1].strength > 0.08


def test_one_odd_pool_is_no_alarm(feed: Feed, settled: dict[str, Any]) -> None:
    pools = [feed.pool(dirt=5.0), *(feed.pool() for _ in range(10))]
    _, verdicts = feed.see(settled, pools, first=30 * DAY)
    assert not any(v.shifted for v in verdicts)


def test_a_gradual_shift_is_told(feed: Feed, settled: dict[str, Any]) -> None:
    slow = [feed.pool(dirt=0.05 * step) for step in range(30)]
    _, verdicts = feed.see(settled, slow, first=30 * DAY)
    assert verdicts[-1].shifted
    assert verdicts[-1].since is not None
    assert verdicts[-1].since < 58 * DAY


@pytest.mark.parametrize("share", [0.1, 0.33])
def test_a_new_class_is_not_drift(feed: Feed, settled: dict[str, Any], share: float) -> None:
    pools = [feed.pool(new=share) for _ in range(20)]
    _, verdicts = feed.see(settled, pools, first=30 * DAY)
    assert not any(v.shifted for v in verdicts)


def test_a_shift_that_ends_is_told_and_known_again_when_it_returns(
    feed: Feed, settled: dict[str, Any]
) -> None:
    dirty, clean = ([feed.pool(dirt=d) for _ in range(4)] for d in (1.5, 0.0))
    state, verdicts = feed.see(settled, [*dirty, *clean], first=30 * DAY)
    assert [v.ended for v in verdicts] == [False] * 6 + [True, False]
    assert verdicts[3].seen_before is None
    _, again = feed.see(state, [feed.pool(dirt=1.5) for _ in range(2)], first=50 * DAY)
    assert again[-1].shifted
    assert again[-1].seen_before == 36 * DAY


def test_day_and_night_are_both_normal_when_the_quiet_period_had_both(feed: Feed) -> None:
    both = [feed.pool(dirt=1.5 * (number % 2)) for number in range(60)]
    state, verdicts = feed.see(None, both, first=0.0, per_day=2)
    assert state is not None
    assert len(state["conditions"]) >= 2
    assert not any(v.shifted for v in verdicts)
    other = [-feed.pool(dirt=1.5) for _ in range(2)]
    _, verdicts = feed.see(state, other, first=40 * DAY)
    assert verdicts[-1].shifted, "a third look is still told"


def test_what_people_accept_is_normal_from_then_on(feed: Feed, settled: dict[str, Any]) -> None:
    state, _ = feed.see(settled, [feed.pool(dirt=1.5) for _ in range(3)], first=30 * DAY)
    assert state is not None
    accepted = accept(state, 33 * DAY)
    _, verdicts = feed.see(
        accepted, [feed.pool(dirt=1.5 * (n % 2)) for n in range(10)], first=34 * DAY
    )
    assert not any(v.shifted for v in verdicts)
    assert accept(settled, 33 * DAY) == settled, "without a shift there is nothing to accept"


def test_small_pools_are_put_together(feed: Feed, settled: dict[str, Any]) -> None:
    small = [feed.pool(20, dirt=1.5) for _ in range(12)]
    _, verdicts = feed.see(settled, small, first=30 * DAY, per_day=4)
    assert verdicts[-1].shifted


def test_another_measure_begins_anew(feed: Feed, settled: dict[str, Any]) -> None:
    other = Feed(seed=1)
    _, verdicts = other.see(settled, [other.pool()], first=30 * DAY)
    assert verdicts[0].learning == 19


def test_a_discovery_leaves_the_measure_as_it_was(feed: Feed) -> None:
    pool = np.concatenate([feed.pool(200), feed.world.draw(6, 80)])
    truth = ["known"] * 200 + ["ship"] * 80
    update = drive(
        inner_loop(feed.detector, pool, budget=20),
        lambda i: truth[i] if truth[i] == "ship" else name(0),
    )
    after = Sketch.of(update.apply(feed.detector, pool))
    assert len(after.detector.classes) == KNOWN + 1
    assert after.key == feed.sketch.key
    np.testing.assert_allclose(after.directions, feed.sketch.directions)


def test_false_alarms_keep_to_their_rate() -> None:
    """Normal evidence, a thousand pools of each of 40 sources, one allowed in 200 pools."""
    rng = np.random.default_rng(0)
    height = drift_alarm.limit(200.0)
    alarms = 0
    for _ in range(40):
        level = 0.0
        for evidence in rng.normal(size=1000):
            level = drift_alarm.step(level, float(evidence), height)
            if level > height:
                alarms, level = alarms + 1, 0.0
    assert 40 * 1000 / 200 * 0.3 < alarms < 40 * 1000 / 200 * 1.2


def test_a_clean_year_is_quiet(feed: Feed) -> None:
    pools = [feed.pool(80) for _ in range(365)]
    _, verdicts = feed.see(None, pools, first=0.0)
    assert sum(v.started for v in verdicts) <= 365 / DriftSettings().false_alarm_days


def test_shift_is_taken_back_and_what_is_new_stays_new(feed: Feed) -> None:
    dirty, new = feed.pool(200, dirt=2.0), feed.world.draw(KNOWN + 1, 60) + 2 * DIRT
    clean = feed.pool(200)
    pool = np.concatenate([dirty, new, clean])
    found = split_by_shift(feed.sketch, pool, ["dirty"] * 260 + ["clean"] * 200)
    assert found.sources["dirty"].shifted
    assert not found.sources["clean"].shifted
    assert found.above[:200].mean() > 0.5
    assert (found.above & ~found.explained)[:200].mean() < 0.15
    assert (found.above & ~found.explained)[200:260].mean() > 0.8
    np.testing.assert_array_equal(found.corrected[260:], clean)
    assert found.sources["dirty"].left == int((found.above & ~found.explained)[:260].sum())


def test_a_pool_is_watched_source_by_source(feed: Feed, settled: dict[str, Any]) -> None:
    states: dict[str, Any] = {"cam": settled, "gone": settled}
    for day in (30, 31):
        pool = np.concatenate([feed.pool(dirt=1.5), feed.pool()])
        sources = ["cam"] * 150 + ["other"] * 150
        found = observe_pool(feed.sketch, states, pool, sources, at=day * DAY)
        states = dict(found.states)
    assert found.shifted == ("cam",)
    assert found.verdicts["other"].learning == 18
    assert states["gone"] == settled
    assert set(found.split.sources) == {"cam", "other"}
    assert not found.split.explained[150:].any()


@given(counts=st.lists(st.integers(0, 5), min_size=6, max_size=6), width=st.integers(1, 70))
@settings(max_examples=50, deadline=None)
def test_evidence_is_finite_however_little_there_is(counts: list[int], width: int) -> None:
    rng = np.random.default_rng(sum(counts))
    found = coherence(Displacement(rng.normal(size=(6, width)), np.array(counts, dtype=float)))
    assert np.isfinite([found.evidence, found.strength]).all()


def test_an_impossible_setting_is_named() -> None:
    with pytest.raises(InvalidSettings, match="quiet_pools: 0"):
        DriftSettings(quiet_pools=0)


def test_a_verdict_is_json(feed: Feed, settled: dict[str, Any]) -> None:
    _, verdicts = feed.see(settled, [feed.pool()], first=30 * DAY)
    assert json.loads(json.dumps(verdicts[0].to_json()))["source"] == "cam"
    assert str(verdicts[0]) == "cam: as usual"
