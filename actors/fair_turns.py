"""Fair turns of groups at what they share, such as an embedder: each gets its share of time.

Every group has a clock of its own that runs by what it was given, divided by its share; the one
whose clock is furthest behind is next. A group that had nothing to do does not save its turns up:
its clock starts again where the others are.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count


@dataclass(order=True, slots=True)
class _Waiting:
    """Somebody who waits for a turn; the least goes first."""

    starts: float
    number: int
    alone: bool = field(compare=False)
    admitted: threading.Event = field(compare=False, default_factory=threading.Event)


class FairTurns:
    """So many turns at a time, in the order of shares. For many threads.

    >>> turns = FairTurns(places=1)
    >>> with turns.turn("harbour", share=2.0, cost=32):
    ...     turns.running
    1
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._numbers = count()
        self._clock = 0.0
        self._clocks: dict[str, float] = {}
        self._is_alone = False
        self.running = 0

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self.running and not self._waiting

    @contextmanager
    def turn(self, group: str, *, share: float, cost: float, alone: bool = False) -> Iterator[None]:
        """Wait for a turn that costs so much; ``alone`` lets nobody else have one meanwhile."""
        with self._lock:
            starts = max(self._clock, self._clocks.get(group, 0.0))
            self._clocks[group] = starts + cost / share
            mine = _Waiting(starts, next(self._numbers), alone)
            heapq.heappush(self._waiting, mine)
            self._admit()
        mine.admitted.wait()
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
                self._is_alone = False
                self._admit()

    def _admit(self) -> None:
        while self._waiting and self.running < self._places and not self._is_alone:
            if self._waiting[0].alone and self.running:
                return
            first = heapq.heappop(self._waiting)
            self._clock = first.starts
            self.running += 1
            self._is_alone = first.alone
            first.admitted.set()
