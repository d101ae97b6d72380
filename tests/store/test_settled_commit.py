"""Settled verdicts: committed once, in order, with everything that moves with them."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest

from monitor.store import (
    Severity,
    Store,
    check,
    commit_batches,
    commit_settled,
    compact,
    drop_spools,
    purge,
    recover,
)
from monitor.store.errors import LeaseLost, TableMismatch, WrongState
from monitor.store.pool_transitions import PoolEvent
from monitor.store.records import Count, Occurrence
from monitor.store.tables import pools, settlements
from monitor.store.verdict_columns import SETTLED, current, read_table
from tests.store.building import (
    CAPTURED,
    dump,
    plan_feed,
    scored,
    settle_pool,
    settled_rows,
)
from tests.store.conftest import Clock

LATER = CAPTURED + timedelta(days=1)


@pytest.fixture
def pool(store: Store) -> int:
    """Two sources, twelve images, still filling."""
    first, second, third = plan_feed(store)
    with store.transaction() as tx:
        pool_id = tx.pools.open().id
    commit_batches(
        store,
        [
            scored(first, source="cam-1", pool=pool_id),
            scored(second, source="cam-2", pool=pool_id),
            scored(third, source="cam-1", pool=pool_id),
        ],
    )
    return pool_id


def end(store: Store, pool_id: int) -> None:
    with store.transaction() as tx:
        tx.pools.apply(pool_id, PoolEvent.FILLED)
        tx.pools.apply(pool_id, PoolEvent.FOUND_CALM)


def test_everything_moves_together_and_once(store: Store, pool: int) -> None:
    end(store, pool)
    with store.reading() as tx:
        unsettled = tx.settlements.next_unsettled()
    assert unsettled is not None
    assert unsettled.id == pool

    def settle() -> int:
        return commit_settled(
            store,
            pool,
            1,
            settled_rows(store, pool),
            reason="the pool has ended",
            counts=[Count("settled", "cam-1", "new", 4)],
            events=[Occurrence("pool.settled", {"pool": pool}, "cam-1")],
            also=lambda tx: tx.notes.set("test", "settled", pool),
        ).number

    assert settle() == settle() == 1
    (name,) = current(store.folder, "settled")
    assert name == "settled/s000000000001.parquet"
    assert read_table(store.folder, name).schema.equals(SETTLED)
    with store.reading() as tx:
        (made,) = tx.settlements.of_pool(pool)
        assert (made.revision, made.rows, made.reason) == (1, 12, "the pool has ended")
        assert (made.first_batch, made.last_batch) == (1, 3)
        assert tx.settlements.next_unsettled() is None
        assert tx.settlements.next_number() == 2
        assert tx.counters.value("settled", "cam-1", "new") == 4
        assert len(tx.events.latest(kinds=["pool.settled"])) == 1
        assert tx.notes.get("test", "settled") == pool
    assert store.folder.list("staging") == []
    assert check(store) == []


def test_only_a_pool_that_has_ended_settles(store: Store, pool: int) -> None:
    with pytest.raises(WrongState, match="is filling"):
        commit_settled(store, pool, 1, settled_rows(store, pool), reason="too early")
    assert store.folder.list("staging") == store.folder.list("settled") == []


def test_revisions_follow_without_a_gap(store: Store, pool: int) -> None:
    end(store, pool)
    with pytest.raises(WrongState, match="next revision is 1, not 2"):
        settle_pool(store, pool, 2)
    settle_pool(store, pool)
    assert settle_pool(store, pool, 2, images=["feed/a.parquet:1"]).rows == 1
    assert check(store) == []


@pytest.mark.parametrize(
    ("column", "value"), [("verdict", "novel"), ("by", "chance"), ("pool", 7), ("revision", 3)]
)
def test_what_no_reader_understands_is_refused(
    store: Store, pool: int, column: str, value: object
) -> None:
    end(store, pool)
    changes: dict[str, Any] = {column: value}
    with pytest.raises(TableMismatch, match=f"column {column}"):
        commit_settled(store, pool, 1, settled_rows(store, pool, **changes), reason="wrong")


def test_a_settlement_without_rows_has_no_file(store: Store, pool: int) -> None:
    settle_pool(store, pool)
    made = commit_settled(store, pool, 2, SETTLED.empty_table(), reason="nothing left")
    assert made.rows == 0
    assert len(current(store.folder, "settled")) == 1
    assert check(store) == []


def test_whoever_lost_the_lease_commits_nothing(store: Store, pool: int, clock: Clock) -> None:
    end(store, pool)
    old = store.acquire_lease("coordinator", "first", timedelta(seconds=30))
    clock.advance(seconds=31)
    store.acquire_lease("coordinator", "second", timedelta(seconds=30))
    with pytest.raises(LeaseLost):
        commit_settled(store, pool, 1, settled_rows(store, pool), reason="late", lease=old)
    assert store.folder.list("staging") == store.folder.list("settled") == []


def test_somebody_settles_or_recovers_in_between(
    store: Store, pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(store, pool)
    cleared: list[str] = []

    def recovers(name: str) -> None:
        if name == "settle.after_sync" and not cleared:
            cleared.extend(recover(store).removed)

    monkeypatch.setattr("monitor.store.version_and_settled_commit.fault_point", recovers)
    settle_pool(store, pool)
    assert len(cleared) == 1

    def settles(name: str) -> None:
        if name == "settle.after_sync":
            monkeypatch.undo()
            settle_pool(store, pool, 2, images=["feed/a.parquet:1"])

    monkeypatch.setattr("monitor.store.version_and_settled_commit.fault_point", settles)
    settle_pool(store, pool, 2, images=["feed/a.parquet:1"])
    with store.reading() as tx:
        assert [one.revision for one in tx.settlements.of_pool(pool)] == [1, 2]
    assert check(store) == []


def test_recovery_names_what_was_committed(store: Store, pool: int) -> None:
    settle_pool(store, pool)
    before = dump(store)
    with store.reading() as tx:
        (output,) = tx.outputs.of_kind("settled")
    os.replace(store.folder.path(output.name), store.folder.path(str(output.staged)))
    assert {finding.code for finding in check(store)} == {"unnamed"}
    assert recover(store).named == (output.name,)
    assert dump(store) == before


def test_features_stay_until_the_pool_is_settled(store: Store, pool: int, clock: Clock) -> None:
    end(store, pool)
    clock.advance(days=1)
    assert drop_spools(store, before=clock.now) == []
    with pytest.raises(WrongState, match="is not settled"), store.transaction() as tx:
        tx.pools.drop_members(pool)
    assert purge(store, "cam-2", before=LATER).kept_pools == (pool,)
    settle_pool(store, pool)
    assert drop_spools(store, before=clock.now) == [pool]
    again = settle_pool(store, pool, 2)
    assert (again.first_batch, again.last_batch) == (1, 3)


def test_a_check_compares_with_the_pools(store: Store, pool: int) -> None:
    settle_pool(store, pool)
    with store.transaction() as tx:
        tx.connection.execute(pools.update().values(size=13))
    codes = {finding.code for finding in check(store)}
    assert codes == {"settled-uneven", "pool-uneven"}
    with store.transaction() as tx:
        tx.connection.execute(pools.update().values(size=12))
        tx.connection.execute(settlements.update().values(rows=11))
    assert "rows-differ" in {finding.code for finding in check(store)}
    with store.transaction() as tx:
        tx.pools.drop_members(pool)
        (output,) = tx.outputs.of_kind("settled")
        tx.outputs.remove(output)
    assert "rows-uncovered" in {finding.code for finding in check(store)}
    with store.transaction() as tx:
        tx.connection.execute(settlements.delete())
    found = {finding.code: finding.severity for finding in check(store)}
    assert found["never-settled"] is Severity.WARNING


def test_merging_keeps_the_last_row_of_each_image(store: Store, pool: int) -> None:
    settle_pool(store, pool)
    for revision in range(2, 9):
        settle_pool(
            store,
            pool,
            revision,
            images=["feed/a.parquet:1", "feed/a.parquet:6"],
            class_id=f"c{revision}",
        )
    done = compact(store, "settled", owner="me", least_files=2)
    assert (done.merged, done.into) == (8, 1)
    (name,) = current(store.folder, "settled")
    assert name == "settled/s000000000001-000000000008.parquet"
    rows = {row["image_id"]: row for row in read_table(store.folder, name).to_pylist()}
    assert len(rows) == read_table(store.folder, name).num_rows == 12
    assert (rows["feed/a.parquet:1"]["class_id"], rows["feed/a.parquet:1"]["revision"]) == ("c8", 8)
    assert rows["feed/a.parquet:2"]["revision"] == 1
    assert check(store) == []


@pytest.mark.parametrize("merged", [False, True])
def test_a_purge_takes_settled_rows_too(store: Store, pool: int, merged: bool) -> None:
    settle_pool(store, pool)
    settle_pool(store, pool, 2)
    if merged:
        compact(store, "settled", owner="me", least_files=2)
    assert purge(store, "cam-2", before=LATER).rows["settled"] == (4 if merged else 8)
    left = [
        source
        for name in current(store.folder, "settled")
        for source in read_table(store.folder, name).column("source_id").to_pylist()
    ]
    assert left == ["cam-1"] * (8 if merged else 16)
    assert check(store) == []
    compact(store, "settled", owner="me", least_files=2)
    assert check(store) == []
