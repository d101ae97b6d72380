"""The alarm of drift is no more often false than it promises, and quick where it may be."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.drift.drift_alarm import limit, step
from monitor.novelty.drift.drift_settings import DriftSettings


def pools_until_alarm(evidence: np.ndarray, height: float) -> int:
    level = 0.0
    for number, one in enumerate(evidence, start=1):
        level = step(level, float(one), height)
        if level > height:
            return number
    return len(evidence)


@pytest.mark.parametrize("run", [50.0, 200.0])
def test_clean_evidence_alarms_no_more_often_than_was_promised(run: float) -> None:
    rng = np.random.default_rng(0)
    height = limit(run)
    seen = [pools_until_alarm(rng.normal(size=int(12 * run)), height) for _ in range(150)]
    # Rarer than promised, since one odd pool counts only so much; but not deaf.
    assert 0.9 * run < np.mean(seen) < 4 * run


@pytest.mark.parametrize(("moved", "most"), [(1.0, 12), (2.0, 5), (10.0, 2)])
def test_a_stronger_shift_is_told_sooner(moved: float, most: int) -> None:
    rng = np.random.default_rng(1)
    height = limit(200.0)
    seen = [pools_until_alarm(rng.normal(moved, 1, size=100), height) for _ in range(100)]
    assert np.median(seen) <= most


def test_no_single_pool_raises_an_alarm_however_odd_it_is() -> None:
    for run in (10.0, 100.0, 10_000.0):
        height = limit(run)
        assert step(0.0, 1e9, height) <= height


def test_a_run_shorter_than_the_least_has_the_limit_of_the_least() -> None:
    settings = DriftSettings()
    assert limit(0.1) == limit(float(settings.least_run))


def test_a_larger_reference_forgets_small_shifts() -> None:
    deaf = DriftSettings(reference=1.0)
    level = deaf_level = 0.0
    for _ in range(50):
        level = step(level, 0.8, limit(200.0))
        deaf_level = step(deaf_level, 0.8, limit(200.0, deaf), deaf)
    assert level > 0.0
    assert deaf_level == 0.0
