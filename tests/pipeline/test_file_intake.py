"""From a listing to the ledger: what is new is planned once, what is bad is quarantined."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from monitor.feed.errors import SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns
from monitor.pipeline.file_intake import FileIntake
from monitor.store import Store
from monitor.store.errors import LeaseLost
from monitor.store.record_states import FileState
from monitor.store.records import Batch, Lease
from tests.jobs.feeds import write_feed
from tests.pipeline.world import Clock

KINDS = ["water", "forest"] * 10


class Feed:
    """A folder of files, a store, and what takes the files in."""

    def __init__(self, folder: Path, lease: Lease | None = None) -> None:
        self.folder = folder / "feed"
        self.folder.mkdir()
        self.clock = Clock()
        self.clock.now = datetime.now(UTC)
        self.store = Store.open(folder / "state", clock=self.clock)
        self.source = FeedStorage.at(self.folder)
        self.intake = self.fresh_intake(lease)

    def fresh_intake(self, lease: Lease | None = None) -> FileIntake:
        return FileIntake(self.store, self.source, Columns(), rows=8, lease=lease)

    def write(self, name: str, first: int = 0) -> Path:
        return write_feed(self.folder / name, KINDS, first_id=first)

    def enter(self) -> int:
        return self.intake.register(self.source.list()).new

    def batches(self) -> list[Batch]:
        with self.store.reading() as tx:
            return tx.batches.pending(1000)

    def states(self) -> dict[str, FileState]:
        with self.store.reading() as tx:
            found = [file for state in FileState for file in tx.files.in_state(state)]
        return {file.path: file.state for file in found}


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(tmp_path)
    yield made
    made.store.close()


def test_a_new_file_is_entered_and_cut_into_batches(feed: Feed) -> None:
    feed.write("a.parquet")
    assert feed.enter() == 1
    assert feed.batches() == []
    assert feed.intake.plan().batches == 3
    assert [batch.rows for batch in feed.batches()] == [6, 7, 7]
    assert feed.states() == {"a.parquet": FileState.PLANNED}


def test_a_listing_that_is_repeated_brings_nothing(feed: Feed) -> None:
    feed.write("a.parquet")
    assert (feed.enter(), feed.enter()) == (1, 0)
    feed.intake.plan()
    assert feed.intake.plan().batches == 0
    assert len(feed.batches()) == 3


def test_after_a_restart_the_ledger_knows_what_was_there(feed: Feed) -> None:
    feed.write("a.parquet")
    feed.enter()
    feed.intake.plan()
    feed.intake = feed.fresh_intake()
    assert feed.enter() == 0
    assert feed.intake.plan().batches == 0


def test_some_files_say_nothing_about_the_others(feed: Feed) -> None:
    feed.write("a.parquet")
    feed.enter()
    feed.write("b.parquet", 100)
    later = [file for file in feed.source.list() if file.path == "b.parquet"]
    assert feed.intake.register(later, whole=False).new == 1
    assert feed.intake.register(feed.source.list()).new == 0


def test_a_file_that_changed_is_reported(feed: Feed) -> None:
    path = feed.write("a.parquet")
    feed.enter()
    feed.intake.plan()
    write_feed(path, KINDS * 2, first_id=500)
    (problem,) = feed.intake.register(feed.source.list()).problems
    assert "a.parquet" in problem
    assert "was replaced before it was read" in problem
    with feed.store.reading() as tx:
        assert [event.kind for event in tx.events.after()] == ["file.replaced"]


def test_a_file_that_is_still_written_is_waited_for(feed: Feed) -> None:
    whole = feed.write("a.parquet").read_bytes()
    (feed.folder / "a.parquet").write_bytes(whole[: len(whole) // 2])
    feed.enter()
    assert feed.intake.plan().problems == ()
    assert feed.intake.unfinished == 1
    assert feed.states() == {"a.parquet": FileState.NEW}
    (feed.folder / "a.parquet").write_bytes(whole)
    feed.intake.register(feed.source.list())
    assert feed.intake.plan().batches == 3
    assert feed.intake.unfinished == 0


def test_a_file_that_is_never_finished_is_quarantined(feed: Feed) -> None:
    (feed.folder / "a.parquet").write_bytes(b"PAR1 and no more")
    feed.enter()
    feed.intake.plan()
    feed.clock.advance(days=2)
    (problem,) = feed.intake.plan().problems
    assert "a.parquet" in problem
    assert feed.states() == {"a.parquet": FileState.QUARANTINED}
    assert feed.intake.unfinished == 0


def test_a_file_without_the_columns_is_quarantined_at_once(feed: Feed) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), feed.folder / "a.parquet")
    feed.write("b.parquet")
    feed.enter()
    found = feed.intake.plan()
    assert found.batches == 3
    assert len(found.problems) == 1
    assert feed.states()["a.parquet"] is FileState.QUARANTINED
    with feed.store.reading() as tx:
        (event,) = tx.events.after()
    assert (event.kind, event.payload["file"]) == ("file.quarantined", "a.parquet")


def test_unfinished_files_keep_nobody_waiting(feed: Feed) -> None:
    (feed.folder / "a.parquet").write_bytes(b"PAR1 and no more")
    feed.enter()
    feed.intake.plan()
    feed.write("b.parquet")
    feed.enter()
    assert feed.intake.plan().batches == 3
    assert feed.intake.plan(final=True).batches == 0, "at the end it is not waited for"


def test_only_the_holder_of_the_lease_takes_files_in(feed: Feed) -> None:
    lease = feed.store.acquire_lease("coordinator", "first", timedelta(seconds=30))
    feed.clock.advance(seconds=31)
    feed.store.acquire_lease("coordinator", "second", timedelta(seconds=30))
    feed.intake = feed.fresh_intake(lease)
    feed.write("a.parquet")
    with pytest.raises(LeaseLost):
        feed.enter()
    assert feed.states() == {}


def test_files_keep_their_order_through_an_outage(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        feed.write(f"{number}.parquet", first=100 * number)
    feed.enter()
    opened = FeedStorage.open

    def away(storage: FeedStorage, path: str) -> Any:
        if path == "1.parquet":
            raise SourceUnavailable("the bucket did not answer")
        return opened(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(FeedStorage, "open", away)
        found = feed.intake.plan()
        assert found.outage is not None
        assert {batch.file_id for batch in feed.batches()} == {1}, "what follows waits for it"
        assert feed.intake.plan(final=True).outage is not None, "it is not forgotten at the end"
    assert feed.intake.plan().outage is None
    assert [batch.file_id for batch in feed.batches()] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_file_that_alone_stays_away_does_not_stop_the_feed(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        feed.write(f"{number}.parquet", first=100 * number)
    feed.enter()
    opened = FeedStorage.open

    def away(storage: FeedStorage, path: str) -> Any:
        if path == "1.parquet":
            raise SourceUnavailable("permission denied")
        return opened(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(FeedStorage, "open", away)
        feed.intake.plan()
        feed.clock.now += timedelta(minutes=3)
        feed.intake.plan()
    assert {batch.file_id for batch in feed.batches()} == {1, 3}
    assert feed.intake.plan().batches
    assert {batch.file_id for batch in feed.batches()} == {1, 2, 3}


def test_a_file_that_nobody_may_read_is_set_aside_once_others_are_read(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while everything is away, however long that takes."""
    feed.write("1.parquet")
    feed.enter()
    opened, everything = FeedStorage.open, [True]

    def away(storage: FeedStorage, path: str) -> Any:
        if everything[0] or path == "1.parquet":
            raise SourceUnavailable("permission denied")
        return opened(storage, path)

    monkeypatch.setattr(FeedStorage, "open", away)
    feed.write("2.parquet", first=100)
    feed.enter()
    for _ in range(3):
        assert feed.intake.plan().problems == ()
        feed.clock.now += timedelta(hours=1)
    everything[0] = False
    assert feed.intake.plan().batches, "the second file"
    feed.clock.now += timedelta(minutes=1)
    feed.write("3.parquet", first=200)
    feed.enter()
    said = [*feed.intake.plan().problems, *feed.intake.plan().problems]
    assert said == ["permission denied"]
    assert feed.states()["1.parquet"] is FileState.QUARANTINED
    assert {batch.file_id for batch in feed.batches()} == {2, 3}
