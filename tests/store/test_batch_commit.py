"""A batch is committed once, whole, whatever happens around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.store import Store, check
from monitor.store.errors import BatchMismatch, LeaseLost, TableMismatch, WrongState
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import Count
from monitor.store.verdict_columns import current, feature_matrix, read_table
from tests.store.building import commit_batch, dump, plan_feed, scored, verdict_ids
from tests.store.conftest import Clock, Place


def test_everything_moves_together(store: Store) -> None:
    first, second, third = plan_feed(store)
    with store.transaction() as tx:
        pool = tx.pools.open()
    for batch in (first, second, third):
        assert not commit_batch(store, scored(batch, rejected=1, pool=pool.id)).already

    with store.reading() as tx:
        done = tx.batches.get(first.id)
        assert (done.state, done.known, done.novel, done.rejected) == (BatchState.DONE, 2, 1, 1)
        assert tx.files.get(first.file_id).state is FileState.DONE
        filled = tx.pools.get(pool.id)
        assert (filled.size, filled.above) == (9, 3)
        assert tx.counters.value("images", "cam-1", "known") == 6
        assert tx.counters.value("images", "cam-1", "novel") == 3
        assert tx.counters.value("images", "cam-1", "rejected") == 3
        assert tx.counters.value("rejected", "cam-1", "truncated") == 3
        assert tx.seen.count() == 9
        member = tx.pools.members(pool.id)[0]
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == 9
    spooled = read_table(store.folder, member.name)
    assert feature_matrix(spooled.column("features")).shape == (3, 4)
    assert feature_matrix(spooled.column("features"))[1].tolist() == [4, 5, 6, 7]
    assert check(store) == []


def test_committing_twice_changes_nothing(store: Store) -> None:
    batch = plan_feed(store)[0]
    commit_batch(store, replace(scored(batch), counts=[Count("seconds", "", "score", 0.5)]))
    before = dump(store)
    again = commit_batch(store, replace(scored(batch), counts=[Count("seconds", "", "score", 0.5)]))
    assert again.already
    assert dump(store) == before


def test_a_repeated_image_is_dropped_counted_and_named(store: Store) -> None:
    first, second, _ = plan_feed(store)
    with store.transaction() as tx:
        pool = tx.pools.open()
    commit_batch(store, scored(first, images=["a", "b", "c", "a"], pool=pool.id))
    done = commit_batch(store, scored(second, images=["d", "b", "e", "d"], pool=pool.id)).batch
    assert (done.known + done.novel, done.duplicates) == (2, 2)
    assert verdict_ids(store, current(store.folder, "verdicts")) == ["a", "b", "c", "d", "e"]
    with store.reading() as tx:
        assert tx.pools.get(pool.id).size == 5
        assert tx.counters.value("images", "cam-1", "duplicate") == 3
    rejected = read_table(store.folder, "rejected/b000000000002.parquet").to_pylist()
    assert [(row["image_id"], row["row"], row["reason"], row["detail"]) for row in rejected] == [
        ("b", 5, "duplicate", "already seen in batch 1"),
        ("d", 7, "duplicate", "already seen in batch 2"),
    ]
    assert check(store) == []


def test_the_same_image_id_of_another_source_is_no_duplicate(store: Store) -> None:
    first, second, _ = plan_feed(store)
    names = ["a", "b", "c", "d"]
    commit_batch(store, scored(first, images=names, source="cam-1"))
    assert commit_batch(store, scored(second, images=names, source="cam-2")).batch.duplicates == 0


def test_a_lost_race_writes_the_files_again(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits one of our images between the look and the lock."""
    first, second, _ = plan_feed(store)
    mine = scored(second, images=["x", "y", "z", "w"])
    other = place.open()
    fired: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "commit.after_stage_features" and not fired:
            fired.append(name)
            commit_batch(other, scored(first, images=["a", "y", "b", "c"]))

    monkeypatch.setattr("monitor.store.batch_commit.fault_point", meanwhile)
    done = commit_batch(store, mine).batch
    other.close()
    assert fired
    assert done.duplicates == 1
    ids = verdict_ids(store, current(store.folder, "verdicts"))
    assert sorted(ids) == ["a", "b", "c", "w", "x", "y", "z"]
    assert check(store) == []


def test_a_process_that_lost_its_lease_cannot_touch_a_committed_file(
    store: Store, clock: Clock
) -> None:
    batch = plan_feed(store)[0]
    old = store.acquire_lease("monitor", "old", timedelta(seconds=30))
    clock.advance(seconds=31)
    new = store.acquire_lease("monitor", "new", timedelta(seconds=30))
    with pytest.raises(LeaseLost, match="new took it"):
        commit_batch(store, scored(batch, version=1), lease=old)
    assert [entry.name for entry in store.folder.list("verdicts")] == []
    commit_batch(store, scored(batch, version=2), lease=new)
    assert check(store) == []


def test_rows_that_do_not_add_up_are_refused(store: Store) -> None:
    batch = plan_feed(store)[0]
    short = scored(replace(batch, rows=3))
    with pytest.raises(BatchMismatch, match="4 rows were planned, but 3 verdicts"):
        commit_batch(store, short)
    with pytest.raises(TableMismatch, match="the file must have"):
        commit_batch(store, replace(short, verdicts=short.verdicts.drop_columns(["score"])))


def test_a_closed_pool_takes_no_samples(store: Store) -> None:
    batch = plan_feed(store)[0]
    with store.transaction() as tx:
        pool = tx.pools.open()
        tx.pools.apply(pool.id, PoolEvent.FILLED)
    with pytest.raises(WrongState, match="closed and takes no more samples"):
        commit_batch(store, scored(batch, pool=pool.id))
    with store.reading() as tx:
        assert tx.batches.get(batch.id).state is BatchState.PENDING
    assert commit_batch(store, scored(batch)).batch.state is BatchState.DONE


def test_writers_in_several_threads_lose_nothing(store: Store, place: Place) -> None:
    """Two feeds with the same images: each image gets exactly one verdict."""
    batches = [plan_feed(store, f"feed/{n}.parquet", rows=40) for n in range(2)]
    problems: list[BaseException] = []

    def work(mine: list[int]) -> None:
        try:
            with place.open() as own:
                for number in mine:
                    batch = batches[number // 10][number % 10]
                    names = [f"image-{row}" for row in range(batch.first_row, batch.first_row + 4)]
                    commit_batch(
                        own, scored(batch, images=names, file=f"feed/{number // 10}.parquet")
                    )
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=work, args=(list(range(n, 20, 4)),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    ids = verdict_ids(store, current(store.folder, "verdicts"))
    assert sorted(ids) == sorted(f"image-{row}" for row in range(40))
    with store.reading() as tx:
        assert tx.counters.value("images", "cam-1", "duplicate") == 40
    assert check(store) == []


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=5))
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_image_has_one_verdict_and_every_row_a_fate(
    places: Callable[[], Place], names: list[list[str]]
) -> None:
    """Whatever repeats, in and across batches: verdicts plus reasons are the rows."""
    with places().open() as store:
        for number, images in enumerate(names):
            path = f"feed/{number}.parquet"
            (batch,) = plan_feed(store, path, rows=len(images), size=len(images))
            commit_batch(store, scored(batch, images=images, file=path))
        ids = verdict_ids(store, current(store.folder, "verdicts"))
        assert sorted(ids) == sorted({image for images in names for image in images})
        assert check(store) == []
