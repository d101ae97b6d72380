"""Scenes that nature makes, and the ground that other scenes stand on."""

from __future__ import annotations

import numpy as np

from monitor.demo.scenes.drawing import Pen, parts
from monitor.demo.scenes.shapes import beside, path, split, turned
from monitor.demo.scenes.texture import (
    Colour,
    Field,
    Pixels,
    blend,
    flat,
    light,
    lit,
    mix,
    pair,
    ramp,
    shades,
    step,
)
from monitor.demo.scenes.viewpoint import View

WATERS: tuple[Colour, ...] = (
    (16, 40, 72), (22, 58, 84), (18, 62, 70), (40, 70, 62), (74, 82, 66), (28, 48, 58),
)  # fmt: skip
SANDS: tuple[Colour, ...] = (
    (214, 178, 124), (222, 168, 108), (200, 136, 86), (226, 206, 166), (190, 160, 122),
)  # fmt: skip


def water(view: View) -> Pixels:
    """Open water, often with a shore: blue, green or brown, calm or rough."""
    pixels = sea(view)
    if view.chance(0.5):
        height = _coast(view, share=view.between(0.05, 0.4))
        pixels = shore(view, pixels, height, view.pick((grass, scrub, forest, fields))(view))
    if view.chance(0.3):
        pixels = _boats(view, pixels)
    return pixels


def sea(view: View) -> Pixels:
    """A surface of water."""
    deep = view.tint(view.pick(WATERS))
    shallow = blend(shades(deep, 1.35)[0], (255, 255, 255), view.between(0.02, 0.08))
    pixels = ramp(view.noise("smooth", zoom=2.0) * 0.2 + 0.4, (deep, shallow))
    wind = view.between(0, 2 * np.pi)
    swell = view.noise("rough", zoom=0.5, stretch=3, angle=wind + 0.3)
    waves = view.noise(
        "grain", zoom=view.between(0.5, 1.1), stretch=view.between(1.5, 5), angle=wind
    )
    roughness = float(view.rng.gamma(1.5, 0.012))
    pixels = lit(pixels, 1 + roughness * (1.4 * waves + swell))
    if view.chance(0.35):
        along, _ = view.plane(view.sun)
        glint = step(along + 0.25 * swell, view.between(0.2, 1.0), 1.6) * view.between(0.05, 0.25)
        pixels = pixels + (glint * (1 + 0.35 * waves))[..., None]
    return pixels


def forest(view: View) -> Pixels:
    """Crowns of trees side by side; autumn, clearings and tracks included."""
    pixels = woods(view)
    if view.chance(0.35):
        open_land = step(view.noise("smooth", zoom=1.6), view.between(1.0, 1.8), 0.15)
        pixels = mix(pixels, view.pick((grass, scrub))(view), open_land)
    if view.chance(0.3):
        pen = Pen(pixels)
        pen.line(path(view.rng, bend=view.between(0.1, 0.8)), 0.035 * view.zoom, view.soil())
        pixels = pen.pixels()
    return pixels


def woods(view: View) -> Pixels:
    """Nothing but trees."""
    near = view.between(0.35, 0.95)
    crowns, tree = pair(view.rng, view.size, ("crowns", "cells"), zoom=near * view.zoom)
    stand = view.noise("smooth", zoom=1.5)
    leaf = shades(view.green(), view.between(0.62, 0.95))[0]
    autumn = max(0.0, 1 - abs(view.season - 2) * 1.6) * view.between(0, 1)
    other = blend(shades(leaf, view.between(0.72, 1.2))[0], (168, 96, 44), autumn)
    pixels = ramp(tree * 0.8 + 0.16 * stand, (*shades(leaf, 0.82, 1.0), other))
    shade = light(crowns, view.sun, (0.9 + 2.2 * view.low_sun) * near * view.zoom)
    fine = 1 + 0.08 * view.noise("grain", zoom=0.7)
    gaps = np.clip(crowns * 1.6 + 0.18, 0.18, 1)
    return lit(pixels, shade * gaps * fine * (1 + 0.1 * stand))


