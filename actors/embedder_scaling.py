"""How many embedders: enough to catch up with the feed in time, and no more than have work.

A feed comes in bursts: a site that was offline sends its whole day at once. The number follows
what waits, quickly up and slowly down, because a machine with a backbone takes minutes to come
and a batch of images costs the same whoever embeds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: The pace is that of the last minute: longer than a batch takes, shorter than day and night.
PACE_SECONDS = 60.0
#: Of those who stay this share may be at work on average; more, and the next burst waits.
FULL = 0.7


@dataclass(frozen=True, slots=True)
class Bounds:
    """How few and how many embedders there may be, and how patient to be with both."""

    least: int
    most: int
    lag_seconds: float
    """What waits should be embedded within this time."""
    idle_seconds: float
    """Embedders that were not needed for this long are let go."""


@dataclass(frozen=True, slots=True)
class FeedLoad:
    """What is seen at one moment; ``done`` and ``worked`` count from the start of the run."""

    at: float
    waiting: int
    """Batches that nobody has embedded yet."""
    done: int
    worked: float
    """Seconds for which embedders had work in hand, all of them together."""


def wanted_embedders(bounds: Bounds, running: int, loads: Sequence[FeedLoad]) -> int:
    """How many embedders there should be now, from what was seen so far, oldest first.

    Ten seconds of work for each of a hundred batches, to be done in a hundred seconds:

    >>> bounds = Bounds(least=1, most=20, lag_seconds=100, idle_seconds=300)
    >>> wanted_embedders(bounds, 1, [FeedLoad(0, 0, 0, 0.0), FeedLoad(10, 100, 1, 10.0)])
    10
    """
    last, pace = loads[-1], _pace(loads)
    window = [load for load in loads if last.at - load.at <= bounds.idle_seconds]
    if pace is None:
        if any(load.waiting for load in window):
            return _within(bounds, running)
        pace = 0.0
    need = _needed(bounds, last, pace)
    # Unless something is older than the window, it is too early to call anybody idle.
    if need >= running or len(window) == len(loads):
        return _within(bounds, max(need, running))
    at_work = (last.worked - window[0].worked) / max(last.at - window[0].at, 1.0)
    peak = max(_needed(bounds, load, pace) for load in window)
    return _within(bounds, min(running, max(peak, math.ceil(at_work / FULL))))


def _needed(bounds: Bounds, load: FeedLoad, pace: float) -> int:
    return math.ceil(load.waiting * pace / bounds.lag_seconds)


def _pace(loads: Sequence[FeedLoad]) -> float | None:
    """Seconds of an embedder's time for one batch; unknown before the first is done."""
    last = loads[-1]
    since = next(load for load in loads if last.at - load.at <= PACE_SECONDS)
    if since.done == last.done:
        since = loads[0]
    done = last.done - since.done
    return (last.worked - since.worked) / done if done else None


def _within(bounds: Bounds, number: int) -> int:
    return max(bounds.least, min(number, bounds.most))


class Scaler:
    """Remembers what was seen for as long as it matters."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._loads: list[FeedLoad] = []

    def wanted(self, load: FeedLoad, running: int) -> int:
        """How many embedders there should be at this load."""
        self._loads.append(load)
        kept = max(self._bounds.idle_seconds, PACE_SECONDS)
        # One that is older than the window stays: it shows that the window is full.
        while len(self._loads) > 1 and load.at - self._loads[1].at > kept:
            del self._loads[0]
        return wanted_embedders(self._bounds, running, self._loads)
