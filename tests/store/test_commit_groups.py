"""Several batches in one transaction: the same promises as for one, and fewer files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.store import Store, check, commit_batches, compact
from monitor.store.errors import BatchMismatch, LeaseLost, NotFound, WrongState
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import Count
from monitor.store.verdict_columns import current, feature_matrix, read_table
from tests.store.building import commit_batch, dump, plan_feed, scored, verdict_ids
from tests.store.conftest import Clock, Place


def test_a_run_of_batches_shares_its_files(store: Store) -> None:
    first, second, third = plan_feed(store)
    with store.transaction() as tx:
        pool = tx.pools.open().id
    done = commit_batches(store, [scored(b, rejected=1, pool=pool) for b in (first, second, third)])

    assert [(one.batch.id, one.already) for one in done] == [(1, False), (2, False), (3, False)]
    assert {one.batch.state for one in done} == {BatchState.DONE}
    assert (done[1].batch.known, done[1].batch.novel, done[1].batch.rejected) == (2, 1, 1)
    name = "b000000000001-000000000003.parquet"
    assert [e.name for e in store.folder.list() if not e.name.startswith("conclad.db")] == [
        f"features/pool-{pool:09d}/{name}",
        f"rejected/{name}",
        f"verdicts/{name}",
    ]
    with store.reading() as tx:
        assert tx.files.get(first.file_id).state is FileState.DONE
        filled = tx.pools.get(pool)
        assert (filled.size, filled.above) == (9, 3)
        (member,) = tx.pools.members(pool)
        assert (member.batch_id, member.last_batch, member.rows) == (1, 3, 9)
        assert tx.counters.value("images", "cam-1", "known") == 6
        assert tx.seen.count() == 9
    spooled = read_table(store.folder, member.name)
    assert spooled.column("row").to_pylist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert feature_matrix(spooled.column("features"))[4].tolist() == [4, 5, 6, 7]
    assert check(store) == []


def test_a_gap_is_never_covered(store: Store) -> None:
    """A file over batch 3 would hide its verdicts from readers when they come."""
    batches = plan_feed(store, rows=24)
    commit_batches(store, [scored(batches[n - 1]) for n in (1, 2, 4, 6, 5)])
    assert current(store.folder, "verdicts") == [
        "verdicts/b000000000001-000000000002.parquet",
        "verdicts/b000000000004-000000000006.parquet",
    ]
    commit_batch(store, scored(batches[2]))
    ids = verdict_ids(store, current(store.folder, "verdicts"))
    assert ids == [f"feed/a.parquet:{row}" for row in range(24)]
    compact(store, "verdicts", owner="me", least_files=2)
    assert verdict_ids(store, current(store.folder, "verdicts")) == ids
    assert check(store) == []


def test_duplicates_are_decided_in_the_given_order(store: Store) -> None:
    first, second, third = plan_feed(store)
    work = [
        scored(second, images=["a", "b", "c", "a"]),
        scored(first, images=["a", "d", "e", "f"]),
        scored(third, images=["f", "g", "b", "h"]),
    ]
    done = commit_batches(store, work)
    assert [one.batch.duplicates for one in done] == [1, 1, 2]
    rejected = read_table(store.folder, "rejected/b000000000001-000000000003.parquet").to_pylist()
    assert [(row["image_id"], row["row"], row["detail"]) for row in rejected] == [
        ("a", 0, "already seen in batch 2"),
        ("a", 7, "already seen in batch 2"),
        ("f", 8, "already seen in batch 1"),
        ("b", 10, "already seen in batch 2"),
    ]
    assert check(store) == []


def test_settled_and_repeated_batches_are_left_alone(store: Store) -> None:
    first, second, third = plan_feed(store)
    commit_batch(store, scored(second))
    with store.transaction() as tx:
        tx.batches.quarantine(third.id, "kills its worker")
    done = commit_batches(store, [scored(b) for b in (first, second, first, third)])
    assert [one.already for one in done] == [False, True, True, True]
    assert done[3].batch.state is BatchState.QUARANTINED
    before = dump(store)
    assert all(one.already for one in commit_batches(store, [scored(first), scored(second)]))
    assert dump(store) == before
    assert [found.code for found in check(store)] == ["quarantined"]


def test_all_or_nothing(store: Store) -> None:
    """One batch that does not add up, or one closed pool, and none is committed."""
    first, second, _ = plan_feed(store)
    with store.transaction() as tx:
        pool = tx.pools.open().id
        tx.pools.apply(pool, PoolEvent.FILLED)
    before = dump(store)
    with pytest.raises(BatchMismatch, match="batch 2: 4 rows were planned"):
        commit_batches(store, [scored(first), scored(replace(second, rows=3))])
    with pytest.raises(WrongState, match="closed and takes no more samples"):
        commit_batches(store, [scored(first), scored(second, pool=pool)])
    with pytest.raises(NotFound, match="batch 99"):
        commit_batches(store, [scored(first), scored(replace(second, id=99))])
    assert dump(store) == before
    assert store.folder.list("staging") == []


def test_without_the_lease_nothing_moves(store: Store, clock: Clock) -> None:
    first, second, _ = plan_feed(store)
    lease = store.acquire_lease("coordinator", "me", timedelta(seconds=30))
    clock.advance(seconds=31)
    store.acquire_lease("coordinator", "somebody else", timedelta(seconds=30))
    before = dump(store)
    with pytest.raises(LeaseLost):
        commit_batches(store, [scored(first), scored(second)], lease=lease)
    assert dump(store) == before
    assert store.folder.list("staging") == []


def test_a_batch_taken_by_another_writer_is_his(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = plan_feed(store)
    other = place.open()
    fired: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "commit.after_sync" and not fired:
            fired.append(name)
            commit_batch(other, replace(scored(second), counts=[Count("won", "", "", 1)]))

    monkeypatch.setattr("monitor.store.batch_commit.fault_point", meanwhile)
    done = commit_batches(store, [scored(b) for b in (first, second, third)])
    other.close()
    assert [one.already for one in done] == [False, True, False]
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == 12
    with store.reading() as tx:
        assert tx.counters.value("won") == 1
    assert check(store) == []


@given(
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    order=st.permutations(range(8)),
    images=st.lists(st.sampled_from("abcdefghijkl"), min_size=16, max_size=16),
)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_however_they_are_grouped_the_rows_are_the_same(
    places: Callable[[], Place], cuts: list[int], order: list[int], images: list[str]
) -> None:
    """Groups of any size in any order: what a reader and the ledger see does not depend on it."""
    views = []
    for sizes in ([1] * 8, cuts):
        with places().open() as store:
            batches = plan_feed(store, rows=16, size=2)
            work = [scored(batches[n], images=images[2 * n : 2 * n + 2], rejected=0) for n in order]
            for size in [*sizes, 8]:
                group, work = work[:size], work[size:]
                commit_batches(store, group)
            assert check(store) == []
            views.append(_view(store))
    assert views[0] == views[1]


def _view(store: Store) -> object:
    with store.reading() as tx:
        ledger = [(b.id, b.state, b.known, b.novel, b.duplicates) for b in tx.batches.of_file(1)]
        counts = tx.counters.all()
    rows = {
        kind: [
            row
            for name in current(store.folder, kind)
            for row in read_table(store.folder, name).to_pylist()
        ]
        for kind in ("verdicts", "rejected")
    }
    return ledger, counts, rows
