"""Cheap numbers about an image's look, from its decoded pixels: what drift is told in words by.

None of them says what is in the picture. They say how it was taken: light, contrast, focus,
noise, colour, haze, compression. A camera whose numbers move all at once has changed itself; one
whose scene brings something new has not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

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
        height, width = pixels.shape[:2]
        rows, columns = max(1, height // _GRID), max(1, width // _GRID)
        points = pixels[::rows, ::columns].reshape(-1, 3).astype(np.float32) / 255
        # A product, because numpy is slow at means over the short axis of a long array.
        red, green, blue = np.full(len(points), 1 / len(points), np.float32) @ points + _HALF_STEP
        luma = points @ _LUMA
        spread = float(luma.std()) + _HALF_STEP
        dark = np.minimum(np.minimum(points[:, 0], points[:, 1]), points[:, 2])
        darkest = int(_BLACK * (len(luma) - 1))
        window: NDArray[np.float32] = _centre(pixels).astype(np.float32) @ (_LUMA / np.float32(255))
        across, down = np.abs(np.diff(window, axis=1)), np.abs(np.diff(window, axis=0))
        # Squares, because blur spreads an edge without lessening the sum of its steps.
        edges = float(np.vdot(across, across) + np.vdot(down, down))
        change = np.sqrt(edges / max(across.size + down.size, 1))
        return cls(
            brightness=float(luma.mean()),
            contrast=float(np.log(spread)),
            sharpness=float(np.log((change + _HALF_STEP) / spread)),
            noise=_noise(window),
            red=float(np.log(red / green)),
            blue=float(np.log(blue / green)),
            black=float(np.partition(dark, darkest)[darkest]),
            blocks=_blocks(across),
        )


STATS: tuple[str, ...] = tuple(field.name for field in fields(ImageStats))
"""The names of the numbers, in the order of the columns of :func:`image_stats`."""

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def image_stats(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The same as one row of numbers, as it travels beside an image's features."""
    stats = ImageStats.of(pixels)
    return np.array([getattr(stats, name) for name in STATS], dtype=np.float32)


def _centre(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Begins at a multiple of the block's side, so that the grid of a JPEG stays where it was.
    top, left = (max(0, (side - _WINDOW) // 2) // _TILE * _TILE for side in pixels.shape[:2])
    return pixels[top : top + _WINDOW, left : left + _WINDOW]


def _noise(window: NDArray[np.float32]) -> float:
    """Immerkær's estimate, over the smoothest tiles only."""
    if min(window.shape) < 3:
        return 0.0
    # The difference of two Laplacians: blind to planes and to quadratic surfaces.
    rows = window[:-2] - 2 * window[1:-1] + window[2:]
    left = np.abs(rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:])
    height, width = (side // _TILE * _TILE for side in left.shape)
    if not height or not width:
        tiles = left.mean().reshape(1)
    else:
        cut = left[:height, :width].reshape(-1, _TILE) @ np.full(_TILE, _TILE**-2, np.float32)
        tiles = cut.reshape(height // _TILE, _TILE, width // _TILE).sum(axis=1).ravel()
    smooth = np.sort(tiles)[: max(1, int(_SMOOTH_SHARE * len(tiles)))]
    # The mask's weights have a root sum of squares of 6; the mean of |normal| is √(2/π).
    return float(np.sqrt(np.pi / 2) * smooth.mean() / 6)


def _blocks(across: NDArray[np.float32]) -> float:
    if across.shape[1] < 2 * _TILE:
        return 0.0
    borders = across[:, _TILE - 1 :: _TILE].mean()
    inside = across[:, _TILE // 2 - 1 :: _TILE].mean()
    return float(np.log((borders + _HALF_STEP) / (inside + _HALF_STEP)))