def grass(view: View) -> Pixels:
    """Meadow or steppe, mottled."""
    green = shades(view.green(), view.between(1.05, 1.35))[0]
    patch = view.noise("rough", zoom=view.between(0.6, 1.6)) * 0.22 + 0.4
    fine = 1 + view.between(0.03, 0.08) * view.noise("grain", zoom=0.8)
    return lit(ramp(patch, (green, blend(green, view.soil(), 0.4))), fine)


def scrub(view: View) -> Pixels:
    """Dry ground with single bushes."""
    soil = ramp(view.noise("rough", zoom=1.2) * 0.2 + 0.5, (view.soil(), view.soil()))
    crowns, tree = pair(view.rng, view.size, ("crowns", "cells"), zoom=0.45 * view.zoom)
    bushes = step(crowns * (tree > view.between(0.4, 0.85)), 0.55, 0.2)
    leaf = flat(shades(view.green(), 0.62)[0], soil)
    return lit(mix(soil, leaf, bushes), light(crowns, view.sun, 1.2))


def bare(view: View) -> Pixels:
    """Nothing grows: rock, gravel or earth."""
    patch = view.noise("rough", zoom=view.between(0.8, 2.0)) * 0.2 + 0.5
    shade = light(view.noise("rough"), view.sun, 0.25)
    return lit(ramp(patch, shades(view.soil(), 0.82, 1.18)), shade)


def fields(view: View) -> Pixels:
    """Parcels of crops, stubble and ploughed earth, with rows, hedges and tracks between."""
    turn = view.between(0, np.pi)
    smallest = view.between(0.28, 0.62) * min(view.zoom, 1.5)
    lots = split(view.rng, smallest, uneven=view.between(0.1, 0.5))
    polygons = [turned(lot.corners, turn) for lot in lots]
    number = parts(view.size, polygons)
    n = len(polygons) + 1
    colours = np.array([_crop(view) for _ in range(n)], np.float32) / 255
    rows = view.rng.choice([0.0, np.pi / 2], n) + view.rng.normal(0, 0.04, n) + turn
    spacing = view.rng.uniform(26, 95, n) / view.zoom
    strength = view.rng.gamma(1.2, 0.05, n) * (view.rng.random(n) < 0.75)
    x, y = view.plane(0.0)
    along = x * np.cos(rows)[number] + y * np.sin(rows)[number]
    stripes = np.sin(along * spacing[number]) * strength[number]
    growth = view.noise("rough", zoom=0.9) * view.rng.uniform(0.02, 0.11, n)[number]
    pixels = colours[number] * (1 + stripes + growth)[..., None]
    pen = Pen(pixels)
    [hedge] = shades(view.green(), 0.55)
    edges = np.stack(polygons)[view.rng.random(len(polygons)) < 0.35]
    ends = view.rng.choice([1, 3], len(edges))
    colours = view.among((hedge, hedge, view.soil()), len(edges), 4)
    wide = view.rng.uniform(0.012, 0.035, len(edges)) * view.zoom
    pen.segments(edges[:, 0], edges[np.arange(len(edges)), ends], wide, colours)
    if view.chance(0.4):
        _farm(view, pen, turn)
    return pen.pixels()


def dunes(view: View) -> Pixels:
    """Crests across the wind, one flank in the light and one in its own shadow."""
    wind = view.between(0, 2 * np.pi)
    along, across = view.plane(wind)
    meander = view.noise("smooth", zoom=1.8) * view.between(0.06, 0.2)
    meander = meander + view.noise("smooth", zoom=0.7) * view.between(0.0, 0.02)
    phase = (along + meander) * view.between(2.0, 5.5) / view.zoom
    saw = np.mod(phase + 0.3 * across * view.between(-1, 1), 1.0)
    # Sand rises slowly on the windward side and slides down steeply behind the crest.
    steep = view.between(0.66, 0.86)
    height = np.where(saw < steep, saw / steep, (1 - saw) / (1 - steep))
    height = height * np.clip(0.75 + 0.35 * view.noise("smooth"), 0.15, 1.4)
    ripples = view.noise("grain", zoom=0.9, stretch=3.5, angle=wind + np.pi / 2)
    tone = 0.45 + 0.22 * height + 0.06 * view.noise("smooth", zoom=2.0)
    shade = light(height, view.sun, view.between(1.6, 3.4)) + 0.02 * ripples
    shade = 1 + (shade - 1) * view.between(0.5, 1.0)
    pixels = lit(ramp(tone, shades(view.tint(view.pick(SANDS)), 0.78, 1.15)), shade)
    if view.chance(0.25):
        plain = step(view.noise("smooth", zoom=1.5), 0.9, 0.5)
        pixels = mix(pixels, view.pick((bare, scrub))(view), plain)
    return pixels


