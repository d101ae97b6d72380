"""Tells a clock that jumps from time that passes, so that a jump ends nothing by its age.

A pool closes when it is old, a round of questions ends when its time is over, and what is old is
forgotten: all of that for good. A clock that was set wrongly is mostly set right soon. So after a
jump no age counts for a while; then the clock is believed, as after the first start of a machine
whose battery was empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

#: What an age of hours or days does not notice; a reading may be late by minutes, too.
JUMP = timedelta(minutes=30)
#: Whoever runs a machine sees within this time that its clock is wrong.
DOUBT_SECONDS = 3600.0


def _since_boot() -> float:
    """Seconds that nobody can set; unlike ``monotonic`` it counts a machine's sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatch:
    """Compares a clock with one that nobody can set.

    >>> from datetime import UTC
    >>> noon, seconds = datetime(2026, 1, 1, 12, tzinfo=UTC), [0.0]
    >>> watch = ClockWatch(steady=lambda: seconds[0])
    >>> watch.is_right(noon), watch.is_right(noon + timedelta(days=1)), watch.latest_jump()
    (True, False, datetime.timedelta(days=1))
    >>> watch.is_right(noon), watch.latest_jump()
    (True, None)
    """

    def __init__(self, *, steady: Callable[[], float] = _since_boot) -> None:
        self._steady = steady
        self._origin: datetime | None = None
        """What the clock showed when the steady one began, if neither of them jumped."""
        self._doubtful_until: float | None = None
        self._jump: timedelta | None = None

    def is_right(self, now: datetime) -> bool:
        """Take a reading; whether ages by this clock are to be believed."""
        steady = self._steady()
        origin = now - timedelta(seconds=steady)
        off = timedelta() if self._origin is None else origin - self._origin
        is_over = self._doubtful_until is not None and steady >= self._doubtful_until
        if abs(off) < JUMP or is_over:
            # A clock that is a little wrong is corrected little by little.
            self._origin, self._doubtful_until = origin, None
            return True
        if self._doubtful_until is None:
            self._doubtful_until, self._jump = steady + DOUBT_SECONDS, off
        return False

    def latest_jump(self) -> timedelta | None:
        """By how much the clock has jumped, once after each jump."""
        found, self._jump = self._jump, None
        return found
