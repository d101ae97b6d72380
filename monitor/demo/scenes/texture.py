"""The noise that natural surfaces are made of, and how light falls on it.

Noise is drawn once into periodic banks; a scene takes a turned and stretched piece of one, which
costs a tenth of a millisecond where drawing it afresh would cost several.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Field = NDArray[np.floating[Any]]
"""One value for each pixel (n × n)."""
Pixels = NDArray[np.floating[Any]]
"""Red, green and blue between 0 and 1 (n × n × 3)."""
Colour = tuple[float, float, float]
"""Red, green and blue between 0 and 255, as people write them."""

Kind = Literal["smooth", "rough", "grain", "crowns", "cells"]

BANK = 768
"""Wide enough that no two scenes of a feed are likely to show the same piece."""
_MARGIN = 2
# How fast the power falls with frequency: 3.4 is rolling hills, 2.2 is rock, 0.8 is gravel.
_FALL = {"smooth": 3.4, "rough": 2.2, "grain": 0.8}
_CROWN = 12
"""Pixels from one tree to the next in the bank."""


@functools.cache
def bank(kind: Kind) -> Image.Image:
    """A periodic field with mean 0 and deviation 1 (crowns: height 0 to 1; cells: 0 to 1)."""
    if kind == "crowns":
        field = _crowns()[0]
    elif kind == "cells":
        field = _crowns()[1]
    else:
        field = _spectral(_FALL[kind])
    return Image.fromarray(field)


def noise(
    rng: np.random.Generator,
    size: int,
    kind: Kind = "smooth",
    *,
    zoom: float = 1.0,
    stretch: float = 1.0,
    angle: float | None = None,
) -> Field:
    """A piece of a bank; ``zoom`` 2 shows everything twice as large.

    ``stretch`` draws it out along ``angle``, which is drawn too unless it is given.

    >>> piece = noise(np.random.default_rng(0), 32, "rough", zoom=2.0)
    >>> piece.shape, piece.dtype
    ((32, 32), dtype('float32'))
    """
    turn = rng.uniform(0, 2 * np.pi) if angle is None else angle
    return _piece(kind, size, zoom, stretch, turn, rng.random(2))


def pair(
    rng: np.random.Generator, size: int, kinds: tuple[Kind, Kind], *, zoom: float
) -> tuple[Field, Field]:
    """The same piece of two banks, such as the height of each crown and which tree it is."""
    turn, place = rng.uniform(0, 2 * np.pi), rng.random(2)
    first, second = (_piece(kind, size, zoom, 1.0, turn, place) for kind in kinds)
    return first, second


def _piece(
    kind: Kind, size: int, zoom: float, stretch: float, turn: float, place: NDArray[np.float64]
) -> Field:
    # Beyond this the piece would reach over the bank's edge.
    reach = (BANK - 2 * _MARGIN) / (1.42 * size)
    along, across = min(1 / (zoom * stretch), reach), min(1 / zoom, reach)
    c, s = np.cos(turn), np.sin(turn)
    a, b, d, e = along * c, along * s, -across * s, across * c
    corners = np.array([[0, 0], [size, 0], [0, size], [size, size]]) @ np.array([[a, d], [b, e]])
    low, high = corners.min(axis=0), corners.max(axis=0)
    x, y = _MARGIN - low + place * np.maximum(BANK - 2 * _MARGIN - (high - low), 0)
    # Magnified cells want smooth borders no more than trees want square ones.
    how = Image.Resampling.NEAREST if kind == "cells" else Image.Resampling.BILINEAR
    view = bank(kind).transform((size, size), Image.Transform.AFFINE, (a, b, x, d, e, y), how)
    return np.asarray(view, dtype=np.float32)


def _spectral(fall: float) -> Field:
    """Noise whose power falls as frequency to the power of ``fall``."""
    rng = np.random.default_rng(int(10 * fall))
    frequency = np.hypot(
        np.fft.fftfreq(BANK)[:, None], np.fft.rfftfreq(BANK)[None, :], dtype=np.float64
    )
    # Waves longer than a sixth of the bank would only make one scene brighter than the next.
    frequency = np.maximum(frequency, 6 / BANK)
    spectrum = np.fft.rfft2(rng.standard_normal((BANK, BANK))) * frequency ** (-fall / 2)
    field = np.fft.irfft2(spectrum, s=(BANK, BANK))
    field -= field.mean()
    unit: Field = (field / field.std()).astype(np.float32)
    return unit


@functools.cache
def _crowns() -> tuple[Field, Field]:
    """Round tops over jittered points, and a number between 0 and 1 for each of them."""
    rng = np.random.default_rng(11)
    count = BANK // _CROWN
    jitter = rng.random((count, count, 2))
    number = rng.random((count, count)).astype(np.float32)
    radius = (0.55 + 0.45 * rng.random((count, count))).astype(np.float32)
    y, x = np.divmod(np.arange(BANK * BANK).reshape(BANK, BANK), BANK)
    height = np.zeros((BANK, BANK), np.float32)
    owner = np.zeros((BANK, BANK), np.float32)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            row, column = y // _CROWN + dy, x // _CROWN + dx
            at = (row % count, column % count)
            far = np.hypot(
                y - (row + jitter[at][..., 0]) * _CROWN, x - (column + jitter[at][..., 1]) * _CROWN
            )
            top = 1 - (far / (_CROWN * radius[at])) ** 2
            higher = top > height
            height = np.where(higher, top, height).astype(np.float32)
            owner = np.where(higher, number[at], owner).astype(np.float32)
    return np.sqrt(height), owner


def light(height: Field, sun: float, relief: float) -> Field:
    """How bright a surface is under a sun from direction ``sun``: about 1, darker on slopes away.

    >>> light(np.zeros((4, 4), np.float32), 0.0, 1.0).max()
    np.float32(1.0)
    """
    slope_y, slope_x = np.gradient(height)
    facing = np.asarray(slope_x * float(np.cos(sun)) + slope_y * float(np.sin(sun)))
    return np.clip(1 - relief * facing, 0.25, 1.6)


def lit(pixels: Pixels, shade: Field) -> Pixels:
    """A scene, brighter where ``shade`` is above 1 and darker below."""
    result: Pixels = pixels * shade[..., None]
    return result


def ramp(values: Field, colours: tuple[Colour, ...]) -> Pixels:
    """Colours along a scale: 0 is the first, 1 the last.

    >>> ramp(np.zeros((1, 1), np.float32), ((255, 0, 0), (0, 0, 0)))[0, 0].tolist()
    [1.0, 0.0, 0.0]
    """
    places = np.linspace(0, 255, len(colours))
    table = np.stack(
        [np.interp(np.arange(256), places, [c[i] for c in colours]) for i in range(3)], axis=1
    )
    picked = (np.clip(values, 0, 1) * 255).astype(np.uint8)
    pixels: Pixels = (table / 255).astype(np.float32)[picked]
    return pixels


def shades(colour: Colour, *factors: float) -> tuple[Colour, ...]:
    """The same colour, darker or brighter.

    >>> shades((100, 50, 0), 0.5, 2.0)
    ((50.0, 25.0, 0.0), (200.0, 100.0, 0.0))
    """
    r, g, b = colour
    return tuple((r * factor, g * factor, b * factor) for factor in factors)


def blend(first: Colour, second: Colour, share: float) -> Colour:
    """``second`` where ``share`` is 1, ``first`` where it is 0.

    >>> blend((0, 0, 0), (100, 50, 0), 0.5)
    (50.0, 25.0, 0.0)
    """
    r, g, b = (a + (z - a) * share for a, z in zip(first, second, strict=True))
    return (r, g, b)


def flat(colour: Colour, like: Pixels) -> Pixels:
    """One colour, as large as another scene."""
    return np.broadcast_to(np.asarray(colour, np.float32) / np.float32(255), like.shape)


def mix(under: Pixels, over: Pixels, share: Field) -> Pixels:
    """``over`` where ``share`` is 1, ``under`` where it is 0."""
    pixels: Pixels = under + (over - under) * share[..., None]
    return pixels


def step(values: Field, edge: float, width: float) -> Field:
    """0 below ``edge``, 1 above it, and a slope of ``width`` between.

    >>> step(np.array([-1, 0, 1], np.float32), 0.0, 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    share: Field = np.clip((values - edge) / width + 0.5, 0, 1).astype(np.float32)
    return share