def snow(view: View) -> Pixels:
    """Mountains or plains under snow, with rock, trees or ice showing through."""
    ridges = 1 - np.abs(view.noise("smooth", zoom=view.between(1.2, 2.6))) * view.between(0.6, 1.4)
    height = ridges + view.between(0.05, 0.3) * view.noise("rough", zoom=1.3)
    white = view.between(205, 248)
    cold = ramp(
        0.6 + 0.25 * height,
        ((white * 0.82, white * 0.88, white * 0.95), (white, white, white * 1.01)),
    )
    shade = light(height, view.sun, view.between(2.0, 6.0) * view.zoom)
    # Shadows on snow are lit by the sky alone, so they are blue.
    dim = np.clip(1 - shade, 0, 1)[..., None] * np.array([1.0, 0.82, 0.52], np.float32)
    pixels = lit(cold * (1 - dim), np.clip(shade, 1, 1.12))
    if view.chance(0.6):
        rock = lit(bare(view), view.between(0.42, 0.8) * np.clip(shade, 0.5, 1.3))
        # Snow does not stay on the crests that the wind sweeps.
        swept = height + view.between(0.2, 0.5) * view.noise("rough", stretch=2.0)
        pixels = mix(pixels, rock, step(swept, np.quantile(swept, view.between(0.6, 0.97)), 0.12))
    if view.chance(0.35):
        stand = step(view.noise("smooth", zoom=1.5), view.between(0.3, 1.4), 0.3)
        trees = stand * step(view.noise("crowns", zoom=0.5), 0.4, 0.4)
        pixels = mix(pixels, woods(view) * 0.6, trees)
    return pixels


def river(view: View) -> Pixels:
    """A stream winding through open land or woods, with bars of sand, arms and bridges."""
    ground = view.pick((fields, grass, scrub, forest, forest, bare))(view)
    wide = view.between(0.09, 0.34) * min(view.zoom, 1.4)
    way = path(view.rng, bend=view.between(0.5, 1.5), points=90)
    pen, white = Pen(np.zeros_like(ground)), (255.0, 255.0, 255.0)
    pen.line(way, wide, white)
    if view.chance(0.35):
        arm = path(view.rng, bend=1.1, points=90)
        pen.line(arm, wide * view.between(0.25, 0.7), white)
    if view.chance(0.4):
        pen.line(beside(way, wide * view.between(0.8, 1.6)), wide * 0.45, white)
    wet = pen.pixels()[..., 0] + 0.16 * view.noise("rough", zoom=0.8)
    edge = shades(view.soil(), 1.15) if view.chance(0.45) else shades(view.green(), 0.6)
    banks = step(wet, 0.3, 0.25) * view.between(0.5, 1.0)
    pixels = mix(ground, flat(edge[0], ground), banks)
    pixels = mix(pixels, sea(view), step(wet, view.between(0.45, 0.6), 0.2))
    if view.chance(0.25):
        pen = Pen(pixels)
        pen.line(path(view.rng, bend=0.05), 0.06 * view.zoom, (150, 148, 142))
        pixels = pen.pixels()
    return pixels


