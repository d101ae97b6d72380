"""Confidence bounds of a rate that hold at every moment at once, however often it is read."""

from __future__ import annotations

from math import inf, lgamma, log, log1p

# Candidates for the rate: finer than any statement about a handful of answers.
_STEPS = 1000


def rate_interval(hits: int, trials: int, *, certainty: float = 0.95) -> tuple[float, float]:
    """Rates that ``hits`` of ``trials`` do not rule out, however often one looks.

    An interval for a fixed number of trials fails in the long run when it is read after each of
    them. These are the rates p against which a bet with an even prior over all rates has won less
    than 1 / (1 − certainty): by Ville's inequality the true rate is ever outside with a probability
    of at most 1 − certainty.

    >>> rate_interval(0, 0)
    (0.0, 1.0)
    >>> rate_interval(1, 20_000)
    (5e-05, 5e-05)
    >>> low, high = rate_interval(6, 20)
    >>> 0.05 < low < 0.3 < high < 0.65
    True
    """
    misses = trials - hits
    won = lgamma(hits + 1) + lgamma(misses + 1) - lgamma(trials + 2)

    def likelihood(rate: float) -> float:
        of_hits = 0.0 if not hits else hits * log(rate) if rate > 0 else -inf
        of_misses = 0.0 if not misses else misses * log1p(-rate) if rate < 1 else -inf
        return of_hits + of_misses

    # With the rate that was seen, which is never ruled out, however many trials there were.
    rates = {step / _STEPS for step in range(_STEPS + 1)} | {hits / trials if trials else 0.0}
    kept = sorted(rate for rate in rates if won - likelihood(rate) < -log(1 - certainty))
    return kept[0], kept[-1]
