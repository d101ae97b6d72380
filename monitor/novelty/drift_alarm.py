"""When evidence that comes pool by pool is enough: a CUSUM with a known rate of false alarms.

Small shifts that stay are found by adding up, sudden ones by their size. The limit is Siegmund's
approximation of the mean time between false alarms for standard normal evidence; detectors that
the well-known libraries offer for streams (Page-Hinkley, ADWIN, KSWIN) are set by a threshold
whose rate of false alarms nobody states, so none of them can keep "one in so many days".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

# What each pool's evidence must exceed to count, in standard deviations: half the smallest shift
# that is to be found soon (Page's rule).
REFERENCE = 0.75
# Siegmund's correction for the jump over the limit, for normal steps.
_OVERSHOOT = 1.166
# One pool may fill at most this share of the limit: two in a row raise an alarm, a single odd
# one never does, however odd.
_MOST_AT_ONCE = 0.6
# Fewer pools between false alarms than this cannot be promised from a handful of pools.
LEAST_RUN = 20.0


@lru_cache(maxsize=256)
def limit(run: float) -> float:
    """The limit under which clean evidence stays for ``run`` pools on average.

    >>> 2 < limit(100.0) < limit(10_000.0) < 8
    True
    """
    target = max(run, LEAST_RUN)

    def excess(height: float) -> float:
        reach = 2 * REFERENCE * (height + _OVERSHOOT)
        return float((np.expm1(reach) - reach) / (2 * REFERENCE**2)) - target

    return float(brentq(excess, 0.0, 50.0))


def step(level: float, evidence: float, height: float) -> float:
    """The level after one more pool, with standardised evidence.

    >>> height = limit(1000.0)
    >>> step(0.0, 100.0, height) < height < step(step(0.0, 100.0, height), 100.0, height)
    True
    >>> step(1.0, -5.0, height)
    0.0
    """
    return max(0.0, level + min(evidence - REFERENCE, _MOST_AT_ONCE * height))
