"""Which of many classes can be the nearest: bounds on FRE from a product in 8-bit integers.

With a thousand classes one product with all their directions costs as much as a backbone. Nearly
all of it is spent on classes that are far away, so the product is taken in 8 bits first, which
processors with VNNI or AMX compute about seven times as fast as float32. What 8 bits lose is known:
for a class with directions W and a centred row u, rounded to W̃ and ũ,

    | ‖Wu‖ − ‖W̃ũ‖ |  ≤  ‖W̃‖ ‖u − ũ‖ + ‖W − W̃‖ ‖u‖

with spectral norms of the matrices, which are computed once. That bounds the FRE of every class
from both sides, and only the classes that can still be the nearest are computed exactly. The
integer product itself is exact: 127² times the number of features is far below 2³¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from monitor.novelty.arrays import Floats, Ints
from monitor.novelty.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

#: Directions of all classes together from which the screen is worth loading torch for: below it a
#: batch of 256 rows takes less than a sixth of what the smallest backbone takes for its images.
WORTHWHILE = 8192
#: Directions in one product: 2,048 of them times 256 rows are 2 MiB, which stay in the cache.
_DIRECTIONS_AT_ONCE = 2048
#: Of a signed 8-bit integer.
_LARGEST = 127
#: Float32 rounds sums of some thousand terms to about this share of their largest term.
_ROUNDING = 1e-5
_TINY = 1e-30


class FreBounds(NamedTuple):
    """Squared FRE of every row against every subspace lies between ``lower`` and ``upper``."""

    lower: Floats
    upper: Floats


class _Chunk(NamedTuple):
    directions: Tensor
    """8-bit, of some classes one after the other, padded to the same number for each."""
    each: int
    classes: Ints


class BankScreen:
    """Bounds for a bank of subspaces; immutable once made.

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
        # Per class: how large one step of its integers is, and what rounding to it loses.
        self._steps = np.ones(len(subspaces), np.float32)
        self._lost = np.zeros(len(subspaces), np.float32)
        self._chunks: list[_Chunk] = []
        by_size = np.argsort([-s.components for s in subspaces], kind="stable")
        first = 0
        while first < len(by_size):
            each = max(1, subspaces[by_size[first]].components)
            classes = by_size[first : first + max(1, _DIRECTIONS_AT_ONCE // each)]
            first += len(classes)
            rounded = np.zeros((len(classes), each, means.shape[1]), np.int8)
            for place, j in enumerate(classes):
                basis = subspaces[j].basis
                offsets[j] = means[j] - (basis @ means[j]) @ basis
                if len(basis):
                    self._steps[j] = max(float(np.abs(basis).max()), _TINY) / _LARGEST
                    whole = np.rint(basis / self._steps[j])
                    rounded[place, : len(basis)] = whole
                    loss = whole * self._steps[j] - basis
                    self._lost[j] = np.sqrt(np.linalg.eigvalsh(loss @ loss.T)[-1].clip(0))
            directions = torch.from_numpy(rounded.reshape(-1, means.shape[1]))
            self._chunks.append(_Chunk(directions, each, classes))
        self._lost *= 1 + _ROUNDING
        self._offsets = np.ascontiguousarray(offsets.T)
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
        inside = self._lengths(whole.astype(np.int8)) * steps[:, None] * self._steps
        length = np.sqrt(squares)[:, None]
        slack = np.sqrt(np.einsum("ij,ij->i", loss, loss))[:, None] * (1 + self._lost)
        slack += length * (self._lost + np.float32(_ROUNDING))
        outside = squares[:, None] + self._norms - 2 * (centred @ self._offsets)
        rounding = np.float32(_ROUNDING) * (squares[:, None] + self._norms)
        lower = outside - (inside + slack) ** 2 - rounding
        upper = outside - np.maximum(inside - slack, 0) ** 2 + rounding
        return FreBounds(np.maximum(lower, 0), upper)

    def _lengths(self, whole: np.ndarray) -> Floats:
        """‖W̃ũ‖ of every row and class, in steps of both."""
        import torch

        rows = torch.from_numpy(np.ascontiguousarray(whole.T))
        lengths = np.empty((len(whole), len(self._steps)), np.float32)
        for chunk in self._chunks:
            products = torch._int_mm(chunk.directions, rows).view(
                len(chunk.classes), chunk.each, -1
            )
            lengths[:, chunk.classes] = products.float().square_().sum(1).sqrt_().numpy().T
        return lengths
