"""Scenes around one great work: a harbour, an airport, a quarry."""

from __future__ import annotations

import numpy as np

from monitor.demo.scenes.buildings import ROOFS, tanks
from monitor.demo.scenes.drawing import Pen
from monitor.demo.scenes.landscape import backdrop, bare, fields, grass, scrub, sea
from monitor.demo.scenes.shapes import Points, path, split, turned, visible
from monitor.demo.scenes.texture import Colour, Pixels, light, lit, mix, ramp, shades, step
from monitor.demo.scenes.viewpoint import View

BOXES: tuple[Colour, ...] = ((170, 66, 48), (58, 96, 138), (188, 184, 176), (74, 122, 84))
HULLS: tuple[Colour, ...] = ((96, 50, 44), (60, 66, 78), (44, 84, 92), (120, 118, 114))
ROCKS: tuple[Colour, ...] = (
    (206, 196, 178), (178, 164, 142), (168, 138, 112), (150, 148, 146),
)  # fmt: skip
WHITE: Colour = (214, 212, 206)

# Outlines of things one unit long that head along x.
_HULL = np.array([[-0.5, -0.5], [0.3, -0.5], [0.5, 0], [0.3, 0.5], [-0.5, 0.5]])
_WING = np.array([[0.12, 0], [-0.14, 0.5], [-0.24, 0.5], [-0.1, 0], [-0.24, -0.5], [-0.14, -0.5]])
_TAIL = np.array(
    [[-0.34, 0], [-0.46, 0.18], [-0.5, 0.18], [-0.48, 0], [-0.5, -0.18], [-0.46, -0.18]]
)


def harbour(view: View) -> Pixels:
    """Basins, quays and piers with ships or boats, and sheds, tanks and containers behind."""
    turn, near = view.between(0, 2 * np.pi), min(view.zoom, 1.5)
    quay, marina = view.between(-0.35, 0.3), view.chance(0.4)
    pen = Pen(sea(view))
    paved = view.tint((150, 146, 138))
    land = np.array([[-2, quay], [2, quay], [2, 2], [-2, 2]])
    pen.polygon(turned(land, turn), paved)
    x = -1.5 + view.between(0, 0.3)
    while x < 1.5:
        wide = near * (view.between(0.05, 0.1) if marina else view.between(0.14, 0.34))
        reach = view.between(0.35, 1.0)
        middle = np.array([x, quay - reach / 2])
        pen.box(turned(middle, turn), wide, reach, turn, view.tint(paved, 8))
        if marina:
            _boats(view, pen, turn, middle, wide, reach, near)
        else:
            for side in (-1, 1):
                aside = np.array([side * (wide / 2 + 0.075 * near), view.between(-0.1, 0.1)])
                if view.chance(0.65):
                    length = reach * view.between(0.5, 0.95)
                    _ship(view, pen, turned(middle + aside, turn), length, turn + np.pi / 2)
        x += wide + view.between(0.22, 0.5) * near
    for spot in view.rng.uniform(-0.9, 0.9, 0 if marina else int(view.rng.integers(0, 3))):
        berth = turned(np.array([spot, quay - 0.06 * near]), turn)
        _ship(view, pen, berth, view.between(0.3, 0.7) * near, turn)
    _yard(view, pen, turn, quay, near)
    return pen.pixels()


