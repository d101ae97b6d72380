"""A linear discriminant that is given every label: what the features allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from monitor.evaluation.live_feed import Floats, LivePool, Names

# Shrinkage of the covariance: there are fewer images than features.
_SHRINKAGE = 0.3
# Parts of a pool that are judged by a fit on the others.
_PARTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class LinearDiscriminant:
    """One covariance for all classes, shrunk towards a sphere; classes are as likely as common.

    What scikit-learn's solver "lsqr" finds, by a Cholesky factor instead of a decomposition that
    takes ten times as long.
    """

    classes: Names
    weights: NDArray[np.float64]
    bias: NDArray[np.float64]

    @classmethod
    def fit(cls, features: Floats, names: Names) -> LinearDiscriminant:
        """On labelled images."""
        classes, index, counts = np.unique(names, return_inverse=True, return_counts=True)
        rows = features.astype(np.float64)
        means = np.stack([rows[index == i].mean(axis=0) for i in range(len(classes))])
        rows -= means[index]
        covariance = rows.T @ rows / len(rows)
        even = np.trace(covariance) / len(covariance)
        covariance *= 1 - _SHRINKAGE
        covariance[np.diag_indices_from(covariance)] += _SHRINKAGE * even
        weights = cho_solve(cho_factor(covariance), means.T)
        bias = np.log(counts / len(names)) - 0.5 * np.einsum("ij,ji->i", means, weights)
        return cls(classes, weights, bias)

    def __call__(self, features: Floats) -> NDArray[np.float64]:
        """The logarithm of how likely each class is, but for what all classes share."""
        values: NDArray[np.float64] = features @ self.weights + self.bias
        return values

    def told(self, features: Floats) -> Names:
        """The likeliest class of each image."""
        told: Names = self.classes[self(features).argmax(axis=1)]
        return told


@dataclass(frozen=True, slots=True, eq=False)
class EveryLabel:
    """What it says of each image of a pool: odds of a new class against known ones, and a class."""

    odds: NDArray[np.float64]
    names: Names


def judged_by_the_rest(features: Floats, names: Names, pool: LivePool) -> EveryLabel:
    """Each fifth of a pool, judged with the labels of the other fifths and of labelled images.

    No image teaches the fit that judges it.
    """
    order = np.argsort(pool.labels, kind="stable")
    part = np.empty(len(order), dtype=np.intp)
    part[order] = np.arange(len(order)) % _PARTS
    odds, told = np.zeros(len(order)), np.empty_like(pool.labels)
    for number in range(_PARTS):
        rows = part == number
        line = LinearDiscriminant.fit(
            np.concatenate([features, pool.features[~rows]]),
            np.concatenate([names, pool.labels[~rows]]),
        )
        values = line(pool.features[rows])
        known = np.isin(line.classes, names)
        told[rows] = line.classes[values.argmax(axis=1)]
        if not known.all():
            odds[rows] = values[:, ~known].max(axis=1) - values[:, known].max(axis=1)
    return EveryLabel(odds, told)


def recall_at(false: float, score: NDArray[np.floating], new: NDArray[np.bool_]) -> float:
    """The share of new images above the score that this share of the known ones exceeds.

    >>> recall_at(0.5, np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, False, True, True]))
    1.0
    """
    return float((score[new] > np.quantile(score[~new], 1 - false)).mean())
