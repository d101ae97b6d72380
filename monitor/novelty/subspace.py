"""Classes as linear subspaces of feature space, and the feature reconstruction error (FRE).

FRE is equation 3 of CONCLAD (Rios et al., 2024), from Ibrahima J. Ndiour, Nilesh A. Ahuja and Omesh
Tickoo, "Subspace Modeling for Fast Out-Of-Distribution and Anomaly Detection", ICIP 2022.

:class:`Subspace` is one class, :class:`SubspaceBank` scores a batch against all of them in one
product, :class:`BankScreen` rules out most of many classes before that, :class:`References` are
samples of known classes as they look to a detector that has not seen them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.errors import ClassTooSmall, DimensionMismatch, InvalidFeatures

if TYPE_CHECKING:
    from torch import Tensor

# Rows of a class that are turned to float64 at a time while its covariance is summed up:
# 4,096 rows of 2,048 features are 64 MiB, whatever the size of the class.
_ROWS_AT_ONCE = 4096
#: Directions of all classes together from which the screen is worth loading torch for: below it a
#: batch of 256 rows takes less than a sixth of what the smallest backbone takes for its images.
WORTHWHILE = 8192
#: Directions in one product: 2,048 of them times 256 rows are 2 MiB, which stay in the cache.
_DIRECTIONS_AT_ONCE = 2048
#: Of a signed 8-bit integer.
_LARGEST = 127
#: Float32 rounds sums of some thousand terms to about this share of their largest term.
_ROUNDING = 1e-5
#: A number that is rounded to bfloat16 moves by no more than this share of it.
_BFLOAT16_STEP = 2.0**-8
_TINY = 1e-30


def as_features(values: Any, *, dimension: int | None = None, what: str = "features") -> Floats:
    """A finite float32 matrix, or an error that names the first offending row.

    The caller's array is never written to; it is copied only when its type or layout differs.

    >>> as_features([[1, 2], [3, 4]]).dtype
    dtype('float32')
    """
    try:
        array = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidFeatures(f"{what}: not a matrix of numbers ({error})") from None
    if array.ndim != 2:
        raise InvalidFeatures(
            f"{what}: expected one row of numbers per image, got an array of shape {array.shape}"
        )
    if array.shape[1] == 0:
        raise InvalidFeatures(f"{what}: rows have no columns; check what the backbone returned")
    if dimension is not None and array.shape[1] != dimension:
        raise DimensionMismatch(
            f"{what}: {array.shape[1]} columns, but the detector was fitted on {dimension}; "
            "use the backbone that the detector was fitted with"
        )
    # One pass without a temporary as large as the matrix: the sum of a row is finite only if
    # every entry is, except for overflow, which the exact test then clears.
    suspicious = np.flatnonzero(~np.isfinite(array.sum(axis=1)))
    bad = suspicious[~np.isfinite(array[suspicious]).all(axis=1)]
    if bad.size:
        raise InvalidFeatures(
            f"{what}: row {int(bad[0])} has NaN or infinite values ({bad.size} such rows in all); "
            "drop these images or look at the backbone's precision"
        )
    return array


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
        error = self.squared_fre(as_features(features, dimension=self.dimension))
        return error if squared else np.sqrt(error)

    def squared_fre(self, x: Floats) -> Floats:
        """The same of rows that were checked before."""
        centred = x - self.mean
        residual = centred - (centred @ self.basis.T) @ self.basis
        error: Floats = np.einsum("ij,ij->i", residual, residual)
        return error

    def squared_fre_by_lengths(self, x: Floats) -> Floats:
        """The same from one product in place of two, as the bank computes it.

        What lies inside the subspace is taken from the whole; rows for which that leaves next to
        nothing are computed explicitly.
        """
        centred = x - self.mean
        inside = centred @ self.basis.T
        whole = np.einsum("ij,ij->i", centred, centred)
        error: Floats = whole - np.einsum("ij,ij->i", inside, inside)
        spoilt = error < _CANCELLED * whole
        if spoilt.any():
            error[spoilt] = self.squared_fre(x[spoilt])
        return error


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
    # Directions from the Gram matrix lose orthogonality as energies fall: restore it by QR.
    directions, triangle = np.linalg.qr((centred.T @ vectors) / np.sqrt(energies))
    return (directions * np.sign(np.diag(triangle))).T, energies, total


# Columns of the large product computed at a time: caps memory (256 rows × 4,096 columns are
# 4 MiB) at no measurable cost in speed.
_COLUMNS_AT_ONCE = 4096
# Rows at a time: keeps the temporary of a large pool small and inside the cache.
_ROWS_SCORED_AT_ONCE = 1024
# Below this share of ‖u‖² left over, float32 has lost more than five digits to cancellation
# (measured: 6e-6 relative error at a residual of 0.1 of the norm): recompute explicitly.
_CANCELLED = 0.02


class SubspaceBank:
    """Scores batches against many subspaces in one product; immutable once made.

    For a class with mean μ and orthonormal directions W, with m = μ − WᵀWμ,

        FRE²(u) = ‖u‖² − ‖Wu‖² − 2 u·m + ‖m‖²

    so stacking every W and every m gives one large product, one small one, and a sum over the
    columns of each class. The identity cancels where a residual is small against the norm, so a
    common centre is subtracted first and what is still too close is computed explicitly.

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
        for start in range(0, x.shape[0], _ROWS_SCORED_AT_ONCE):
            rows = slice(start, start + _ROWS_SCORED_AT_ONCE)
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


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Samples of known classes, the class of each, and its cross-fitted errors.

    ``errors`` has the squared FRE of every sample to every class, to its own as a subspace says
    that was fitted without it.
    """

    features: Floats
    classes: Ints
    errors: Floats

    def __len__(self) -> int:
        return len(self.features)

    def taken(self, rows: Ints) -> References:
        """These rows alone."""
        return References(self.features[rows], self.classes[rows], self.errors[rows])

    def some(self, most: int) -> Ints:
        """At most about ``most`` rows, as many of each class, the first ones of each."""
        if len(self) <= most:
            return np.arange(len(self))
        distinct = np.unique(self.classes)
        each = max(most // max(len(distinct), 1), 1)
        return np.concatenate([np.flatnonzero(self.classes == i)[:each] for i in distinct])


@dataclass(frozen=True, slots=True, eq=False)
class JudgedReferences:
    """``rows`` among the references, their scores and the classes that they resemble."""

    rows: Ints
    score: Floats
    nearest: Ints


class FreBounds(NamedTuple):
    """Squared FRE of every row against every subspace lies between ``lower`` and ``upper``."""

    lower: Floats
    upper: Floats


class _Chunk(NamedTuple):
    directions: Tensor
    """8-bit, of some classes one after the other, padded to the same number for each."""
    squared_steps: Tensor
    """How large one step of its integers is, squared, for each direction of each class."""
    classes: Ints


class BankScreen:
    """Which of many classes can be the nearest: bounds on FRE from a product in 8-bit integers.

    With a thousand classes one product with all their directions costs as much as a backbone.
    Nearly all of it is spent on classes that are far away, so the product is taken in 8 bits first,
    which processors with VNNI or AMX compute about seven times as fast as float32. What 8 bits lose
    is known: for a class with directions W and a centred row u, rounded to W̃ and ũ,

        | ‖Wu‖ − ‖W̃ũ‖ |  ≤  ‖W̃‖ ‖u − ũ‖ + ‖W − W̃‖ ‖u‖

    with spectral norms of the matrices, which are computed once. That bounds the FRE of every class
    from both sides, and only the classes that can still be the nearest are computed exactly. The
    integer product itself is exact: 127² times the number of features is far below 2³¹.

    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.normal(loc, 1, size=(20, 8)).astype("f") for loc in (0, 5)]
    >>> subspaces = [Subspace.fit(c, variance=0.5) for c in classes]
    >>> screen = BankScreen(subspaces)
    >>> lower, upper = screen.bounds(classes[0])
    >>> bool((lower[:, 0] <= subspaces[0].fre(classes[0])).all())
    True
    >>> bool((subspaces[0].fre(classes[0]) <= upper[:, 0]).all())
    True
    """

    def __init__(self, subspaces: Sequence[Subspace]) -> None:
        import torch

        means = np.stack([s.mean for s in subspaces])
        # Lengths are measured from the middle of the classes: what is short loses little.
        self._centre = means.mean(axis=0, dtype=np.float64).astype(np.float32)
        means = means - self._centre
        offsets = np.empty_like(means)
        # Per class: what rounding its directions loses.
        self._lost = np.zeros(len(subspaces), np.float32)
        self._chunks: list[_Chunk] = []
        by_size = np.argsort([-s.components for s in subspaces], kind="stable")
        first = 0
        while first < len(by_size):
            each = max(1, subspaces[by_size[first]].components)
            classes = by_size[first : first + max(1, _DIRECTIONS_AT_ONCE // each)]
            first += len(classes)
            rounded = np.zeros((len(classes), each, means.shape[1]), np.int8)
            steps = np.zeros((len(classes), 1, each), np.float32)
            for place, j in enumerate(classes):
                basis = subspaces[j].basis
                offsets[j] = means[j] - (basis @ means[j]) @ basis
                if len(basis):
                    step = np.maximum(np.abs(basis).max(axis=1), _TINY) / _LARGEST
                    whole = np.rint(basis / step[:, None])
                    rounded[place, : len(basis)] = whole
                    steps[place, 0, : len(basis)] = step
                    loss = whole * step[:, None] - basis
                    self._lost[j] = np.sqrt(np.linalg.eigvalsh(loss @ loss.T)[-1].clip(0))
            directions = torch.from_numpy(rounded.reshape(-1, means.shape[1]))
            self._chunks.append(_Chunk(directions, torch.from_numpy(steps**2), classes))
        self._lost *= 1 + _ROUNDING
        is_fast = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
        kind = torch.bfloat16 if is_fast else torch.float32
        self._offsets = torch.from_numpy(np.ascontiguousarray(offsets.T)).to(kind)
        rounding = offsets.T - self._offsets.float().numpy()
        self._offsets_lost = np.linalg.norm(rounding, axis=0) * (1 + _ROUNDING)
        self._norms = np.einsum("ij,ij->i", offsets, offsets)

    @staticmethod
    def pays(subspaces: Sequence[Subspace]) -> bool:
        """Whether there are enough directions, and a processor that multiplies 8-bit integers."""
        if sum(s.components for s in subspaces) < WORTHWHILE:
            return False
        import torch

        able = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("vnni", "amx_tile")]
        return hasattr(torch, "_int_mm") and any(check is not None and check() for check in able)

    def bounds(self, x: Floats) -> FreBounds:
        """Of every row of ``x`` (float32) against every subspace."""
        centred = (x - self._centre).astype(np.float32)
        squares = np.einsum("ij,ij->i", centred, centred)
        steps = np.maximum(np.abs(centred).max(axis=1, initial=0), _TINY) / _LARGEST
        whole = np.rint(centred / steps[:, None])
        loss = centred - whole * steps[:, None]
        inside = self._lengths(whole.astype(np.int8)) * steps[:, None]
        length = np.sqrt(squares)[:, None]
        slack = np.sqrt(np.einsum("ij,ij->i", loss, loss))[:, None] * (1 + self._lost)
        slack += length * (self._lost + np.float32(_ROUNDING))
        along, along_lost = self._along_offsets(centred, length)
        outside = squares[:, None] + self._norms - 2 * along
        rounding = np.float32(_ROUNDING) * (squares[:, None] + self._norms) + 2 * along_lost
        lower = outside - (inside + slack) ** 2 - rounding
        upper = outside - np.maximum(inside - slack, 0) ** 2 + rounding
        return FreBounds(np.maximum(lower, 0), upper)

    def _along_offsets(self, centred: Floats, length: Floats) -> tuple[Floats, Floats]:
        """Products with the offsets of all classes, and what they are off by at most.

        In bfloat16 where the processor has it: sums are then kept in float32, and only the result
        is rounded once more.
        """
        import torch

        rows = torch.from_numpy(centred)
        rounded = rows.to(self._offsets.dtype)
        lost = (rows - rounded.float()).norm(dim=1, keepdim=True).numpy()
        along: Floats = (rounded @ self._offsets).float().numpy()
        off = lost * np.sqrt(self._norms) + (length + lost) * self._offsets_lost
        return along, off + np.abs(along) * np.float32(_BFLOAT16_STEP)

    def _lengths(self, whole: np.ndarray) -> Floats:
        """‖W̃ũ‖ of every row and class, in steps of the row."""
        import torch

        rows = torch.from_numpy(np.ascontiguousarray(whole.T))
        lengths = np.empty((len(whole), len(self._norms)), np.float32)
        for chunk in self._chunks:
            products = torch._int_mm(chunk.directions, rows).view(
                len(chunk.classes), chunk.squared_steps.shape[2], -1
            )
            squares = torch.bmm(chunk.squared_steps, products.float().square_())
            lengths[:, chunk.classes] = squares[:, 0].sqrt_().numpy().T
        return lengths
