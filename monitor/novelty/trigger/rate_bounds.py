"""A rate that is watched as it grows: bounds that hold at every moment at once."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln

# Candidates for the rate: finer than any statement about a handful of answers.
_GRID = np.linspace(0.0, 1.0, 1001)


def rate_interval(hits: int, trials: int, *, certainty: float = 0.95) -> tuple[float, float]:
    """Rates that ``hits`` of ``trials`` do not rule out, however often one looks.

    An interval for a fixed number of trials fails in the long run when it is read after each of
    them. These are the rates p against which a bet with an even prior over all rates has won less
    than 1 / (1 − certainty): by Ville's inequality the true rate is ever outside with a probability
    of at most 1 − certainty.

    >>> rate_interval(0, 0)
    (0.0, 1.0)
    >>> low, high = rate_interval(6, 20)
    >>> 0.05 < low < 0.3 < high < 0.65
    True
    """
    misses = trials - hits
    won = betaln(hits + 1, misses + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = np.where(hits > 0, hits * np.log(_GRID), 0.0)
        likelihood = likelihood + np.where(misses > 0, misses * np.log1p(-_GRID), 0.0)
    kept = _GRID[won - likelihood < -np.log(1 - certainty)]
    return float(kept[0]), float(kept[-1])
