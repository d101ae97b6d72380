"""Scenes that people make lot by lot: houses, halls, glass, panels, trees in rows, and roads."""

from __future__ import annotations

import numpy as np

from monitor.demo.scenes.drawing import Colours, Pen
from monitor.demo.scenes.landscape import backdrop, bare, fields, grass, scrub
from monitor.demo.scenes.shapes import Lot, Points, beside, path, split, turned, visible
from monitor.demo.scenes.texture import Colour, Pixels, blend, ramp, shades
from monitor.demo.scenes.viewpoint import View

ROOFS: tuple[Colour, ...] = (
    (158, 88, 64), (142, 74, 56), (120, 112, 106), (92, 90, 92), (182, 176, 166), (172, 128, 96),
)  # fmt: skip
HALLS: tuple[Colour, ...] = ((204, 204, 202), (168, 170, 174), (120, 134, 156), (150, 96, 80))
CARS: tuple[Colour, ...] = (
    (226, 226, 224), (40, 42, 46), (150, 152, 156), (146, 40, 36), (44, 66, 118), (196, 194, 186),
)  # fmt: skip
PAINT: Colour = (206, 204, 196)


def town(view: View) -> Pixels:
    """Streets and houses: suburb, old town or slabs, with gardens and trees between."""
    style = view.pick(("suburb", "suburb", "old", "slabs"))
    block, house, tall = {
        "suburb": (0.44, 0.105, 0.03),
        "old": (0.34, 0.12, 0.05),
        "slabs": (0.7, 0.2, 0.09),
    }[style]
    turn, near = view.between(0, np.pi), min(view.zoom, 1.5)
    pen = Pen(bare(view) * 0.8 if style == "old" else grass(view))
    street = view.tint((126, 124, 122))
    lots = list(split(view.rng, block * near))
    edges = turned(np.stack([lot.corners for lot in lots]), turn)
    wide = view.rng.uniform(0.045, 0.07, len(lots)) * near
    pen.segments(edges[:, 0], edges[:, 1], wide, street)
    pen.segments(edges[:, 0], edges[:, 3], wide, street)
    # Some lots are a park, a school yard, or nothing yet.
    houses = [_houses(view, lot, house * near, style) for lot in lots if not view.chance(0.06)]
    places, sizes, sides = (np.concatenate(part) for part in zip(*houses, strict=True))
    places = turned(places, turn)
    seen = visible(places)
    roofs = [view.tint(view.pick(ROOFS)) for _ in range(4)]
    pen.boxes(
        places[seen],
        sizes[seen, 0],
        sizes[seen, 1],
        sides[seen] + turn,
        view.among(roofs, int(seen.sum())),
        shadow=view.shadow() * tall * near,
        gable=style != "slabs",
    )
    trees = view.rng.uniform(-1, 1, (int(view.rng.integers(25, 130)), 2))
    plant(view, pen, trees[: len(trees) // (3 if style == "old" else 1)], 0.022 * near)
    return pen.pixels()


def industry(view: View) -> Pixels:
    """Large flat roofs, yards full of trucks and cars, tanks and lawns."""
    turn, near = view.between(0, np.pi), min(view.zoom, 1.5)
    grey = view.noise("rough") * 0.15 + 0.5
    pen = Pen(ramp(grey, (view.tint((112, 110, 106)), (150, 146, 140))))
    shadow = view.shadow() * 0.07 * near
    for lot in split(view.rng, view.between(0.42, 0.75) * near, uneven=0.5):
        at = turned(lot.centre, turn)
        if not visible(at, 0.6):
            continue
        kind = view.rng.random()
        if kind < 0.55:
            roof = view.tint(view.pick(HALLS))
            size = (lot.width * 0.8, lot.height * 0.75)
            pen.boxes(at[None], *size, turn, roof, shadow=shadow)
            ribs = np.linspace(-0.35, 0.35, int(view.rng.integers(2, 8)))[:, None]
            places = turned(lot.centre + ribs * np.array([lot.width, 0]), turn)
            pen.boxes(places, 0.016 * near, size[1], turn, *shades(roof, 0.86))
        elif kind < 0.8:
            spots = lot.grid(0.032 * near, 0.085 * near, margin=0.05)
            parked = turned(spots[view.rng.random(len(spots)) < 0.7], turn)
            parked = parked[visible(parked, 0.05)]
            cars = view.among(CARS, len(parked), 4)
            pen.boxes(parked, 0.018 * near, 0.042 * near, turn, cars)
        elif kind < 0.9:
            pen.box(at, lot.width * 0.85, lot.height * 0.85, turn, view.green())
        else:
            spots = lot.centre + view.rng.uniform(-0.4, 0.4, (5, 2)) * (lot.width, lot.height)
            tanks(view, pen, turned(spots, turn), view.between(0.04, 0.09) * near)
    return pen.pixels()


def greenhouses(view: View) -> Pixels:
    """Lot upon lot under glass or plastic, in long bright strips."""
    turn, near = view.between(0, np.pi), min(view.zoom, 1.5)
    pen = Pen(view.pick((scrub, bare, fields, grass))(view))
    sheen = view.pick(((214, 218, 220), (196, 206, 208), (222, 220, 208), (176, 190, 192)))
    strips = [
        _strips(view, lot, view.tint(sheen, 12), near)
        for lot in split(view.rng, view.between(0.3, 0.62) * near, uneven=0.5)
        if not view.chance(0.16) and visible(turned(lot.centre, turn), 0.4)
    ]
    places, sizes, sides, covers = (np.concatenate(part) for part in zip(*strips, strict=True))
    places = turned(places, turn)
    seen = visible(places, 0.3)
    places, sizes, sides, covers = places[seen], sizes[seen], sides[seen] + turn, covers[seen]
    shadow = view.shadow() * 0.012 * near
    pen.boxes(places, sizes[:, 0], sizes[:, 1], sides, covers, shadow=shadow)
    pen.boxes(places, sizes[:, 0], sizes[:, 1] / 3, sides, covers * 0.88)
    return pen.pixels()


def solar(view: View) -> Pixels:
    """Rows of dark panels in fenced lots, with service roads between."""
    turn, near = view.between(0, np.pi), min(view.zoom, 1.5)
    pen = Pen(view.pick((grass, scrub, bare, fields))(view))
    panel = view.tint(view.pick(((34, 42, 72), (44, 52, 78), (30, 34, 48), (58, 70, 98))), 8)
    pitch, table = view.between(0.06, 0.12) * near, view.between(0.3, 0.9)
    for lot in split(view.rng, view.between(0.6, 1.2), reach=1.4, uneven=0.5):
        if view.chance(0.18):
            continue
        spots = lot.grid(table, pitch, margin=0.045)
        # The last table of a row is as long as the lot allows.
        room = np.minimum(table, lot.x + lot.width - 0.045 - spots[:, 0]) - 0.015
        spots, room = spots[room > 0.03], room[room > 0.03]
        places = turned(spots + np.stack([room / 2, np.zeros_like(room)], axis=1), turn)
        seen = visible(places, table / 2)
        places, room = places[seen], room[seen]
        colours = view.among([panel], len(places), 4)
        shadow = view.shadow() * 0.01 * near
        pen.boxes(places, room, pitch * 0.56, turn, colours, shadow=shadow)
        if view.chance(0.5):
            hut = turned(np.array([lot.x, lot.y + lot.height / 2]), turn)
            pen.box(hut, 0.05 * near, 0.03 * near, turn, (206, 204, 198))
    return pen.pixels()


def orchard(view: View) -> Pixels:
    """Trees planted in rows, over bare or green ground."""
    turn, near = view.between(0, np.pi), min(view.zoom, 1.5)
    pen = Pen(view.pick((grass, bare, bare))(view))
    for lot in split(view.rng, view.between(0.7, 1.4), uneven=0.5):
        if view.chance(0.1):
            continue
        across, down = view.between(0.08, 0.14) * near, view.between(0.09, 0.16) * near
        spots = lot.grid(across, down, margin=0.04)
        spots = spots[view.rng.random(len(spots)) > 0.03]
        places = turned(spots, turn) + view.rng.normal(0, 0.006, spots.shape)
        plant(view, pen, places[visible(places)], view.between(0.3, 0.48) * min(across, down))
        pen.line(turned(lot.corners[:2], turn), 0.035 * near, view.soil())
    return pen.pixels()


def highway(view: View) -> Pixels:
    """Carriageways with lanes and vehicles, across any land; side roads and ramps at times."""
    pen = Pen(backdrop(view))
    lane = view.between(0.035, 0.05) * min(view.zoom, 1.5)
    for bend in (view.between(0, 0.6), 1.2):
        if view.chance(0.35):
            _road(view, pen, path(view.rng, bend=bend), lane * 0.95, lanes=1)
    way, lanes = path(view.rng, bend=view.between(0, 0.5)), int(view.rng.integers(2, 4))
    verge = blend(view.green(), view.soil(), 0.5)
    pen.line(way, lane * (2 * lanes + 3.4), verge)
    gap = lane * (lanes / 2 + view.between(0.35, 0.9))
    for side in (-1, 1):
        _road(view, pen, beside(way, side * gap), lane, lanes)
    return pen.pixels()


def plant(view: View, pen: Pen, places: Points, radius: float) -> None:
    """Single trees with their shadows."""
    leaf = np.asarray(view.green()) * 0.6
    sizes = radius * view.rng.uniform(0.75, 1.25, len(places))
    pen.dots(places + view.shadow() * radius, sizes, (52, 52, 44))
    pen.dots(places, sizes, leaf * view.rng.uniform(0.8, 1.25, (len(places), 1)))


def tanks(view: View, pen: Pen, places: Points, radius: float) -> None:
    """Round and white, seen from above, with a long shadow."""
    pen.dots(places + view.shadow() * radius * 0.6, radius, (44, 46, 50))
    pen.dots(places, radius, view.tint((214, 214, 210)))
    pen.dots(places + radius * 0.15, radius * 0.7, view.tint((196, 196, 194)))


def _strips(
    view: View, lot: Lot, cover: Colour, near: float
) -> tuple[Points, Points, Points, Colours]:
    """The glasshouses of a lot, side by side: where, how large, which way, and how bright."""
    margin, strip = view.between(0.015, 0.04) * near, view.between(0.04, 0.08) * near
    lying = view.chance(0.75)
    length, wide = (lot.width, lot.height) if lying else (lot.height, lot.width)
    off = np.arange(margin + strip / 2, wide - margin, strip)[:, None] - wide / 2
    places = lot.centre + off * ((0, 1) if lying else (1, 0))
    n = len(places)
    sizes = np.tile([max(length - 2 * margin, 0.02), strip * 0.86], (n, 1))
    return places, sizes, np.full(n, 0.0 if lying else np.pi / 2), view.among([cover], n, 9)


def _houses(view: View, lot: Lot, house: float, style: str) -> tuple[Points, Points, Points]:
    """Where houses stand in a lot (along its streets, or in rows of slabs), how large, and how."""
    if style == "slabs":
        rows = np.arange(lot.y + 0.16, lot.y + lot.height - 0.1, house * view.between(1.3, 1.9))
        places = np.stack([np.full(len(rows), lot.x + lot.width / 2), rows], axis=1)
        sizes = np.tile([lot.width * view.between(0.5, 0.75), house * 0.5], (len(rows), 1))
        return places, sizes, np.zeros(len(rows))
    depth = house * (0.95 if style == "suburb" else 0.75)
    ends = (lot.y + depth, lot.y + lot.height - depth)
    rows = np.array(ends if lot.height > 3 * depth else (lot.y + lot.height / 2,))
    columns = np.arange(
        lot.x + house * 0.8, lot.x + lot.width - house * 0.5, house * view.between(1.0, 1.4)
    )
    places = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
    n = len(places)
    sizes = house * view.rng.uniform(0.7, 1.1, (n, 2)) * (1.0, 0.75)
    jitter = view.rng.normal(0, house * 0.07, (n, 2))
    return places + jitter, sizes, view.rng.integers(0, 2, n) * np.pi / 2


def _road(view: View, pen: Pen, way: Points, lane: float, lanes: int) -> None:
    pen.line(way, lane * (lanes + 0.6), view.tint((112, 112, 114), 10))
    for k in range(lanes + 1):
        stripe = beside(way, (k - lanes / 2) * lane)
        if k in (0, lanes):
            pen.line(stripe, lane * 0.11, PAINT)
            continue
        pen.segments(stripe[0:-1:2], stripe[1::2], lane * 0.11, PAINT)
    count = int(view.rng.poisson(2.2 * lanes))
    at = view.rng.integers(1, len(way) - 1, count)
    ahead = way[at + 1] - way[at - 1]
    heading = np.arctan2(ahead[:, 1], ahead[:, 0])
    offset = (view.rng.integers(lanes, size=count) + 0.5 - lanes / 2) * lane
    places = way[at] + offset[:, None] * np.stack([-np.sin(heading), np.cos(heading)], axis=1)
    lengths = lane * np.where(view.rng.random(count) < 0.75, 1.1, 3.0)
    shadow = view.shadow() * lane * 0.25
    vehicles = view.among(CARS, count, 4)
    pen.boxes(places, lengths, lane * 0.5, heading, vehicles, shadow=shadow)
