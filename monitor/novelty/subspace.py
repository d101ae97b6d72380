"""One class as a linear subspace of feature space, and the feature reconstruction error (FRE).

FRE is equation 3 of CONCLAD (Rios et al., 2024), from Ibrahima J. Ndiour, Nilesh A. Ahuja and Omesh
Tickoo, "Subspace Modeling for Fast Out-Of-Distribution and Anomaly Detection", ICIP 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.novelty.arrays import Floats, as_features
from monitor.novelty.errors import ClassTooSmall

# Rows of a class that are turned to float64 at a time while its covariance is summed up:
# 4,096 rows of 2,048 features are 64 MiB, whatever the size of the class.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """The mean of a class and the directions in which its samples vary.

    A sample's FRE is its distance to this affine subspace: what is left of it after projecting
    it there and back. Squared by default, which keeps the order and is what the bank computes.

    >>> rng = np.random.default_rng(0)
    >>> line = rng.normal(size=(50, 1)) * np.ones((1, 3))
    >>> subspace = Subspace.fit(line, variance=0.9)
    >>> subspace.components
    1
    >>> bool(subspace.fre([[2.0, 2.0, 2.0]])[0] < 1e-6)
    True
    """

    mean: Floats
    basis: Floats
    count: int

    @property
    def dimension(self) -> int:
        """Of the features."""
        return int(self.mean.shape[0])

    @property
    def components(self) -> int:
        """Directions that the subspace has."""
        return int(self.basis.shape[0])

    @classmethod
    def fit(cls, features: ArrayLike, *, variance: float) -> Subspace:
        """PCA that keeps the given share of variance, sane from one sample to many.

        One sample has no direction: its FRE is the distance to it. n samples have at most
        n − 1 directions.
        """
        x = as_features(features)
        n, dimension = x.shape
        if n == 0:
            raise ClassTooSmall("a class needs at least one sample to have a subspace")
        mean = x.mean(axis=0, dtype=np.float64)
        directions, energies, total = principal(x, mean)
        k = min(_components(energies, total, variance), n - 1, dimension)
        return cls(
            mean=mean.astype(np.float32),
            basis=np.ascontiguousarray(directions[:k], dtype=np.float32),
            count=n,
        )

    def fre(self, features: ArrayLike, *, squared: bool = True) -> Floats:
        """Distance of every row to the subspace, computed explicitly; never negative."""
        x = as_features(features, dimension=self.dimension)
        centred = x - self.mean
        residual = centred - (centred @ self.basis.T) @ self.basis
        error: Floats = np.einsum("ij,ij->i", residual, residual)
        return error if squared else np.sqrt(error)


def _components(energies: np.ndarray, total: float, variance: float) -> int:
    """How many leading directions hold the share ``variance`` of ``total``."""
    if total <= 0.0 or variance <= 0.0 or energies.size == 0:
        return 0
    shares = np.cumsum(energies) / total
    # The tolerance keeps rounding from asking for a direction that holds nothing.
    return min(int(np.searchsorted(shares, variance * (1 - 1e-9))) + 1, energies.size)


def principal(x: Floats, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Orthonormal directions by falling variance, their sums of squares, and the total.

    Through the n × n Gram matrix where a class has fewer samples than features, through the
    d × d covariance otherwise: the smaller eigenproblem of the two.
    """
    n, dimension = x.shape
    if n < dimension:
        centred = x.astype(np.float64) - mean
        values, vectors = np.linalg.eigh(centred @ centred.T)
    else:
        centred = x
        scatter = np.zeros((dimension, dimension))
        for start in range(0, n, _ROWS_AT_ONCE):
            rows = x[start : start + _ROWS_AT_ONCE].astype(np.float64) - mean
            scatter += rows.T @ rows
        values, vectors = np.linalg.eigh(scatter)
    order = np.argsort(values)[::-1]
    energies = np.clip(values[order], 0.0, None)
    total = float(energies.sum())
    # Below this, a direction is rounding noise and its vector arbitrary.
    kept = energies > max(total, 0.0) * 1e-10
    energies, vectors = energies[kept], vectors[:, order[kept]]
    if n >= dimension:
        return vectors.T, energies, total
    if energies.size == 0:
        return np.empty((0, dimension)), energies, total
    # Directions from the Gram matrix lose orthogonality as energies fall: mend it by QR.
    directions, triangle = np.linalg.qr((centred.T @ vectors) / np.sqrt(energies))
    return (directions * np.sign(np.diag(triangle))).T, energies, total
