"""The array types of this room, and the one place where features are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.novelty.errors import DimensionMismatch, InvalidFeatures

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


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
