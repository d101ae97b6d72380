"""The trigger: awake to something new, quiet on clean feeds, and true to its promise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.novelty.trigger.trigger_decision import (
    MONTH,
    WEEK,
    Evidence,
    TriggerState,
    threshold,
)
from monitor.novelty.trigger.trigger_settings import TriggerSettings

DAY = 86400.0
SILENT = TriggerSettings(trickle_per_week=0)


def seen(strength: float, *, images: int = 400, references: int = 400, **by: float) -> Evidence:
    return Evidence({EVERYWHERE: strength, **by}, images, references)


def watched(evidence: list[Evidence], *, every: float = DAY) -> tuple[TriggerState, list[str]]:
    """Pools at regular times; what was decided about each."""
    watch = TriggerState()
    kinds: list[str] = []
    for number, one in enumerate(evidence):
        watch, found = watch.decided(one, at=number * every, settings=SILENT)
        kinds.append(found.kind)
        if found.triggered:
            watch = watch.nothing_new({}).learnt()
    return watch, kinds


@pytest.mark.parametrize("every", [DAY / 24, DAY])
def test_a_clean_feed_costs_no_more_rounds_than_promised(every: float) -> None:
    """Strengths as chance has them, three sources, whatever the number of pools a month."""
    rng = np.random.default_rng(0)
    months, feeds = 4, 10
    pools = int(months * MONTH / every)
    rounds = 0
    for _ in range(feeds):
        by = rng.normal(size=(pools, 4))
        evidence = [
            Evidence({EVERYWHERE: row[0], "a": row[1], "b": row[2], "c": row[3]}, 400, 400)
            for row in by
        ]
        rounds += watched(evidence, every=every)[1].count("round")
    assert rounds <= feeds * (months + 0.1)


def test_a_strong_pool_asks_at_once_and_names_its_source() -> None:
    watch, _ = watched([seen(0.0, a=0.2, b=-0.4)] * 3)
    _, found = watch.decided(seen(1.0, a=0.0, b=9.0), at=3 * DAY, settings=SILENT)
    assert found.kind == "round"
    assert found.sources == ("b",)
    assert found.chance <= found.level


def test_weak_evidence_adds_up_over_pools() -> None:
    weak = threshold(1 / 30) - 0.6
    _, alone = watched([seen(0.0), seen(0.0), seen(weak)])
    _, together = watched([seen(weak, images=100, references=2000)] * 12)
    assert "round" not in alone
    assert "round" in together


def test_pools_beside_the_same_references_are_not_independent() -> None:
    """With few references a habit of theirs looks like news in every pool."""
    mild = threshold(1 / 30) - 1.2
    _, few = watched([seen(mild, images=2000, references=100)] * 16)
    _, many = watched([seen(mild, images=100, references=2000)] * 16)
    assert "round" not in few
    assert "round" in many


def test_looking_oftener_does_not_ask_oftener() -> None:
    """The level of a look is what has accrued since the last one."""
    watch, found = TriggerState().decided(seen(0.0), at=0.0, settings=SILENT)
    _, late = watch.decided(seen(0.0), at=10 * DAY, settings=SILENT)
    _, early = watch.decided(seen(0.0), at=60.0, settings=SILENT)
    assert early.level < late.level
    assert found.level < 0.1


def test_what_people_found_nothing_new_in_is_no_news_again() -> None:
    strong = seen(6.0, a=6.0)
    watch, found = TriggerState().decided(strong, at=0.0, settings=SILENT)
    assert found.kind == "round"
    watch = watch.nothing_new(strong.strength)
    for day in range(1, 30):
        watch, found = watch.decided(strong, at=day * DAY, settings=SILENT)
        assert found.kind == "quiet"
    assert watch.decided(seen(20.0, a=20.0), at=31 * DAY, settings=SILENT)[1].kind == "round"


def test_a_quiet_feed_spends_its_allowance_and_no_more() -> None:
    settings = TriggerSettings(trickle_per_week=21, probe=3)
    rng = np.random.default_rng(1)
    watch, asked = TriggerState(), 0
    weeks = 6
    for hour in range(weeks * 7 * 24):
        evidence = seen(float(np.clip(rng.normal(), -2, 2)))
        watch, found = watch.decided(evidence, at=hour * 3600.0, settings=settings)
        assert found.questions <= 3
        asked += found.questions
    assert 0.7 * 21 * weeks <= asked <= 21 * (weeks + 1)


def test_scarce_questions_go_to_pools_that_look_newer() -> None:
    settings = TriggerSettings(trickle_per_week=7, probe=1)
    rng = np.random.default_rng(2)
    watch = TriggerState()
    strengths: dict[bool, list[float]] = {True: [], False: []}
    for hour in range(7 * 24 * 8):
        value = float(np.clip(rng.normal(), -2, 2))
        watch, found = watch.decided(seen(value), at=hour * 3600.0, settings=settings)
        strengths[found.kind == "probe"].append(value)
    assert np.mean(strengths[True]) > np.mean(strengths[False]) + 0.3


def test_without_an_allowance_silence_is_as_promised() -> None:
    watch, found = TriggerState().decided(seen(1.0), at=0.0, settings=SILENT)
    assert (found.kind, found.questions) == ("quiet", 0)
    assert watch.decided(seen(1.0), at=WEEK, settings=SILENT)[1].kind == "quiet"


def test_a_look_at_a_filling_pool_neither_probes_nor_adds_up() -> None:
    watch, found = TriggerState().decided(
        seen(1.5), at=0.0, settings=TriggerSettings(), closing=False
    )
    assert found.kind == "quiet"
    assert watch.past == {}
    loud = watch.decided(seen(9.0), at=60.0, settings=TriggerSettings(), closing=False)[1]
    assert loud.kind == "round"


def test_a_shifted_source_speaks_by_its_own_chance() -> None:
    calm, loud = (Evidence({}, 0, 0, shifted={"cam": chance}) for chance in (0.3, 1e-9))
    assert TriggerState().decided(calm, at=0.0, settings=SILENT)[1].kind == "quiet"
    found = TriggerState().decided(loud, at=0.0, settings=SILENT)[1]
    assert (found.kind, found.sources) == ("round", ("cam",))


def test_what_is_remembered_survives_its_way_through_json_and_stays_small() -> None:
    watch = TriggerState()
    for number in range(40):
        by = {f"cam-{i}": 0.1 * (i % 7) for i in range(1200)}
        evidence = Evidence({EVERYWHERE: 0.0, **by}, images=400, references=400)
        watch, _ = watch.decided(evidence, at=number * DAY, settings=TriggerSettings())
    again = TriggerState.from_dict(json.loads(json.dumps(watch.to_dict())))
    assert again == watch
    assert len(watch.past) <= 1000
    assert EVERYWHERE in watch.past
    assert max(map(len, watch.past.values())) <= 15