def wetland(view: View) -> Pixels:
    """Reeds and mud between ponds and creeks that have no straight line in them."""
    relief = view.noise("smooth", zoom=view.between(0.5, 1.0)) + 0.4 * view.noise("rough", zoom=0.7)
    creeks = np.abs(view.noise("smooth", zoom=view.between(0.7, 1.2)))
    creeks = creeks + 0.12 * view.noise("rough", zoom=0.6)
    level = view.between(-1.3, -0.2)
    wet = np.maximum(step(-relief, -level, 0.25), step(-creeks, view.between(-0.16, -0.04), 0.08))
    reed = blend(view.green(), (118, 100, 62), view.between(0.15, 0.4))
    tufts = view.noise("grain", zoom=1.2) * 0.1 + view.noise("rough", zoom=0.6) * 0.2 + 0.5
    land = ramp(tufts, shades(reed, 0.62, 0.92, 1.12))
    mud = ramp(tufts, shades(view.soil(), 0.5, 0.78))
    land = mix(land, mud, step(-relief, -level - 0.5, 0.9) * view.between(0.3, 0.9))
    peat = flat(view.tint((44, 46, 38)), land)
    pools = sea(view)
    pools = pools + (peat - pools) * view.between(0.2, 0.8)
    return mix(land, pools, wet * view.between(0.8, 1.0))


BACKDROPS = (fields, grass, scrub, bare, forest)


def backdrop(view: View) -> Pixels:
    """What lies around things that people build."""
    return view.pick(BACKDROPS)(view)


def shore(view: View, wet: Pixels, height: Field, land: Pixels) -> Pixels:
    """Land where ``height`` is above 0, with a narrow or wide beach where it meets the water."""
    beach = flat(shades(view.soil(), 1.25)[0], wet)
    pixels = mix(wet, beach, step(height, 0.0, 0.06))
    return mix(pixels, land, step(height, view.between(0.01, 0.2), 0.06))


def _coast(view: View, share: float) -> Field:
    """A height that is above 0 on ``share`` of the scene, on one side of it."""
    along, _ = view.plane(view.between(0, 2 * np.pi))
    height = along + 0.35 * view.noise("smooth", zoom=1.6) + 0.08 * view.noise("rough", zoom=0.7)
    level: Field = height - np.quantile(height, 1 - share)
    return level


def _boats(view: View, pixels: Pixels) -> Pixels:
    pen = Pen(pixels)
    for _ in range(int(view.rng.integers(1, 5))):
        at, heading = view.rng.uniform(-0.9, 0.9, 2), view.between(0, 2 * np.pi)
        back = at - np.array([np.cos(heading), np.sin(heading)]) * view.between(0.05, 0.3)
        if view.chance(0.6):
            pen.line(np.array([at, back]), 0.012 * view.zoom, (176, 190, 196))
        pen.box(at, 0.05 * view.zoom, 0.018 * view.zoom, heading, (228, 226, 220))
    return pen.pixels()


def _crop(view: View) -> Colour:
    """The colour of one parcel at this time of the year."""
    kind = view.rng.random()
    if kind < 0.25 + 0.12 * max(0.0, view.season - 1):
        return view.soil()
    if kind < 0.45 + 0.2 * view.dryness:
        return view.tint((196, 172, 112), 22)
    if kind < 0.49 and view.season < 1:
        return view.tint((206, 196, 58), 16)
    r, g, b = view.green()
    bright = view.between(0.75, 1.4)
    return view.tint((r * bright, g * bright, b * bright), 16)


def _farm(view: View, pen: Pen, turn: float) -> None:
    at, count = view.rng.uniform(-0.8, 0.8, 2), int(view.rng.integers(2, 6))
    places = at + view.rng.normal(0, 0.09 * view.zoom, (count, 2))
    sizes = view.rng.uniform(0.05, 0.13, (count, 2)) * view.zoom
    roofs = view.among(((150, 84, 62), (132, 126, 120), (190, 188, 182)), count)
    shadow = view.shadow() * 0.03 * view.zoom
    pen.boxes(places, sizes[:, 0], sizes[:, 1], turn, roofs, shadow=shadow, gable=True)
    trees = at + view.rng.normal(0, 0.13 * view.zoom, (6, 2))
    pen.dots(trees, 0.02 * view.zoom, *shades(view.green(), 0.55))