def airport(view: View) -> Pixels:
    """A runway with its markings, taxiways, an apron with aeroplanes, and a terminal."""
    turn, near = view.between(0, np.pi), min(view.zoom, 1.4)
    pen = Pen(view.pick((grass, grass, scrub, bare, fields))(view))
    asphalt, concrete = view.tint((98, 98, 100)), view.tint((158, 156, 150))
    wide, offset = view.between(0.13, 0.2) * near, view.between(-0.55, 0.05)
    end = view.between(-1.2, -0.5) if view.chance(0.6) else -2.0
    taxi = offset + view.between(0.28, 0.42) * near
    pen.line(turned(np.array([[end, taxi], [2, taxi]]), turn), 0.06 * near, concrete)
    for x in view.rng.uniform(-1, 1.2, 3):
        link = np.array([[x, offset], [x + view.between(-0.15, 0.15), taxi]])
        pen.line(turned(link, turn), 0.06 * near, concrete)
    pen.box(turned(np.array([(end + 2) / 2, offset]), turn), 2 - end, wide, turn, asphalt)
    dashes = np.arange(end + 0.3, 2, 0.16)
    middle = np.stack([dashes, np.full_like(dashes, offset)], axis=1)
    pen.boxes(turned(middle, turn), 0.07, 0.012 * near, turn, WHITE)
    bars = offset + (np.arange(6) - 2.5) * wide * 0.14
    threshold = np.stack([np.full_like(bars, end + 0.12), bars], axis=1)
    pen.boxes(turned(threshold, turn), 0.12, wide * 0.07, turn, WHITE)
    for edge in (offset - wide * 0.46, offset + wide * 0.46):
        pen.line(turned(np.array([[end, edge], [2, edge]]), turn), 0.008, WHITE)
    if view.chance(0.25):
        pen.line(path(view.rng, bend=0.1), wide * 0.8, asphalt)
    if view.chance(0.85):
        _apron(view, pen, turn, taxi + 0.05, near, concrete)
    return pen.pixels()


def quarry(view: View) -> Pixels:
    """A pit in terraces with its haul road, machines, and often a pond at the bottom."""
    x, y = view.plane(view.between(0, np.pi))
    centre = view.rng.uniform(-0.3, 0.3, 2)
    far = np.hypot((x - centre[0]) * view.between(0.8, 1.3), y - centre[1])
    depth = 1.15 - far / view.between(0.7, 1.2) + 0.22 * view.noise("smooth", zoom=1.4)
    depth = depth + 0.02 * view.noise("rough", zoom=0.8)
    bench = depth * view.between(4, 8)
    level = np.floor(bench)
    terrace = level + np.clip((bench - level) * 4, 0, 1)
    rock = view.tint(view.pick(ROCKS))
    tone = 0.5 + 0.13 * view.noise("rough", zoom=0.9) + 0.08 * (level % 2)
    pit = ramp(tone, shades(rock, 0.72, 1.14))
    shade = light(-terrace, view.sun, view.between(0.5, 1.1))
    pit = lit(pit, shade * (1 + 0.04 * view.noise("grain", zoom=0.9)))
    pixels = mix(backdrop(view), pit, step(depth, 0.05, 0.08))
    if view.chance(0.5):
        pond = ramp(depth, (view.tint((58, 106, 112)), view.tint((40, 84, 96))))
        pixels = mix(pixels, pond, step(depth, view.between(0.75, 1.0), 0.04))
    pen = Pen(pixels)
    angle, radius = np.linspace(0, view.between(2, 5), 40), np.linspace(1.7, 0.3, 40)
    spiral = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    road = turned(spiral, view.between(0, 2 * np.pi)) + centre
    pen.line(road, 0.045 * min(view.zoom, 1.5), *shades(rock, 1.08))
    for spot in view.rng.uniform(-0.6, 0.6, (int(view.rng.integers(0, 6)), 2)):
        machine = view.pick(((214, 178, 60), (80, 80, 84)))
        pen.box(spot, 0.035, 0.02, view.between(0, 3), machine)
    return pen.pixels()


def _ship(view: View, pen: Pen, at: Points, length: float, heading: float) -> None:
    wide = length * view.between(0.13, 0.2)
    outline = turned(_HULL * np.array([length, wide]), heading) + at
    pen.polygon(outline + view.shadow() * 0.03, (20, 26, 34))
    pen.polygon(outline, view.tint(view.pick(HULLS)))
    ahead = np.array([np.cos(heading), np.sin(heading)])
    if view.chance(0.6):
        holds = np.linspace(-0.25, 0.3, int(view.rng.integers(3, 8)))[:, None]
        stacks = view.among(BOXES, len(holds))
        pen.boxes(at + holds * length * ahead, length * 0.07, wide * 0.8, heading, stacks)
    pen.box(at - 0.38 * length * ahead, length * 0.1, wide * 0.85, heading, (232, 232, 228))


