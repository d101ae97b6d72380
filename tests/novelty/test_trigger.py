"""The trigger: quiet on clean feeds, awake to a trickle."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.novelty.detector import Calibration
from monitor.novelty.trigger import Evidence, Tally

CALIBRATION = Calibration(t_inner=1.0, exceedance=0.05, mean=0.5, std=0.2, count=1000)
RARE = 200.0


def drawn(rng: np.random.Generator, rates: dict[str, float], samples: int) -> dict[str, Tally]:
    return {s: Tally(samples, int(rng.binomial(samples, rate))) for s, rate in rates.items()}


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_feed_stays_quiet_for_a_hundred_pools(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = Evidence()
    for _ in range(100):
        evidence = evidence.weighed(drawn(rng, {"a": 0.05, "b": 0.05}, 500), CALIBRATION)
        assert not evidence.verdict(RARE).triggered


@pytest.mark.parametrize("seed", range(20))
def test_a_third_of_a_pool_is_found_at_once_and_placed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = Evidence().weighed(drawn(rng, {"a": 0.05, "b": 0.3}, 300), CALIBRATION)
    verdict = evidence.verdict(RARE)
    assert verdict.triggered
    assert verdict.sources == ("b",)


@pytest.mark.parametrize("seed", range(20))
def test_a_trickle_is_found_over_several_pools_though_none_is_telling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence = Evidence()
    pools = 0
    while not evidence.verdict(RARE).triggered and pools < 60:
        evidence = evidence.weighed(drawn(rng, {"a": 0.08, "b": 0.05}, 300), CALIBRATION)
        pools += 1
    assert 1 < pools < 60


def test_years_of_quiet_do_not_drown_what_begins_today() -> None:
    rng = np.random.default_rng(0)
    evidence = Evidence()
    for _ in range(1000):
        evidence = evidence.weighed(drawn(rng, {"a": 0.03}, 500), CALIBRATION)
    evidence = evidence.weighed({"a": Tally(500, 150)}, CALIBRATION)
    assert evidence.verdict(RARE).triggered


def test_what_people_called_nothing_new_does_not_alarm_again() -> None:
    restless = {"a": Tally(1000, 120)}
    evidence = Evidence().weighed(restless, CALIBRATION)
    assert evidence.verdict(RARE).triggered
    evidence = evidence.nothing_new(restless)
    for _ in range(50):
        evidence = evidence.weighed(restless, CALIBRATION)
        assert not evidence.verdict(RARE).triggered
    assert evidence.weighed({"a": Tally(1000, 300)}, CALIBRATION).verdict(RARE).triggered


def test_evidence_survives_its_way_through_json() -> None:
    evidence = Evidence().nothing_new({"a": Tally(10, 1)}).weighed({"a": Tally(9, 9)}, CALIBRATION)
    assert Evidence.from_dict(json.loads(json.dumps(evidence.to_dict()))) == evidence


def test_sources_without_samples_say_nothing() -> None:
    assert Evidence().weighed({"a": Tally(0, 0)}, CALIBRATION).bets == {}
