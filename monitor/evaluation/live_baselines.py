"""What one would try first to notice something new in a pool, for comparison.

Each judges one pool by itself, beside the labelled images. But for the paper's rule, which has no
level, each is set to the promise of the monitor: one false alarm in so many pools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from monitor.evaluation.live_feed import Floats
from monitor.evaluation.shift_baselines import mmd_p_value
from monitor.novelty.detector import Detector
from monitor.novelty.paper.paper_settings import PaperSettings

Alarm = Callable[[Floats], bool]

ANY, KS, MMD, MEAN = "any above T_inner", "KS on scores", "MMD on features", "mean score"
NAIVE = (ANY, KS, MMD, MEAN)
# Images of either side that MMD compares: it is quadratic in them.
_MMD_SAMPLES = 300


def live_alarms(
    detector: Detector,
    features: Floats,
    labels: Sequence[str],
    level: float,
    rng: np.random.Generator,
) -> Mapping[str, Alarm]:
    """An alarm for each of :data:`NAIVE`, from the images that ``detector`` was fitted on."""
    published = Detector.fit(features, labels, settings=PaperSettings())
    # As a detector sees them that has not been fitted on them.
    usual = detector.judged.score
    far = float(stats.norm.isf(level))

    def count(pool: Floats) -> bool:
        return bool(published.score(pool).novel.any())

    def ks(pool: Floats) -> bool:
        return bool(stats.ks_2samp(detector.score(pool).score, usual).pvalue < level)

    def mmd(pool: Floats) -> bool:
        mine, theirs = (x[rng.permutation(len(x))[:_MMD_SAMPLES]] for x in (features, pool))
        return mmd_p_value(mine, theirs, rng) < level

    def mean_score(pool: Floats) -> bool:
        scores = detector.score(pool).score
        error = np.sqrt(usual.var(ddof=1) * (1 / len(scores) + 1 / len(usual)))
        return bool(scores.mean() > usual.mean() + far * error)

    return {ANY: count, KS: ks, MMD: mmd, MEAN: mean_score}
