"""Classes without a name: what a pool that nobody answered about seems to hold."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import HDBSCAN

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.pool_graph import PoolSpace


def provisional_clusters(detector: Detector, pool: Floats) -> list[Ints]:
    """Groups among the samples above T_inner that lie closely together, the largest first.

    Density decides how many groups there are. To be asked of pools in which something new shows:
    of a clean one it may give a few samples that exceed T_inner by chance.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(0, 60), images(9, 60)])
    >>> detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    >>> first, *_ = provisional_clusters(detector, np.concatenate([images(0, 80), images(-9, 40)]))
    >>> bool(len(first) >= 38 and first.min() >= 80)
    True
    """
    settings = detector.settings
    least = max(settings.least, int(np.ceil(settings.provisional_share * len(pool))))
    above = np.flatnonzero(detector.score(pool).novel)
    if len(above) < least:
        return []
    known = detector.references
    space = PoolSpace.of(pool, known.features, known.classes, settings.graph)
    # References take part: what exceeds T_inner by chance stays with them, and several new classes
    # are told apart. Where no group is dense enough beside them, the densest spot above T_inner is.
    points = np.concatenate([space.place(pool[above]), space.place(known.features)])
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    found = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(unit)
    mine, theirs = found[: len(above)], found[len(above) :]
    labels = range(found.max() + 1)
    own = [i for i in labels if (mine == i).sum() >= max(least, (theirs == i).sum() + 1)]
    groups = [above[mine == i] for i in own] or _densest(above, unit[: len(above)], least)
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def _densest(above: Ints, unit: Floats, least: int) -> list[Ints]:
    found = HDBSCAN(min_cluster_size=least, allow_single_cluster=True, copy=True).fit_predict(unit)
    return [above[found == label] for label in range(found.max() + 1)]
