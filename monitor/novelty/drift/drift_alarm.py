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

from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings

# Siegmund's correction for the jump over the limit, for normal steps.
_OVERSHOOT = 1.166


@lru_cache(maxsize=256)
def limit(run: float, settings: DriftSettings = DRIFT_DEFAULTS) -> float:
    """The limit under which clean evidence stays for ``run`` pools on average.

    >>> 2 < limit(100.0) < limit(10_000.0) < 8
    True
    """
    target, reference = max(run, settings.least_run), settings.reference

    def excess(height: float) -> float:
        reach = 2 * reference * (height + _OVERSHOOT)
        return float((np.expm1(reach) - reach) / (2 * reference**2)) - target

    return float(brentq(excess, 0.0, 50.0))


def step(
    level: float, evidence: float, height: float, settings: DriftSettings = DRIFT_DEFAULTS
) -> float:
    """The level after one more pool, with standardised evidence.

    >>> height = limit(1000.0)
    >>> step(0.0, 100.0, height) < height < step(step(0.0, 100.0, height), 100.0, height)
    True
    >>> step(1.0, -5.0, height)
    0.0
    """
    most = settings.most_at_once * height
    return max(0.0, level + min(evidence - settings.reference, most))
