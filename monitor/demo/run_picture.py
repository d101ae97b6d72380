"""The picture of a run: how much of each source looked new, day by day, and what came of it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.ticker import PercentFormatter
from PIL import Image

from monitor.demo.image_source import Pictures
from monitor.demo.measure import ClassOutcome, DemoOutcome, Judgement
from monitor.demo.story import QUIET, SOURCES, START, Story
from monitor.store.verdict_columns import NEW

# Okabe and Ito's colours, distinct to every common kind of colour vision.
_COLOURS = dict(zip(SOURCES, ("#0072B2", "#D55E00", "#009E73"), strict=True))
_INK, _PALE = "#333333", "#888888"
_WIDTH, _HEIGHT, _DPI = 9.6, 4.9, 125
_THUMBNAIL = 52
"""Points of a side; wider ones would overlap where two classes arrive at once."""


def draw(outcome: DemoOutcome, story: Story, pictures: Pictures, path: Path, *, title: str) -> None:
    """Write the picture as a PNG."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    shares = {source: _by_day(source, outcome.judgements, story) for source in SOURCES}
    settled = {
        source: _by_day(source, outcome.judgements, story, settled=True) for source in SOURCES
    }
    top = min(1.0, 1.3 * max([0.3, *(max(days.values(), default=0) for days in shares.values())]))
    axes.set_ylim(0, top)
    axes.set_xlim(_number(START) - 0.5, _number(START) + story.days)
    _lens(axes, story)
    for source, days in shares.items():
        _settled(axes, source, settled[source])
        _source(axes, source, days)
    new = [c for c in outcome.classes if c.arrived_at is not None]
    for found, shift in zip(new, _shifts(new, story), strict=True):
        _class(axes, found, shift, story, pictures)
    for found in {c.version: c for c in new if c.found_at}.values():
        _version(axes, found)
    axes.set_title(title, fontsize=11, loc="left", color=_INK, pad=94)
    axes.set_ylabel("images called novel at once, by day")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ticks = [START + timedelta(days=day) for day in range(0, story.days, max(1, story.days // 8))]
    axes.set_xticks([_number(day) for day in ticks], [f"{day:%-d %b}" for day in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.plot([], [], "^", color=_PALE, markersize=7, label="a new class appears")
    axes.bar([_number(START)], [0.0], color=_PALE, alpha=0.3, label="settled as new")
    axes.plot([], [], ":", color=_PALE, label="a detector that knows it is in use")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), frameon=False, fontsize=8, ncols=6)
    _save(figure, path)


def describe(outcome: DemoOutcome) -> str:
    """The picture in words, for those who cannot see it."""
    told = [
        f"{c.label} appears on {c.arrived_at:%-d %B} and "
        + (f"is learnt on {c.found_at:%-d %B}" if c.found_at else "is not learnt")
        for c in outcome.classes
        if c.arrived_at is not None
    ]
    what = "Share of images called novel at once and settled as new, by source and day"
    return f"{what}. {'; '.join(told)}."


def _lens(axes: Axes, story: Story) -> None:
    first = START + timedelta(days=story.lens.first_day)
    last = START + timedelta(days=story.lens.last_day, hours=12)
    axes.axvspan(_number(first), _number(last), color="#8C6D1F", alpha=0.13, linewidth=0)
    axes.annotate(
        f"dirty lens\nat {story.lens.source}",
        (_number(first + (last - first) / 2), 0.98),
        xycoords=axes.get_xaxis_transform(),
        ha="center",
        va="top",
        fontsize=8,
        color="#6b5214",
    )


def _by_day(
    source: str, judgements: Sequence[Judgement], story: Story, *, settled: bool = False
) -> dict[int, float]:
    """The share called novel at once or, with ``settled``, settled as new."""
    days: dict[int, list[bool]] = {}
    for judgement in judgements:
        if judgement.source == source:
            is_new = judgement.settled == NEW if settled else judgement.novel
            days.setdefault(story.day_of(judgement.captured_at), []).append(is_new)
    return {day: sum(new) / len(new) for day, new in sorted(days.items())}


def _settled(axes: Axes, source: str, days: Mapping[int, float]) -> None:
    if any(days.values()):
        axes.bar(
            [_number(START + timedelta(days=day, hours=6)) for day in days],
            list(days.values()),
            width=0.9,
            color=_COLOURS[source],
            alpha=0.22,
            linewidth=0,
        )


def _source(axes: Axes, source: str, days: Mapping[int, float]) -> None:
    axes.plot(
        [_number(START + timedelta(days=day, hours=6)) for day in days],
        list(days.values()),
        color=_COLOURS[source],
        label=f"{source} (nothing new)" if source == QUIET else source,
        linewidth=1.4 if source == QUIET else 2.0,
        linestyle="--" if source == QUIET else "-",
        marker="o",
        markersize=3,
    )


def _version(axes: Axes, found: ClassOutcome) -> None:
    assert found.found_at is not None
    place = _number(found.found_at)
    axes.axvline(place, color=_PALE, linewidth=1.2, linestyle=":", zorder=1)
    axes.annotate(
        f"v{found.version}",
        (place, 0.98),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, 0),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color=_INK,
    )


def _class(axes: Axes, found: ClassOutcome, shift: float, story: Story, pictures: Pictures) -> None:
    assert found.arrived_at is not None
    [source] = [arrival.source for arrival in story.arrivals if arrival.label == found.label]
    colour = _COLOURS[source]
    # Two that arrive on the same day stand side by side.
    aside = -0.2 if source == SOURCES[0] else 0.2
    axes.plot(
        [_number(found.arrived_at) + aside],
        [0.0],
        marker="^",
        color=colour,
        markersize=8,
        clip_on=False,
    )
    when = found.found_at or found.arrived_at
    pixels = Image.open(io.BytesIO(pictures.of(found.label, 0))).convert("RGB")
    side = min(pixels.size)
    small = pixels.crop((0, 0, side, side)).resize((128, 128), Image.Resampling.LANCZOS)
    place = _number(when + timedelta(days=shift))
    picture = OffsetImage(np.asarray(small), zoom=_THUMBNAIL / 128)
    axes.add_artist(
        AnnotationBbox(
            picture,
            (place, 1.0),
            xybox=(0, 34),
            xycoords=axes.get_xaxis_transform(),
            boxcoords="offset points",
            pad=0.12,
            bboxprops={"edgecolor": colour, "linewidth": 1.6},
            annotation_clip=False,
        )
    )
    said = f"{found.label}\n" + (
        f"learnt, {found.answers} answers" if found.found_at else "not learnt"
    )
    axes.annotate(
        said,
        (place, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 64),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7.5,
        color=_INK,
        annotation_clip=False,
    )


def _shifts(found: Sequence[ClassOutcome], story: Story) -> list[float]:
    """How many days to move each thumbnail aside, so that none covers another."""
    # A thumbnail with its caption is about this wide on an axis of so many days.
    wide = story.days * 0.125
    places = [_number(c.found_at or c.arrived_at or START) for c in found]
    order = sorted(range(len(found)), key=lambda i: places[i])
    moved = list(places)
    for _ in range(20):
        for left, right in pairwise(order):
            gap = moved[right] - moved[left]
            if gap < wide:
                moved[left] -= (wide - gap) / 2
                moved[right] += (wide - gap) / 2
    return [now - before for now, before in zip(moved, places, strict=True)]


def _save(figure: Figure, path: Path) -> None:
    """With at most 256 colours: a third of the size, and nobody sees the difference."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def _number(moment: datetime) -> float:
    return float(dates.date2num(moment))  # type: ignore[no-untyped-call]
