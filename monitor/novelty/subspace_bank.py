"""All known classes at once: the FRE of a batch against every subspace in one product.

For a class with mean μ and orthonormal directions W, with m = μ − WᵀWμ,

    FRE²(u) = ‖u‖² − ‖Wu‖² − 2 u·m + ‖m‖²

so stacking every W and every m gives one large product, one small one, and a sum over the
columns of each class. The identity cancels where a residual is small against the norm, so a
common centre is subtracted first and what is still too close is computed explicitly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from monitor.novelty.arrays import Floats, Ints, as_features
from monitor.novelty.errors import ClassTooSmall, DimensionMismatch
from monitor.novelty.subspace import Subspace

# Columns of the large product computed at a time: caps memory (256 rows × 4,096 columns are
# 4 MiB) at no measurable cost in speed.
_COLUMNS_AT_ONCE = 4096
# Rows at a time: keeps the temporary of a large pool small and inside the cache.
_ROWS_AT_ONCE = 1024
# Below this share of ‖u‖² left over, float32 has lost more than five digits to cancellation
# (measured: 6e-6 relative error at a residual of 0.1 of the norm): recompute explicitly.
_CANCELLED = 0.02


class SubspaceBank:
    """Scores batches against many subspaces; immutable once made.

    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.normal(loc, 1, size=(20, 8)) for loc in (0, 5)]
    >>> bank = SubspaceBank([Subspace.fit(c, variance=0.5) for c in classes])
    >>> nearest, error = bank.nearest(classes[1])
    >>> nearest.tolist() == [1] * 20
    True
    """

    def __init__(self, subspaces: Sequence[Subspace]) -> None:
        if not subspaces:
            raise ClassTooSmall("a bank needs at least one class")
        dimensions = {s.dimension for s in subspaces}
        if len(dimensions) > 1:
            raise DimensionMismatch(
                f"classes of different feature widths {sorted(dimensions)} cannot share a detector"
            )
        self._subspaces = tuple(subspaces)
        self._centre = np.mean([s.mean for s in subspaces], axis=0, dtype=np.float64)
        offsets, norms = [], []
        for s in subspaces:
            mean = s.mean - self._centre
            basis = s.basis.astype(np.float64)
            offset = mean - (basis @ mean) @ basis
            offsets.append(offset)
            norms.append(offset @ offset)
        self._offsets = np.asarray(offsets, dtype=np.float32).T
        self._norms = np.asarray(norms, dtype=np.float32)
        self._chunks = _chunks(self._subspaces)

    def __len__(self) -> int:
        return len(self._subspaces)

    @property
    def dimension(self) -> int:
        """Of the features."""
        return self._subspaces[0].dimension

    def fre(self, features: ArrayLike) -> Floats:
        """Squared FRE of every row against every class: (rows, classes), never negative."""
        x = as_features(features, dimension=self.dimension)
        out = np.empty((x.shape[0], len(self)), dtype=np.float32)
        for start in range(0, x.shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            out[rows] = self._block(x[rows])
        return out

    def nearest(self, features: ArrayLike) -> tuple[Ints, Floats]:
        """For every row the class with the least squared FRE, and that FRE."""
        errors = self.fre(features)
        index = errors.argmin(axis=1)
        return index, np.take_along_axis(errors, index[:, None], axis=1)[:, 0]

    def _block(self, x: Floats) -> Floats:
        centred = (x - self._centre).astype(np.float32)
        norms = np.einsum("ij,ij->i", centred, centred)
        errors: Floats = -2.0 * (centred @ self._offsets)
        errors += norms[:, None]
        errors += self._norms
        for basis, classes, starts in self._chunks:
            projected = centred @ basis
            np.multiply(projected, projected, out=projected)
            errors[:, classes] -= np.add.reduceat(projected, starts, axis=1)
        self._recompute(x, norms, errors)
        return errors

    def _recompute(self, x: Floats, norms: Floats, errors: Floats) -> None:
        """Replace, in place, what cancellation has spoilt by the explicit computation."""
        spoilt = errors < _CANCELLED * norms[:, None]
        for j in np.flatnonzero(spoilt.any(axis=0)):
            rows = np.flatnonzero(spoilt[:, j])
            errors[rows, j] = self._subspaces[j].fre(x[rows])


def _chunks(subspaces: Sequence[Subspace]) -> list[tuple[Floats, Ints, Ints]]:
    """Stacked directions, the classes they belong to, and where each class starts."""
    chunks: list[tuple[Floats, Ints, Ints]] = []
    group: list[int] = []
    width = 0
    for index, subspace in enumerate(subspaces):
        if subspace.components == 0:
            continue  # no directions, nothing to subtract
        if group and width + subspace.components > _COLUMNS_AT_ONCE:
            chunks.append(_stack(subspaces, group))
            group, width = [], 0
        group.append(index)
        width += subspace.components
    if group:
        chunks.append(_stack(subspaces, group))
    return chunks


def _stack(subspaces: Sequence[Subspace], group: list[int]) -> tuple[Floats, Ints, Ints]:
    basis = np.concatenate([subspaces[i].basis for i in group])
    sizes = [subspaces[i].components for i in group]
    starts = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.intp)
    return np.ascontiguousarray(basis.T), np.asarray(group, dtype=np.intp), starts
