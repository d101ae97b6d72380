"""Which few samples stand for a whole pool: medoids of weighted k-means."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from monitor.novelty.arrays import Floats, Ints

# Two starts: one sometimes merges two small clusters, more than two no longer pay.
_STARTS = 2


def weighted_medoids(
    points: Floats,
    weights: np.ndarray,
    count: int,
    *,
    allowed: np.ndarray,
    rng: np.random.Generator,
    clusters: int | None = None,
) -> Ints:
    """Up to ``count`` allowed samples, each the most central of one cluster.

    Weight draws the clusters: a region of large weight is cut finely, one of small weight is
    covered by few. Samples of the clusters with the largest weight in all come first. With
    ``clusters``, the pool is cut into so many and only the heaviest are represented.

    >>> points = np.array([[0.0], [0.1], [0.2], [9.0], [9.1]], dtype="f")
    >>> weights = np.array([1.0, 1.0, 1.0, 5.0, 5.0])
    >>> everywhere = np.ones(5, dtype=bool)
    >>> rng = np.random.default_rng(0)
    >>> picked = weighted_medoids(points, weights, 2, allowed=everywhere, rng=rng)
    >>> int(picked[0]) in (3, 4), int(picked[1])
    (True, 1)
    """
    free = np.flatnonzero(allowed)
    if count <= 0 or free.size == 0:
        return np.empty(0, dtype=np.intp)
    if free.size <= count:
        return free[np.argsort(-weights[free], kind="stable")]
    cut = min(max(count, clusters or count), len(points))
    means = KMeans(cut, n_init=_STARTS, random_state=int(rng.integers(2**31))).fit(
        points, sample_weight=weights
    )
    picked: list[tuple[float, int]] = []
    for cluster in range(cut):
        members = np.flatnonzero((means.labels_ == cluster) & allowed)
        if members.size == 0:
            continue
        distance = ((points[members] - means.cluster_centers_[cluster]) ** 2).sum(axis=1)
        mass = float(weights[means.labels_ == cluster].sum())
        picked.append((-mass, int(members[distance.argmin()])))
    return np.array([index for _, index in sorted(picked)[:count]], dtype=np.intp)
