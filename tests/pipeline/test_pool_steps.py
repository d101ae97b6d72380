"""Whether people are asked about a pool, with how many questions, and what is remembered of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.config.schema import LabelsSection
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.drift.source_drift import DriftVerdict
from monitor.novelty.drift.source_state import packed
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.novelty.trigger.trigger_decision import Evidence
from monitor.pipeline.drift_states import DriftStates, accept_shift, keep_drift
from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.pool_inspection import PoolInspection, SourceHistory, inspect_pool
from monitor.pipeline.pool_steps import (
    budget_of,
    decide_pool,
    give_up,
    learn_nothing,
    questions_left,
    read_watch,
)
from monitor.store.errors import WrongState
from monitor.store.pool_transitions import PoolEvent, PoolState
from tests.pipeline.world import CALM, NOON, World, images, make_world

AT = NOON.timestamp()
QUIET = DriftVerdict("cam-1", False, False, False, 0.0, 0.1, None, (), 0)
STARTED = replace(QUIET, shifted=True, started=True, strength=0.4, level=1.2, words=("darker",))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    made.store.close()


def inspection(strength: float, verdict: DriftVerdict = QUIET, **shifted: float) -> PoolInspection:
    return PoolInspection(
        seen=Evidence({EVERYWHERE: strength}, images=60, references=200, shifted=shifted),
        images={"cam-1": 60},
        novel={"cam-1": 12 if strength > 3 else 0},
        explained={},
        verdicts={"cam-1": verdict},
        states={"cam-1": packed({"pools": 1})},
        judged=("cam-1",),
    )


def closed_pool(world: World) -> int:
    pool = world.fill(CALM)
    with world.store.transaction() as tx:
        tx.pools.apply(pool, PoolEvent.FILLED)
    return pool


def decide(world: World, pool: int, seen: PoolInspection) -> None:
    with world.store.transaction() as tx:
        decide_pool(tx, pool, seen, world.current, world.config, at=AT)


def test_what_chance_explains_is_quiet(world: World) -> None:
    pool = closed_pool(world)
    decide(world, pool, inspection(0.3))
    assert world.state(pool) is PoolState.QUIET
    assert world.pool(pool).evidence["strength"] == {EVERYWHERE: 0.3}
    assert world.pool(pool).evidence["chance"] > world.pool(pool).evidence["level"]


def test_what_chance_does_not_explain_is_asked_about(world: World) -> None:
    pool = closed_pool(world)
    decide(world, pool, inspection(9.0))
    found = world.pool(pool)
    assert (found.state, found.budget, found.detector_version) == (PoolState.ASKING, 12, 1)
    assert found.evidence["probe"] == 0
    (event,) = world.events("pool.triggered")
    assert event.payload["budget"] == 12


def test_a_pool_that_fills_goes_on_filling_if_it_is_calm(world: World) -> None:
    pool = world.fill(CALM[:40])
    decide(world, pool, inspection(0.3))
    assert world.state(pool) is PoolState.FILLING
    assert world.events("pool.quiet", "drift.detected") == []
    with world.store.reading() as tx:
        assert read_watch(tx, 1).tests == 1, "the look is paid for all the same"


def test_a_pool_that_fills_is_closed_if_it_is_not(world: World) -> None:
    pool = world.fill(CALM[:40])
    decide(world, pool, inspection(9.0))
    assert world.state(pool) is PoolState.ASKING
    assert world.pool(pool).closed_at is not None


def test_a_quiet_pool_may_be_probed(world: World) -> None:
    world.configure("labels", trickle_per_week=7)
    pool = closed_pool(world)
    decide(world, pool, inspection(0.3))
    found = world.pool(pool)
    assert (found.state, found.evidence["probe"]) == (PoolState.ASKING, 3)
    assert found.budget == 12, "it goes on if an answer is new"
    (event,) = world.events("pool.probed")
    assert event.payload["budget"] == 3


def test_one_probe_at_a_time(world: World) -> None:
    world.configure("labels", trickle_per_week=21)
    first, second = closed_pool(world), closed_pool(world)
    decide(world, first, inspection(0.3))
    decide(world, second, inspection(0.3))
    assert world.state(first) is PoolState.ASKING
    assert world.state(second) is PoolState.QUIET


def test_a_beginning_shift_is_confirmed_with_a_few_questions(world: World) -> None:
    pool = closed_pool(world)
    decide(world, pool, inspection(0.3, STARTED))
    found = world.pool(pool)
    assert found.state is PoolState.ASKING
    assert found.budget == min(12, world.config.drift.confirm_labels)
    assert found.evidence["shifted"] == ["cam-1"]
    (event,) = world.events("drift.detected")
    assert (event.source, event.payload["words"]) == ("cam-1", ["darker"])


def test_without_questions_for_it_a_shift_is_only_reported(world: World) -> None:
    world.configure("drift", confirm_labels=0)
    pool = closed_pool(world)
    decide(world, pool, inspection(0.3, STARTED))
    assert world.state(pool) is PoolState.QUIET
    assert len(world.events("drift.detected")) == 1


def test_any_image_above_the_border_can_be_enough(world: World) -> None:
    world.configure("pools", trigger="any")
    calm, loud = closed_pool(world), world.fill("ab" * 29 + "nn")
    with world.store.transaction() as tx:
        tx.pools.apply(loud, PoolEvent.FILLED)
    assert world.pool(loud).above >= 2
    decide(world, loud, inspection(0.3))
    assert world.state(loud) is PoolState.ASKING
    if not world.pool(calm).above:
        decide(world, calm, inspection(0.3))
        assert world.state(calm) is PoolState.QUIET


def test_the_week_bounds_a_pools_questions(world: World) -> None:
    world.configure("labels", per_week=4)
    pool = closed_pool(world)
    with world.store.reading() as tx:
        assert questions_left(tx, world.config.labels) == 4
    decide(world, pool, inspection(9.0))
    assert world.pool(pool).budget == 4


@given(
    size=st.integers(1, 10_000),
    share=st.floats(0.001, 1.0),
    least=st.integers(1, 50),
    most=st.integers(1, 300),
)
def test_a_budget_is_within_its_bounds(size: int, share: float, least: int, most: int) -> None:
    budget = budget_of(size, LabelsSection(budget=share, least=least, most=most))
    assert 1 <= budget <= min(size, most)
    assert budget >= min(least, most, size)


def conclusion(**changes: Any) -> LoopConclusion:
    return replace(LoopConclusion("nothing new", (), None, None, 2, 5, 0.1, 1.5), **changes)


def test_a_round_in_vain_is_a_habit_from_then_on(world: World) -> None:
    pool = closed_pool(world)
    decide(world, pool, inspection(9.0))
    with world.store.transaction() as tx:
        learn_nothing(tx, pool, conclusion())
        habits = read_watch(tx, 1).habits
    assert world.state(pool) is PoolState.RESOLVED
    assert habits[EVERYWHERE] > 0
    assert world.count("inner_loops", "nothing new") == 1
    assert world.count("inner_loop_rounds") == 2
    second = closed_pool(world)
    decide(world, second, inspection(9.0))
    assert world.state(second) is PoolState.QUIET, "the same level does not trigger again"


def test_a_probe_in_vain_is_no_habit(world: World) -> None:
    world.configure("labels", trickle_per_week=7)
    pool = closed_pool(world)
    decide(world, pool, inspection(0.3))
    with world.store.transaction() as tx:
        learn_nothing(tx, pool, conclusion())
        assert not read_watch(tx, 1).habits


def test_another_version_begins_with_no_evidence(world: World) -> None:
    pool = closed_pool(world)
    decide(world, pool, inspection(2.0))
    with world.store.reading() as tx:
        assert read_watch(tx, 1).past
        assert not read_watch(tx, 2).past


def test_a_pool_that_is_given_up_says_why(world: World) -> None:
    pool = closed_pool(world)
    with world.store.transaction() as tx:
        give_up(tx, pool, "nobody came")
    assert world.pool(pool).reason == "nobody came"
    assert world.count("inner_loops", "unresolved") == 1
    with pytest.raises(WrongState), world.store.transaction() as tx:
        give_up(tx, pool, "nobody came")
    assert len(world.events("pool.unresolved")) == 1, "nothing of a refused step is written"


def test_drift_is_remembered_by_source_and_its_end_is_told(world: World) -> None:
    ended = replace(QUIET, ended=True)
    with world.store.transaction() as tx:
        keep_drift(tx, inspection(0.3, STARTED), DriftStates())
        keep_drift(tx, inspection(0.3, ended), DriftStates())
        assert DriftStates().read(tx, ["cam-1", "cam-2"]) == {"cam-1": packed({"pools": 1})}
    assert [e.kind for e in world.events("drift.detected", "drift.ended")] == [
        "drift.detected",
        "drift.ended",
    ]


def test_a_look_that_was_learnt_is_normal_from_then_on(world: World) -> None:

    features = images(CALM, 1)
    seen = inspect_pool(
        Sketch.of(world.current.detector),
        features,
        np.asarray(["cam-1"] * 60, dtype=object),
        np.empty((0, 8), np.float32),
        SourceHistory({}, {"cam-1": AT}),
        DriftSettings(),
    )
    with world.store.transaction() as tx:
        keep_drift(tx, seen, DriftStates())
        accept_shift(tx, ["cam-1", "cam-9"])
        note = tx.notes.get("drift", "cam-1")
    assert note["verdict"]["accepted"]
    assert not note["verdict"]["shifted"]


def test_the_record_of_a_calm_pool_does_not_grow_with_its_sources(world: World) -> None:
    pool = closed_pool(world)
    sources = [f"cam-{i:04d}" for i in range(4000)]
    seen = replace(
        inspection(0.3),
        novel=dict.fromkeys(sources, 1),
        seen=Evidence(
            {EVERYWHERE: 0.3} | dict.fromkeys(sources, 0.1), images=4000, references=200, shifted={}
        ),
    )
    decide(world, pool, seen)
    evidence = world.pool(pool).evidence
    [event] = world.events("pool.quiet")
    for told in (evidence, event.payload):
        assert len(json.dumps(told)) < 3000
        assert sum(told["novel"].values()) == 4000
        assert told["strength"][EVERYWHERE] == 0.3
