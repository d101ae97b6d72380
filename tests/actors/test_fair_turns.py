"""Shares are kept while all have work, by what turns cost; nobody saves turns up."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from actors.fair_turns import FairTurns


class Hall:
    """Threads that take turns one after the other, and in which order they did."""

    def __init__(self, places: int = 1) -> None:
        self.turns = FairTurns(places)
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def queue(self, group: str, *, share: float, cost: float = 1.0, alone: bool = False) -> None:
        """One more that waits; the order of calls is the order of arrival."""
        before = len(self.turns._waiting)
        thread = threading.Thread(target=self._take, args=(group, share, cost, alone))
        thread.start()
        self._threads.append(thread)
        while len(self.turns._waiting) == before:
            time.sleep(0.001)

    def _take(self, group: str, share: float, cost: float, alone: bool) -> None:
        with self.turns.turn(group, share=share, cost=cost, alone=alone):
            self.order.append(group)

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join(10)
        return self.order


@pytest.mark.parametrize(("share", "cost"), [(3.0, 1.0), (1.0, 1 / 3), (6.0, 2.0)])
def test_turns_follow_shares_by_what_they_cost(share: float, cost: float) -> None:
    hall = Hall()
    with hall.turns.turn("first", share=1.0, cost=0.0):
        for _ in range(12):
            hall.queue("slow", share=1.0)
        for _ in range(12):
            hall.queue("quick", share=share, cost=cost)
    order = hall.join()
    assert Counter(order[:12]) == {"quick": 9, "slow": 3}


def test_who_was_away_has_saved_nothing_up() -> None:
    hall = Hall()
    for _ in range(20):
        with hall.turns.turn("busy", share=1.0, cost=1.0):
            pass
    with hall.turns.turn("busy", share=1.0, cost=1.0):
        for _ in range(6):
            hall.queue("late", share=1.0)
        for _ in range(6):
            hall.queue("busy", share=1.0)
    assert Counter(hall.join()[:6])["busy"] >= 2


def test_alone_means_that_nobody_else_runs() -> None:
    turns = FairTurns(places=3)
    beside: list[int] = []

    def take(alone: bool) -> None:
        with turns.turn("a", share=1.0, cost=1.0, alone=alone):
            if alone:
                beside.append(turns.running)
                time.sleep(0.02)
                beside.append(turns.running)

    threads = [threading.Thread(target=take, args=(number % 4 == 0,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert beside == [1] * 10
    assert turns.is_idle
