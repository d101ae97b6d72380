"""Files are seen once, planned once, finished once; what changes is never silently re-read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.engine import Engine

from monitor.store import Store
from monitor.store.errors import NotFound, WrongState
from monitor.store.ledger import FilePlan, unread
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import FileStat
from tests.store.building import commit_batch, plan_feed, scored


def stat(
    path: str = "a", size: int = 10, mtime: int | None = 1, digest: str | None = None
) -> FileStat:
    return FileStat(path, size, mtime, digest)


def test_a_listing_is_compared_with_what_is_known(store: Store) -> None:
    with store.transaction() as tx:
        first = tx.files.register([stat("a"), stat("b"), stat("a")])
        assert [file.path for file in first.new] == ["a", "b"]
        second = tx.files.register([stat("a"), stat("b"), stat("c")])
        assert [file.path for file in second.new] == ["c"]
        assert second.unchanged == 2
        assert [f.path for f in tx.files.in_state(FileState.NEW, after=1)] == ["b", "c"]


NOW = [
    (stat(size=11), "other"),
    (stat(mtime=2), "unsure"),
    (stat(mtime=2, digest="x"), "same"),
    (stat(mtime=2, digest="y"), "other"),
    (stat(digest="x"), "same"),
]


@pytest.mark.parametrize(("now", "is_"), NOW)
def test_a_file_that_was_read_must_not_change(store: Store, now: FileStat, is_: str) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        first, _ = tx.files.plan_many([FilePlan(file.id, 8, ((0, 4), (4, 4)), "x")])
    commit_batch(store, scored(first))
    with store.transaction() as tx:
        listing = tx.files.register([now])
        assert bool(listing.changed) is (is_ == "other")
        assert bool(listing.unsure) is (is_ == "unsure")
        assert bool(listing.unchanged) is (is_ == "same")
        states = [batch.state for batch in tx.batches.of_file(file.id)]
        rest = BatchState.QUARANTINED if is_ == "other" else BatchState.PENDING
        assert states == [BatchState.DONE, rest]
        expected = FileState.CHANGED if is_ == "other" else FileState.PLANNED
        assert tx.files.get(file.id).state is expected


@pytest.mark.parametrize(("now", "is_"), NOW)
def test_what_has_not_been_read_is_planned_again(store: Store, now: FileStat, is_: str) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        tx.files.plan_many([FilePlan(file.id, 8, ((0, 4), (4, 4)), "x")])
        listing = tx.files.register([now])
        assert [f.id for f in listing.replaced] == ([file.id] if is_ == "other" else [])
        if is_ != "other":
            assert tx.counts.pending_batches() == 2
            return
        assert tx.counts.pending_batches() == 0
        tx.files.plan_many([FilePlan(file.id, 6, ((0, 3), (3, 3)), "y")])
        assert [(b.first_row, b.rows) for b in tx.batches.of_file(file.id)] == [(0, 3), (3, 3)]


def test_a_touched_file_is_looked_at_once(store: Store) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        tx.files.plan_many([FilePlan(file.id, 4, ((0, 4),), "x")])
        assert tx.files.register([stat(mtime=2, digest="x")]).unchanged == 1
        assert tx.files.register([stat(mtime=2)]).unchanged == 1


@pytest.mark.parametrize("planned", [True, False])
def test_a_gone_file_goes_on_when_it_returns(store: Store, planned: bool) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        if planned:
            tx.files.plan_many([FilePlan(file.id, 8, ((0, 4), (4, 4)), "x")])
        tx.files.quarantine(file.id, "gone", gone=True)
        assert tx.counts.pending_batches() == 0
        assert [f.id for f in tx.files.register([stat()]).returned] == [file.id]
        assert tx.counts.pending_batches() == (2 if planned else 0)
        assert tx.files.get(file.id).state is (FileState.PLANNED if planned else FileState.NEW)


def test_a_batch_can_be_halved_until_one_row_is_left(store: Store) -> None:
    (batch,) = plan_feed(store, rows=5, size=5)
    with store.transaction() as tx:
        first, second = tx.batches.split(batch.id)
        assert [(b.first_row, b.rows) for b in tx.batches.pending(9)] == [(0, 2), (2, 3)]
        one, _ = tx.batches.split(first.id)
        assert (one.id, one.rows) == (batch.id, 1)
    with pytest.raises(WrongState), store.transaction() as tx:
        tx.batches.split(one.id)
    commit_batch(store, scored(replace(second, rows=3)))
    with pytest.raises(WrongState), store.transaction() as tx:
        tx.batches.split(second.id)


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=5)


@given(whole=st.tuples(st.integers(0, 30), st.integers(1, 30)), read=ranges)
def test_unread_rows_are_those_that_nobody_read(
    whole: tuple[int, int], read: list[tuple[int, int]]
) -> None:
    covered = {row for first, count in read for row in range(first, first + count)}
    left = [
        row for first, count in unread(whole, sorted(read)) for row in range(first, first + count)
    ]
    assert left == [row for row in range(whole[0], sum(whole)) if row not in covered]


def test_a_file_that_grows_before_it_is_read_is_simply_newer(store: Store) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        tx.files.quarantine(file.id, "no footer after 5 tries")
        assert tx.files.register([stat(size=99)]).changed == ()
        again = tx.files.get(file.id)
        assert (again.state, again.size, again.tries) == (FileState.NEW, 99, 0)


def test_a_file_is_planned_once(store: Store) -> None:
    batches = plan_feed(store, rows=10, size=4)
    assert [(b.first_row, b.rows) for b in batches] == [(0, 4), (4, 4), (8, 2)]
    with pytest.raises(WrongState, match="is planned, only a new file"), store.transaction() as tx:
        tx.files.plan(1, 10, [(0, 10)])


def test_many_files_are_planned_at_once(store: Store) -> None:
    with store.transaction() as tx:
        listed = tx.files.register(stat(f"feed/{number}") for number in range(1200)).new
        plans = [FilePlan(file.id, 8, ((0, 4), (4, 4))) for file in listed]
        planned = tx.files.plan_many([*plans[:-1], FilePlan(listed[-1].id, 0, ())])
        assert [batch.id for batch in planned] == list(range(1, 2399))
        assert planned[2] == tx.batches.get(3)
        assert tx.counts.files_by_state() == {FileState.PLANNED: 1199, FileState.DONE: 1}
        assert tx.files.plan_many([]) == []
    with pytest.raises(NotFound, match="file 9999"), store.transaction() as tx:
        tx.files.plan_many([FilePlan(9999, 1, ((0, 1),))])


def test_a_file_without_rows_is_done_at_once(store: Store) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([stat()]).new
        assert tx.files.plan(file.id, 0, []) == []
        assert tx.files.get(file.id).state is FileState.DONE


def test_work_comes_in_feed_order(store: Store) -> None:
    plan_feed(store, "a", rows=8)
    plan_feed(store, "b", rows=8)
    with store.reading() as tx:
        assert [b.id for b in tx.batches.pending(3)] == [1, 2, 3]
        assert [b.id for b in tx.batches.pending(9)] == [1, 2, 3, 4]
        assert tx.counts.pending_batches() == 4


def test_a_poisoned_batch_is_given_up_and_its_file_still_ends(store: Store) -> None:
    good, bad = plan_feed(store, rows=8)
    commit_batch(store, scored(good))
    with store.transaction() as tx:
        tx.batches.start([bad.id])
        tx.batches.start([bad.id])
        assert tx.batches.get(bad.id).tries == 2
        tx.batches.quarantine(bad.id, "killed its worker 2 times")
        assert tx.files.get(bad.file_id).state is FileState.DONE
    with pytest.raises(WrongState, match="is committed"), store.transaction() as tx:
        tx.batches.quarantine(good.id, "too late")


def test_a_quarantined_file_takes_its_unfinished_batches_along(store: Store) -> None:
    done, _ = plan_feed(store, rows=8)
    commit_batch(store, scored(done))
    with store.transaction() as tx:
        tx.files.quarantine(done.file_id, "unreadable")
        states = [batch.state for batch in tx.batches.of_file(done.file_id)]
        assert states == [BatchState.DONE, BatchState.QUARANTINED]
        assert tx.counts.files_by_state() == {FileState.QUARANTINED: 1}


def test_a_batch_that_was_never_planned(store: Store) -> None:
    with pytest.raises(NotFound, match="batch 5"), store.reading() as tx:
        tx.batches.get(5)
    with pytest.raises(NotFound, match="file 5"), store.reading() as tx:
        tx.files.get(5)


def test_the_cost_of_a_batch_does_not_grow(store: Store) -> None:
    """The same number of statements for the 2nd and for the 60th batch, and none scans."""
    statements: list[str] = []

    def note(_c: object, _k: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    batches = plan_feed(store, rows=240)
    engine: Engine = store.database._engine
    event.listen(engine, "before_cursor_execute", note)
    counts = []
    for batch in batches:
        statements.clear()
        commit_batch(store, scored(batch))
        counts.append(len(statements))
    event.remove(engine, "before_cursor_execute", note)
    # The last one also marks the file as done, with the same statement as all the others.
    assert set(counts[1:]) == {counts[1]}
    if store.database.is_sqlite:
        with store.database.read() as connection:
            plans = [
                str(row)
                for statement in statements
                if statement.startswith(("SELECT", "UPDATE"))
                for row in connection.exec_driver_sql(
                    f"EXPLAIN QUERY PLAN {statement}", tuple([b"1"] * statement.count("?"))
                )
            ]
        scans = [plan for plan in plans if "SCAN" in plan and "USING" not in plan]
        assert scans == []
