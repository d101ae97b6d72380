"""Procedural overhead scenes: sixteen classes of land cover, no two images alike.

They stand in for a satellite's feed where no images are at hand. Each is drawn at a random scale,
direction, season, climate and time of day, on changing ground and with clutter, then seen through
haze, a sensor and JPEG, so that no single colour or texture gives a class away.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from monitor.demo.scenes import buildings, landmarks, landscape
from monitor.demo.scenes.texture import Pixels, lit, mix, step
from monitor.demo.scenes.viewpoint import SIZE, View

Scene = Callable[[View], Pixels]

SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "water": landscape.water,
        "forest": landscape.forest,
        "fields": landscape.fields,
        "town": buildings.town,
        "dunes": landscape.dunes,
        "snow": landscape.snow,
        "harbour": landmarks.harbour,
        "quarry": landmarks.quarry,
        "airport": landmarks.airport,
        "greenhouses": buildings.greenhouses,
        "solar": buildings.solar,
        "river": landscape.river,
        "highway": buildings.highway,
        "wetland": landscape.wetland,
        "industry": buildings.industry,
        "orchard": buildings.orchard,
    }
)
"""By class, in the order in which a story brings them: the first are known from the beginning."""


def render(name: str, seed: tuple[int, ...], size: int = SIZE) -> NDArray[np.uint8]:
    """The scene of a class that belongs to ``seed`` (n × n × 3).

    >>> render("dunes", (0, 7), 32).shape
    (32, 32, 3)
    """
    rng = np.random.default_rng([sorted(SCENES).index(name), *seed])
    view = View.draw(rng, size)
    return _seen(view, SCENES[name](view))


def jpeg(pixels: NDArray[np.uint8], quality: int = 88) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _seen(view: View, pixels: Pixels) -> NDArray[np.uint8]:
    """What a sensor makes of the ground: air, light, lens and noise."""
    if view.chance(0.1):
        cover = step(view.noise("smooth", zoom=2.2), view.between(0.7, 1.8), 1.4)
        shadow = np.roll(cover, (int(6 * np.sin(view.sun)), int(6 * np.cos(view.sun))), (0, 1))
        pixels = lit(pixels, 1 - 0.45 * shadow)
        pixels = mix(pixels, np.full_like(pixels, 0.94), cover * view.between(0.4, 0.95))
    ground = (np.clip(pixels, 0, 1) * 255 + 0.5).astype(np.uint8)
    seen = _tones(view)[np.arange(3), ground]
    image = Image.fromarray(seen).filter(ImageFilter.GaussianBlur(view.between(0.1, 0.75)))
    grain = view.rng.standard_normal((view.size, view.size, 1), np.float32)
    noisy = np.asarray(image) + view.between(0.5, 3.5) * grain
    sensed: NDArray[np.uint8] = np.clip(noisy, 0, 255).astype(np.uint8)
    return sensed


def _tones(view: View) -> NDArray[np.uint8]:
    """What becomes of each brightness (0 to 255) of red, green and blue on its way here."""
    # Light from low suns is warm and weak; air adds a veil of its own colour.
    warmth = view.rng.normal(0, 0.02) + 0.04 * view.low_sun
    balance = np.array([1 + warmth, 1.0, 1 - warmth]) * view.rng.normal(1.0, 0.09)
    veil = view.rng.beta(1.2, 7) * 0.6
    lit = np.linspace(0, 1, 256) * balance[:, None] * (1 - veil)
    seen = np.clip(lit + veil * np.array([[0.72], [0.77], [0.83]]), 0, 1)
    tones: NDArray[np.uint8] = (seen**2 ** view.rng.normal(0, 0.18) * 255 + 0.5).astype(np.uint8)
    return tones
