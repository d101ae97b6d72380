"""What one would try first against drift, for comparison: the mean score, KS and MMD.

Each compares one pool with the pools of the quiet period and raises an alarm by itself, at a
level that gives it the same promise as ours: one false alarm in so many pools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float32]
Alarm = Callable[[Floats], bool]

# Samples of the quiet period that MMD compares with: it is quadratic in them.
_MMD_SAMPLES = 300
# Permutations of MMD; the smallest p-value that they can show is one in so many.
_PERMUTATIONS = 200


def naive_alarms(
    scores: Callable[[Floats], NDArray[np.floating]],
    quiet: list[Floats],
    run: float,
    rng: np.random.Generator,
) -> Mapping[str, Alarm]:
    """Detectors that have learnt the quiet pools; ``run`` is pools between false alarms."""
    level = 1 / run
    baseline = np.concatenate([scores(pool) for pool in quiet])
    means = np.array([float(np.mean(scores(pool))) for pool in quiet])
    far = float(stats.t.isf(level, len(means) - 1))
    everything = np.concatenate(quiet)

    def mean_score(pool: Floats) -> bool:
        return bool(np.mean(scores(pool)) > means.mean() + far * means.std(ddof=1))

    def ks(pool: Floats) -> bool:
        return bool(stats.ks_2samp(scores(pool), baseline).pvalue < level)

    def mmd(pool: Floats) -> bool:
        chosen = rng.choice(len(everything), min(_MMD_SAMPLES, len(everything)), replace=False)
        return mmd_p_value(everything[chosen], pool, rng) < max(level, 1 / _PERMUTATIONS)

    return {"mean score": mean_score, "KS per pool": ks, "MMD per pool": mmd}


def mmd_p_value(first: Floats, second: Floats, rng: np.random.Generator) -> float:
    """Whether two samples differ, by the maximum mean discrepancy with a Gaussian kernel.

    >>> rng = np.random.default_rng(0)
    >>> same = mmd_p_value(rng.normal(size=(80, 3)), rng.normal(size=(80, 3)), rng)
    >>> mmd_p_value(rng.normal(size=(80, 3)), rng.normal(1, size=(80, 3)), rng) < 0.01 < same
    True
    """
    both = np.concatenate([first, second]).astype(np.float64)
    norms = np.einsum("ij,ij->i", both, both)
    distances = np.maximum(norms[:, None] + norms - 2 * both @ both.T, 0)
    kernel = np.exp(-distances / (np.median(distances) or 1.0))
    n, m = len(first), len(second)
    weights = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    found = float(weights @ kernel @ weights)
    shuffled = np.stack([rng.permutation(weights) for _ in range(_PERMUTATIONS)])
    by_chance = np.einsum("ij,ij->i", shuffled @ kernel, shuffled)
    return float((1 + (by_chance >= found).sum()) / (1 + _PERMUTATIONS))
