"""Under which circumstances a scene is seen: from where, when, and by what sun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.demo.scenes.drawing import Colours
from monitor.demo.scenes.texture import Colour, Field, Kind, noise

T = TypeVar("T")

SIZE = 112
"""Pixels of a side. The backbone sees 224, so a scene is never sharper than a real feed's."""

LEAVES: tuple[Colour, ...] = ((88, 118, 52), (52, 88, 42), (104, 96, 48), (92, 86, 66))
"""Through the seasons, from spring to late winter."""
STRAW: Colour = (150, 134, 92)
SOILS: tuple[Colour, ...] = (
    (104, 82, 62), (138, 108, 80), (160, 128, 96), (150, 104, 76), (184, 168, 142),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """One look at the ground.

    >>> view = View.draw(np.random.default_rng(4))
    >>> 0 <= view.sun < 2 * np.pi
    True
    """

    rng: np.random.Generator
    size: int
    sun: float
    """Direction that the light comes from, in radians of the image."""
    low_sun: float
    """0 at noon, 1 near sunset: shadows grow with it."""
    season: float
    """0 spring, 1 summer, 2 autumn, 3 late winter."""
    dryness: float
    """0 is lush, 1 is arid."""
    zoom: float
    """How near: 2 shows everything twice as large."""

    @classmethod
    def draw(cls, rng: np.random.Generator, size: int = SIZE) -> View:
        return cls(
            rng=rng,
            size=size,
            sun=float(rng.uniform(0, 2 * np.pi)),
            low_sun=float(rng.beta(1.6, 2.2)),
            season=float(rng.uniform(0, 3.4)),
            dryness=float(rng.beta(1.3, 1.9)),
            # Two octaves altogether: a class must be recognised at any distance.
            zoom=float(2 ** rng.uniform(-0.6, 0.9)) * size / 128,
        )

    def noise(
        self,
        kind: Kind = "smooth",
        *,
        zoom: float = 1.0,
        stretch: float = 1.0,
        angle: float | None = None,
    ) -> Field:
        """A field of the scene's size, as large as the view is near."""
        return noise(self.rng, self.size, kind, zoom=zoom * self.zoom, stretch=stretch, angle=angle)

    def plane(self, angle: float) -> tuple[Field, Field]:
        """Coordinates from −1 to 1 (and a little beyond in the corners) along turned axes."""
        y, x = np.mgrid[-1 : 1 : self.size * 1j, -1 : 1 : self.size * 1j].astype(np.float32)
        c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        return x * c + y * s, y * c - x * s

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.random() * len(choices))]

    def shadow(self) -> NDArray[np.float64]:
        """Where the shadow of something one unit high falls."""
        length = 0.35 + 1.3 * self.low_sun
        return -length * np.array([np.cos(self.sun), np.sin(self.sun)])

    def tint(self, colour: Colour, spread: float = 14.0) -> Colour:
        """A colour like this one: brighter or darker, and a little to one side."""
        return self.tints(colour, 1, spread)[0]

    def tints(self, colour: Colour, count: int, spread: float = 14.0) -> list[Colour]:
        """Several of them."""
        drawn = self.rng.standard_normal((count, 4)).tolist()
        r, g, b = colour
        return [
            (
                r * (1 + spread / 140 * bright) + spread / 4 * red,
                g * (1 + spread / 140 * bright) + spread / 4 * green,
                b * (1 + spread / 140 * bright) + spread / 4 * blue,
            )
            for bright, red, green, blue in drawn
        ]

    def among(self, colours: Sequence[Colour], count: int, spread: float = 10.0) -> Colours:
        """For each of ``count`` things a colour like one of these."""
        base = np.asarray(colours, float)[self.rng.integers(len(colours), size=count)]
        bright = 1 + spread / 140 * self.rng.standard_normal((count, 1))
        drawn: Colours = base * bright + spread / 4 * self.rng.standard_normal((count, 3))
        return drawn

    def green(self) -> Colour:
        """What leaves look like here and now."""
        low = min(int(self.season), 2)
        part = min(self.season - low, 1.0)
        r, g, b = (
            (now + (then - now) * part) * (1 - 0.75 * self.dryness) + 0.75 * self.dryness * dry
            for now, then, dry in zip(LEAVES[low], LEAVES[low + 1], STRAW, strict=True)
        )
        return self.tint((r, g, b))

    def soil(self) -> Colour:
        """What bare ground looks like here: from peat over loam to red earth and chalk."""
        return self.tint(self.pick(SOILS))
