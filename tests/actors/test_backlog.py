"""The ledger, read ahead: every batch once, in its order, however it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import actors.backlog
from actors.backlog import Backlog
from actors.flights import Flight, Flights
from monitor.feed.plan import BatchSpec
from monitor.feed.source import FeedFile
from monitor.store import Store
from monitor.store.rows import Batch, File, FileStat


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "state") as store:
        yield store


def plan(store: Store, *files: str, batches: int = 3) -> list[int]:
    """Enter files of so many batches; returns the batches' numbers."""
    with store.transaction() as tx:
        found = tx.files.register([FileStat(name, 1, 1) for name in files]).new
        ranges = [(10 * number, 10) for number in range(batches)]
        return [b.id for file in found for b in tx.files.plan(file.id, 10 * batches, ranges)]


def hold(flights: Flights, taken: list[tuple[Batch, File]]) -> list[int]:
    for batch, file in taken:
        stat = FeedFile(file.path, file.size, file.mtime_ns)
        flights.add(Flight(batch, BatchSpec(stat, batch.first_row, batch.rows)))
    return [batch.id for batch, _ in taken]


@pytest.mark.parametrize("ahead", [1, 2, 100])
def test_every_batch_is_taken_once_in_order(
    ahead: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.backlog, "AHEAD", ahead)
    expected = plan(store, "a", "b", "c")
    flights = Flights()
    backlog = Backlog(store, flights)
    assert backlog.holds(9)
    assert not backlog.holds(10)
    taken: list[int] = []
    while found := backlog.take(2):
        assert [file.path for _, file in found] == ["abc"[(b.id - 1) // 3] for b, _ in found]
        taken += hold(flights, found)
    assert taken == expected


def test_the_ledger_is_asked_again_only_when_there_may_be_more(store: Store) -> None:
    flights = Flights()
    backlog = Backlog(store, flights)
    assert backlog.take(1) == []
    expected = plan(store, "a")
    assert backlog.take(1) == []
    backlog.look_again()
    assert hold(flights, backlog.take(5)) == expected


def test_what_is_in_hand_is_not_taken_twice(store: Store) -> None:
    first = plan(store, "a")
    flights = Flights()
    backlog = Backlog(store, flights)
    assert hold(flights, backlog.take(2)) == first[:2]
    second = plan(store, "b")
    backlog.look_again()
    assert hold(flights, backlog.take(10)) == first[2:] + second


def test_a_file_that_was_set_aside_is_forgotten(store: Store) -> None:
    plan(store, "a", batches=2)
    expected = plan(store, "b", batches=2)
    backlog = Backlog(store, Flights())
    assert backlog.holds(4)
    backlog.remove_file(1)
    assert [batch.id for batch, _ in backlog.take(4)] == expected