def _boats(
    view: View, pen: Pen, turn: float, middle: Points, wide: float, reach: float, near: float
) -> None:
    """Small boats on both sides of a pier."""
    for side in (-1, 1):
        along = np.arange(-reach / 2, reach / 2, 0.05 * near)
        along = along[view.rng.random(len(along)) > 0.25]
        aside = np.full_like(along, side * (wide / 2 + 0.045 * near))
        places = turned(middle + np.stack([aside, along], axis=1), turn)
        lengths = view.rng.uniform(0.05, 0.085, len(places)) * near
        pen.boxes(places, lengths, 0.024 * near, turn, view.among([(228, 228, 226)], len(places)))


def _yard(view: View, pen: Pen, turn: float, quay: float, near: float) -> None:
    """Sheds, container stacks and tanks behind the quay."""
    for lot in split(view.rng, 0.34 * near, reach=1.4):
        middle = turned(lot.centre, turn)
        if lot.y < quay + 0.08 or not visible(middle, 0.3):
            continue
        kind = view.rng.random()
        if kind < 0.35:
            roof, shadow = view.tint(view.pick(ROOFS)), view.shadow() * 0.05 * near
            size = (lot.width * 0.85, lot.height * 0.7)
            pen.boxes(middle[None], *size, turn, roof, shadow=shadow)
        elif kind < 0.7:
            stacks = turned(lot.grid(0.05 * near, 0.11 * near, margin=0.035), turn)
            stacks = stacks[visible(stacks, 0.05)]
            colours = view.among(BOXES, len(stacks))
            pen.boxes(stacks, 0.035 * near, 0.09 * near, turn, colours)
        elif kind < 0.82:
            tanks(view, pen, middle[None], min(lot.width, lot.height) * 0.35)


def _apron(view: View, pen: Pen, turn: float, edge: float, near: float, concrete: Colour) -> None:
    left = view.between(-1.0, -0.2)
    wide, deep = view.between(0.9, 1.8), view.between(0.3, 0.55) * near
    middle = left + wide / 2
    pen.box(turned(np.array([middle, edge + deep / 2]), turn), wide, deep, turn, concrete)
    hall = turned(np.array([[middle, edge + deep + 0.07 * near]]), turn)
    shadow = view.shadow() * 0.06 * near
    pen.boxes(hall, wide * 0.8, 0.13 * near, turn, view.tint((190, 190, 188)), shadow=shadow)
    size = view.between(0.13, 0.24) * near
    for x in np.arange(left + size * 0.7, left + wide - size * 0.5, size * 1.25):
        if view.chance(0.75):
            at = turned(np.array([x, edge + deep - size * 0.75]), turn)
            _aeroplane(view, pen, at, size, turn + np.pi / 2 + view.rng.normal(0, 0.08))
    if view.chance(0.5):
        at = turned(np.array([view.between(-0.8, 0.8), edge - 0.05]), turn)
        _aeroplane(view, pen, at, size, turn)


def _aeroplane(view: View, pen: Pen, at: Points, size: float, heading: float) -> None:
    nose = 0.5 * size * np.array([np.cos(heading), np.sin(heading)])
    cast: tuple[tuple[Points, Colour], ...] = (
        (at + view.shadow() * size * 0.12, (70, 70, 74)),
        (at, (238, 238, 236)),
    )
    for middle, colour in cast:
        for shape in (_WING, _TAIL):
            pen.polygon(turned(shape * size, heading) + middle, colour)
        pen.line(np.array([middle - nose, middle + nose]), size * 0.12, colour)
