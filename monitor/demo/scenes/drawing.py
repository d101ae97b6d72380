"""Drawing what people build: sharp edges, shadows, lines, on top of a natural surface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from monitor.demo.scenes.shapes import Lengths, Points, beside, corners
from monitor.demo.scenes.texture import Colour, Pixels

Colours = NDArray[np.float64]
"""n × 3, between 0 and 255."""

_SHADOW = np.array([34.0, 36.0, 44.0])
_FINER = 2
"""Drawn at twice the size and averaged, so that edges are as soft as a sensor sees them."""


class Pen:
    """Draws polygons and lines in the scene's own coordinates.

    >>> pen = Pen(np.zeros((16, 16, 3), np.float32))
    >>> pen.box(np.zeros(2), 1.0, 1.0, 0.0, (255, 255, 255))
    >>> float(pen.pixels()[8, 8, 0])
    1.0
    """

    def __init__(self, pixels: Pixels) -> None:
        self._size = len(pixels)
        side = self._size * _FINER
        self._image = _image(pixels).resize((side, side), Image.Resampling.BILINEAR)
        self._draw = ImageDraw.Draw(self._image, "RGB")

    def polygon(self, points: Points, colour: Colour) -> None:
        self._fill(np.asarray(points)[None], np.asarray([colour], float))

    def boxes(
        self,
        centres: Points,
        length: Lengths,
        width: Lengths,
        angle: Lengths,
        colours: Colours | Colour,
        *,
        shadow: NDArray[np.float64] | None = None,
        gable: bool = False,
    ) -> None:
        """Turned rectangles; ``length`` runs along ``angle``.

        With ``shadow`` they are buildings that throw it, and with ``gable`` the half of the roof
        that looks away from the light is darker.
        """
        ground = corners(centres, length, width, angle)
        n = len(ground)
        if n == 0:
            return
        roofs = np.broadcast_to(np.asarray(colours, float), (n, 3))
        if shadow is not None:
            # In two steps, so that the shadow of a tall building does not come loose from it.
            tall = np.abs(shadow).max() > np.min(width) / 2
            for part in (1.0, 0.5) if tall else (1.0,):
                self._fill(ground + part * shadow, np.broadcast_to(_SHADOW, (n, 3)))
        self._fill(ground, roofs)
        if gable and shadow is not None:
            c, s = np.cos(angle), np.sin(angle)
            away = np.where(c * shadow[1] - s * shadow[0] > 0, 1, -1) * np.asarray(width) / 4
            middle = np.asarray(centres, float) + np.stack(
                np.broadcast_arrays(-s * away, c * away), axis=-1
            )
            self._fill(corners(middle, length, np.asarray(width) / 2, angle), roofs * 0.72)

    def box(
        self, centre: Points, length: float, width: float, angle: float, colour: Colour
    ) -> None:
        """One turned rectangle."""
        self.boxes(np.asarray(centre, float)[None], length, width, angle, colour)

    def dots(self, centres: Points, radius: Lengths, colours: Colours | Colour) -> None:
        """Round things such as trees and tanks."""
        at = self._place(np.asarray(centres, float))
        r = np.broadcast_to(np.asarray(radius, float), len(at)) * self._size * _FINER / 2
        bounds = np.concatenate([at - r[:, None], at + r[:, None]], axis=1).tolist()
        fills = _whole(np.broadcast_to(np.asarray(colours, float), (len(at), 3)))
        for bound, fill in zip(bounds, fills, strict=True):
            self._draw.ellipse(bound, fill=fill)

    def segments(
        self, starts: Points, ends: Points, width: Lengths, colours: Colours | Colour
    ) -> None:
        """Straight bands, each from its start to its end."""
        ahead = ends - starts
        length, angle = np.hypot(ahead[:, 0], ahead[:, 1]), np.arctan2(ahead[:, 1], ahead[:, 0])
        self.boxes((starts + ends) / 2, length, width, angle, colours)

    def line(self, points: Points, width: float, colour: Colour) -> None:
        """A band along a way, at least as wide as one fine pixel."""
        half = max(width, 2 / (self._size * _FINER)) / 2
        self.polygon(np.concatenate([beside(points, half), beside(points, -half)[::-1]]), colour)

    def pixels(self) -> Pixels:
        small = self._image.reduce(_FINER)
        return np.asarray(small, dtype=np.float32) / np.float32(255)

    def _place(self, points: Points) -> Points:
        placed: Points = (np.asarray(points) + 1) * (self._size * _FINER / 2)
        return placed

    def _fill(self, polygons: NDArray[np.float64], colours: Colours) -> None:
        flat = self._place(polygons).reshape(len(polygons), 2 * polygons.shape[1]).tolist()
        for points, fill in zip(flat, _whole(colours), strict=True):
            self._draw.polygon(points, fill=fill)


def parts(size: int, polygons: Sequence[Points]) -> NDArray[np.intp]:
    """For each pixel the number of the polygon that covers it, counted from 1; 0 where none."""
    image = Image.new("I", (size, size))
    draw = ImageDraw.Draw(image)
    for number, polygon in enumerate(polygons, start=1):
        draw.polygon([(float(x), float(y)) for x, y in (polygon + 1) * (size / 2)], fill=number)
    return np.asarray(image).astype(np.intp)


def _image(pixels: Pixels) -> Image.Image:
    return Image.fromarray((np.clip(pixels, 0, 1) * 255 + 0.5).astype(np.uint8))


def _whole(colours: Colours) -> list[tuple[int, ...]]:
    whole = np.clip(colours, 0, 255).astype(np.uint8).tolist()
    return [tuple(colour) for colour in whole]
