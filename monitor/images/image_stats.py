"""Cheap numbers about an image's look, from its decoded pixels: what drift is told in words by.

None of them says what is in the picture. They say how it was taken: light, contrast, focus,
noise, colour, haze, compression. A camera whose numbers move all at once has changed itself; one
whose scene brings something new has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

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


# Fine structure is measured on the centre, unscaled, since scaling hides noise and blur; so many
# pixels are enough for a stable figure and bound the cost for frames of any size.
_WINDOW = 96
# Light and colour need no neighbours: a sparse grid of about so many points a side will do.
_GRID = 40
# Noise is read where the picture is smoothest, or texture would pass for it.
_SMOOTH_SHARE = 0.25
# The side of the tiles among which the smoothest are looked for, and of a JPEG block.
_TILE = 8
# Share of points that may be darker than the black level.
_BLACK = 0.05
# Images of one size that are measured in one go: enough that numpy's own time does not count.
_TOGETHER = 8
# Keeps ratios finite for black images: half a step of an 8-bit camera.
_HALF_STEP = 0.5 / 255


@dataclass(frozen=True, slots=True)
class ImageStats:
    """One image in eight numbers; light in shares of the full range.

    >>> grey = ImageStats.of(np.full((32, 32, 3), 51, np.uint8))
    >>> round(grey.brightness, 2), grey.noise
    (0.2, 0.0)
    """

    brightness: float
    """Mean luma."""
    contrast: float
    """Log of the standard deviation of luma."""
    sharpness: float
    """Log of the change between neighbouring pixels over the contrast; blur lowers it."""
    noise: float
    """What a plane through each pixel's neighbours leaves, in the smoothest parts."""
    red: float
    """Log of red over green."""
    blue: float
    """Log of blue over green."""
    black: float
    """How light the darkest points are; haze raises it."""
    blocks: float
    """Log of the change across the borders of 8 x 8 blocks over that inside; coarse JPEG."""

    @classmethod
    def of(cls, pixels: NDArray[np.uint8]) -> ImageStats:
        """Of RGB pixels (height, width, 3) of any size."""
        return cls(*(float(value) for value in image_stats([pixels])[0]))


STATS: tuple[str, ...] = tuple(field.name for field in fields(ImageStats))
"""The names of the numbers, in the order of the columns of :func:`image_stats`."""

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def image_stats(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """The same for several images, a row each, as it travels beside their features.

    >>> image_stats([np.zeros((8, 8, 3), np.uint8), np.zeros((9, 8, 3), np.uint8)]).shape
    (2, 8)
    """
    found = np.empty((len(images), len(STATS)), np.float32)
    for chosen in alike(images, _TOGETHER):
        found[chosen] = _stats([images[i] for i in chosen])
    return found


def _stats(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Of images of one shape; neighbours change no more than the last bits of a row."""
    height, width = images[0].shape[:2]
    rows, columns = max(1, height // _GRID), max(1, width // _GRID)
    grid = np.stack([image[::rows, ::columns].reshape(-1, 3) for image in images])
    points = grid.astype(np.float32) / 255
    # A product, because numpy is slow at means over the short axis of a long array.
    each = np.full(points.shape[1], 1 / points.shape[1], np.float32)
    red, green, blue = (each @ points + _HALF_STEP).T
    luma = points @ _LUMA
    spread = luma.std(axis=1) + _HALF_STEP
    dark = np.minimum(np.minimum(points[..., 0], points[..., 1]), points[..., 2])
    darkest = int(_BLACK * (points.shape[1] - 1))
    centre = np.stack([_centre(image) for image in images])
    window: NDArray[np.float32] = centre.astype(np.float32) @ (_LUMA / np.float32(255))
    across, down = np.abs(np.diff(window, axis=2)), np.abs(np.diff(window, axis=1))
    # Squares, because blur spreads an edge without lessening the sum of its steps.
    edges = _squares(across) + _squares(down)
    change = np.sqrt(edges / max(across[0].size + down[0].size, 1))
    columns_of = {
        "brightness": luma.mean(axis=1),
        "contrast": np.log(spread),
        "sharpness": np.log((change + _HALF_STEP) / spread),
        "noise": _noise(window),
        "red": np.log(red / green),
        "blue": np.log(blue / green),
        "black": np.partition(dark, darkest, axis=1)[:, darkest],
        "blocks": _blocks(across),
    }
    return np.stack([columns_of[name] for name in STATS], axis=1).astype(np.float32)


def _squares(steps: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of squares of each image."""
    flat = steps.reshape(len(steps), -1)
    summed: NDArray[np.float32] = np.einsum("ij,ij->i", flat, flat)
    return summed


def _centre(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Begins at a multiple of the block's side, so that the grid of a JPEG stays where it was.
    top, left = (max(0, (side - _WINDOW) // 2) // _TILE * _TILE for side in pixels.shape[:2])
    return pixels[top : top + _WINDOW, left : left + _WINDOW]


def _noise(window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Immerkær's estimate, over the smoothest tiles only."""
    count, *sides = window.shape
    if min(sides) < 3:
        return np.zeros(count, np.float32)
    # The difference of two Laplacians: blind to planes and to quadratic surfaces.
    rows = window[:, :-2] - 2 * window[:, 1:-1] + window[:, 2:]
    left = np.abs(rows[..., :-2] - 2 * rows[..., 1:-1] + rows[..., 2:])
    height, width = (side // _TILE * _TILE for side in left.shape[1:])
    if not height or not width:
        tiles = left.reshape(count, -1).mean(axis=1, keepdims=True)
    else:
        cut = left[:, :height, :width].reshape(count, -1, _TILE) @ np.full(
            _TILE, _TILE**-2, np.float32
        )
        tiles = cut.reshape(count, height // _TILE, _TILE, width // _TILE).sum(axis=2)
        tiles = tiles.reshape(count, -1)
    smooth = np.sort(tiles, axis=1)[:, : max(1, int(_SMOOTH_SHARE * tiles.shape[1]))]
    # The mask's weights have a root sum of squares of 6; the mean of |normal| is √(2/π).
    noise: NDArray[np.float32] = np.sqrt(np.pi / 2) * smooth.mean(axis=1) / 6
    return noise


def _blocks(across: NDArray[np.float32]) -> NDArray[np.float32]:
    if across.shape[2] < 2 * _TILE:
        return np.zeros(len(across), np.float32)
    borders, inside = (
        across[..., start::_TILE].reshape(len(across), -1).mean(axis=1)
        for start in (_TILE - 1, _TILE // 2 - 1)
    )
    blocks: NDArray[np.float32] = np.log((borders + _HALF_STEP) / (inside + _HALF_STEP))
    return blocks
