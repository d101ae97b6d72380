"""Images of one size, a few at a time: numpy and torch take several of them in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def alike(images: Sequence[NDArray[np.uint8]], most: int) -> Iterator[list[int]]:
    """Where images of one shape stand, at most so many at a time; every image once.

    >>> small, large = np.zeros((2, 2, 3), np.uint8), np.zeros((4, 4, 3), np.uint8)
    >>> list(alike([small, large, small, small], 2))
    [[0, 2], [3], [1]]
    """
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for index, image in enumerate(images):
        by_shape.setdefault(image.shape, []).append(index)
    for indices in by_shape.values():
        for first in range(0, len(indices), most):
            yield indices[first : first + most]
