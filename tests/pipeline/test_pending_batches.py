"""The ledger, read ahead: every batch once, in its order, however it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import monitor.pipeline.file_intake
from actors.batches_in_flight import BatchesInFlight, BatchInFlight
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.feed_storage import FeedFile
from monitor.pipeline.file_intake import PendingBatches
from monitor.store import Store
from monitor.store.records import Batch, FileRow, FileStat


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


def hold(in_flight: BatchesInFlight, taken: list[tuple[Batch, FileRow]]) -> list[int]:
    for batch, file in taken:
        stat = FeedFile(file.path, file.size, file.mtime_ns)
        in_flight.add(BatchInFlight(batch, PlannedBatch(stat, batch.first_row, batch.rows)))
    return [batch.id for batch, _ in taken]


@pytest.mark.parametrize("ahead", [1, 2, 100])
def test_every_batch_is_taken_once_in_order(
    ahead: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor.pipeline.file_intake, "READ_AHEAD", ahead)
    expected = plan(store, "a", "b", "c")
    in_flight = BatchesInFlight()
    pending = PendingBatches(store, under_way=in_flight.ids)
    assert pending.has(9)
    assert not pending.has(10)
    taken: list[int] = []
    while found := pending.take(2):
        assert [file.path for _, file in found] == ["abc"[(b.id - 1) // 3] for b, _ in found]
        taken += hold(in_flight, found)
    assert taken == expected


def test_the_ledger_is_asked_again_only_when_there_may_be_more(store: Store) -> None:
    in_flight = BatchesInFlight()
    pending = PendingBatches(store, under_way=in_flight.ids)
    assert pending.take(1) == []
    expected = plan(store, "a")
    assert pending.take(1) == []
    pending.read_again()
    assert hold(in_flight, pending.take(5)) == expected


def test_what_is_in_hand_is_not_taken_twice(store: Store) -> None:
    first = plan(store, "a")
    in_flight = BatchesInFlight()
    pending = PendingBatches(store, under_way=in_flight.ids)
    assert hold(in_flight, pending.take(2)) == first[:2]
    second = plan(store, "b")
    pending.read_again()
    assert hold(in_flight, pending.take(10)) == first[2:] + second


def test_a_file_that_was_quarantined_is_forgotten(store: Store) -> None:
    plan(store, "a", batches=2)
    expected = plan(store, "b", batches=2)
    pending = PendingBatches(store, under_way=())
    assert pending.has(4)
    pending.remove_file(1)
    assert [batch.id for batch, _ in pending.take(4)] == expected
