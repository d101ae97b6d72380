"""Bounds on a rate that may be read after every answer."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.trigger.rate_bounds import rate_interval


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_the_true_rate_stays_inside_at_every_moment(rate: float) -> None:
    rng = np.random.default_rng(0)
    ever_outside = 0
    for _ in range(60):
        hits = np.cumsum(rng.random(60) < rate)
        bounds = [rate_interval(int(h), n) for n, h in enumerate(hits, start=1)]
        ever_outside += any(not low <= rate <= high for low, high in bounds)
    assert ever_outside <= 6  # one in twenty is promised, over all moments together


def test_more_answers_say_more() -> None:
    wide, narrow = rate_interval(3, 10), rate_interval(300, 1000)
    assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 4
    assert rate_interval(5, 5)[1] == 1.0
    assert rate_interval(0, 5)[0] == 0.0


@pytest.mark.parametrize(("hits", "trials"), [(0, 4), (2, 9), (15, 40)])
def test_hits_and_misses_are_judged_alike(hits: int, trials: int) -> None:
    low, high = rate_interval(hits, trials)
    other = rate_interval(trials - hits, trials)
    assert other == pytest.approx((1 - high, 1 - low))


def test_more_certainty_is_a_wider_interval_around_the_rate_that_was_seen() -> None:
    wide, narrow = (rate_interval(6, 20, certainty=c) for c in (0.99, 0.8))
    assert wide[0] < narrow[0] < 6 / 20 < narrow[1] < wide[1]
