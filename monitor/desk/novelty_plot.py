"""A small plot as SVG: the share of novel images over time, with what happened marked on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from monitor.desk.novelty_activity import POINTS, Series

WIDTH, HEIGHT = 640, 134
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 22, 24
LEAST_TOP = 0.1
"""The scale never ends below ten percent: noise of a quiet source must not look like a storm."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The moment from which on a detector version judged, and why there is one."""

    at: datetime
    version: int
    why: str


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    at: datetime
    words: str


@dataclass(frozen=True, slots=True)
class NoveltyPlot:
    """Numbers for the template, which holds all of the markup."""

    source: str
    bars: tuple[Bar, ...]
    marks: tuple[tuple[float, Mark], ...]
    top: float
    expected: float
    """Where the line of what chance explains lies, from above."""
    first: datetime
    last: datetime
    words: str
    """The same in a sentence, for those who cannot see it."""


def draw_all(series: Sequence[Series], marks: Sequence[Mark], expected: float) -> list[NoveltyPlot]:
    """A plot for each source, all on one scale of shares and of time."""
    if not series:
        return []
    points = [point for one in series for point in one.points]
    top = max(LEAST_TOP, max(point.share for point in points))
    first, last = min(point.at for point in points), max(point.at for point in points)
    return [draw(one, marks, top=top, first=first, last=last, expected=expected) for one in series]


def draw(
    series: Series,
    marks: Sequence[Mark],
    *,
    top: float,
    first: datetime,
    last: datetime,
    expected: float,
) -> NoveltyPlot:
    """Bars of one source; marks outside the time that is shown are left out."""
    span = max(1.0, (last - first).total_seconds())
    step = (WIDTH - LEFT - RIGHT) / POINTS
    width = max(2.0, min(step * 0.8, 28.0))
    inner = WIDTH - LEFT - RIGHT - width

    def across(at: datetime) -> float:
        return LEFT + inner * (at - first).total_seconds() / span

    bars = []
    for point in series.points:
        height = (HEIGHT - TOP - BOTTOM) * point.share / top
        bars.append(
            Bar(
                x=round(across(point.at), 1),
                # A sliver where nothing was novel, so that "nothing" differs from "no images".
                y=round(HEIGHT - BOTTOM - max(height, 1.0), 1),
                width=round(width, 1),
                height=round(max(height, 1.0), 1),
                at=point.at,
                words=f"{point.novel:,} of {point.known + point.novel:,} look new "
                f"({point.share:.1%})",
            )
        )
    shown = tuple(
        (round(across(mark.at) + width / 2, 1), mark) for mark in marks if first <= mark.at <= last
    )
    words = (
        f"{series.source}: {series.novel:,} of {series.images:,} images looked new between "
        f"{first:%d %b %Y %H:%M} and {last:%d %b %Y %H:%M} UTC"
    )
    line = round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(expected, top) / top, 1)
    return NoveltyPlot(series.source, tuple(bars), shown, top, line, first, last, words)
