"""The geometry of land that people divide and cross: lots, ways, and turned rectangles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""n × 2, from −1 to 1 across the scene."""
Lengths = float | NDArray[np.float64]
"""One for all, or one for each."""


@dataclass(frozen=True, slots=True)
class Lot:
    """A piece of land, before the scene is turned.

    >>> Lot(0.0, 0.0, 1.0, 0.5).grid(0.5, 0.5, margin=0.1).tolist()
    [[0.1, 0.1], [0.6, 0.1]]
    """

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> Points:
        return np.array([self.x + self.width / 2, self.y + self.height / 2])

    @property
    def corners(self) -> Points:
        x, y, right, top = self.x, self.y, self.x + self.width, self.y + self.height
        return np.array([[x, y], [right, y], [right, top], [x, top]])

    def grid(self, across: float, down: float, *, margin: float) -> Points:
        """Places in rows and columns, no nearer than ``margin`` to the edge."""
        columns = np.arange(self.x + margin, self.x + self.width - margin, across)
        rows = np.arange(self.y + margin, self.y + self.height - margin, down)
        return np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)


def split(
    rng: np.random.Generator, smallest: float, *, reach: float = 1.5, uneven: float = 0.3
) -> Iterator[Lot]:
    """Cut the square of ±``reach`` into lots, as land is divided.

    ``reach`` exceeds 1 so that a turned scene is covered to its corners.
    """
    stack = [Lot(-reach, -reach, 2 * reach, 2 * reach)]
    while stack:
        lot = stack.pop()
        # A lot may stay larger than the smallest, but not by much: land is divided fairly.
        if max(lot.width, lot.height) < smallest * (1 + 1.4 * rng.random()):
            yield lot
            continue
        cut = min(max(0.5 + uneven / 2 * rng.standard_normal(), 0.25), 0.75)
        if lot.width > lot.height:
            left = lot.width * cut
            stack.append(Lot(lot.x, lot.y, left, lot.height))
            stack.append(Lot(lot.x + left, lot.y, lot.width - left, lot.height))
        else:
            below = lot.height * cut
            stack.append(Lot(lot.x, lot.y, lot.width, below))
            stack.append(Lot(lot.x, lot.y + below, lot.width, lot.height - below))


def visible(points: Points, margin: float = 0.15) -> NDArray[np.bool_]:
    """Which places are in the scene, or so near that what stands there reaches into it."""
    inside: NDArray[np.bool_] = np.abs(points).max(axis=-1) < 1 + margin
    return inside


def corners(
    centres: Points, length: Lengths, width: Lengths, angle: Lengths
) -> NDArray[np.float64]:
    """The corners (n × 4 × 2) of turned rectangles.

    >>> corners(np.zeros((1, 2)), 2.0, 1.0, 0.0)[0].tolist()
    [[-1.0, -0.5], [1.0, -0.5], [1.0, 0.5], [-1.0, 0.5]]
    """
    middle = np.asarray(centres, float)[:, None, :]
    c, s = np.cos(angle), np.sin(angle)
    half_length, half_width = np.asarray(length) / 2, np.asarray(width) / 2
    along = np.stack(np.broadcast_arrays(c * half_length, s * half_length), axis=-1)
    across = np.stack(np.broadcast_arrays(-s * half_width, c * half_width), axis=-1)
    along, across = np.atleast_2d(along)[:, None, :], np.atleast_2d(across)[:, None, :]
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float)
    result: NDArray[np.float64] = middle + signs[:, :1] * along + signs[:, 1:] * across
    return result


def turned(points: Points, angle: float) -> Points:
    c, s = np.cos(angle), np.sin(angle)
    result: Points = np.asarray(points) @ np.array([[c, s], [-s, c]])
    return result


def path(rng: np.random.Generator, *, bend: float, reach: float = 1.5, points: int = 40) -> Points:
    """A smooth way across the scene: straight for ``bend`` 0, winding for 1."""
    t = np.linspace(-reach, reach, points)
    y = np.full(points, rng.uniform(-0.45, 0.45))
    for waves in (0.5, 1.0, 2.0):
        y += (
            bend
            * rng.normal(0, 0.3 / waves)
            * np.sin(np.pi * waves * t / reach * rng.uniform(0.7, 1.4) + rng.uniform(0, 2 * np.pi))
        )
    return turned(np.stack([t, y], axis=1), rng.uniform(0, 2 * np.pi))


def beside(points: Points, offset: float) -> Points:
    """The same way, shifted to its left by ``offset``.

    >>> beside(np.array([[0.0, 0.0], [2.0, 0.0]]), 0.5).tolist()
    [[0.0, 0.5], [2.0, 0.5]]
    """
    ahead = np.empty_like(points)
    ahead[1:-1] = points[2:] - points[:-2]
    ahead[0], ahead[-1] = points[1] - points[0], points[-1] - points[-2]
    ahead *= offset / np.maximum(np.hypot(ahead[:, 0], ahead[:, 1]), 1e-9)[:, None]
    shifted: Points = points + ahead[:, ::-1] * (-1, 1)
    return shifted
