"""What may go goes wholly; what is still needed stays and is named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitor.store import (
    Store,
    check,
    compact,
    drop_spools,
    drop_thumbnails,
    purge,
)
from monitor.store.errors import WrongState
from monitor.store.exemplars import put_thumbnail
from monitor.store.pool_transitions import PoolEvent
from monitor.store.verdict_columns import current
from tests.store.building import (
    CAPTURED,
    commit_batch,
    plan_feed,
    sample,
    scored,
    settle_pool,
    verdict_ids,
)
from tests.store.conftest import Clock

LATER = CAPTURED + timedelta(days=1)


def fill(store: Store) -> None:
    """Two sources in one pool; the second source also has a rejected row."""
    first, second, third = plan_feed(store)
    with store.transaction() as tx:
        tx.pools.open()
    commit_batch(store, scored(first, source="cam-1", pool=1))
    commit_batch(store, scored(second, source="cam-2", rejected=1, pool=1))
    commit_batch(store, scored(third, source="cam-1", pool=1))


def finish(store: Store) -> None:
    with store.transaction() as tx:
        tx.pools.apply(1, PoolEvent.FILLED)
        tx.pools.apply(1, PoolEvent.FOUND_CALM, reason="nothing new")
    settle_pool(store)


def test_features_of_finished_pools_go(store: Store, clock: Clock) -> None:
    fill(store)
    assert drop_spools(store, before=clock.now + timedelta(days=9)) == []
    finish(store)
    assert drop_spools(store, before=clock.now) == []
    clock.advance(days=1)
    assert drop_spools(store, before=clock.now) == [1]
    assert store.folder.list("features") == []
    assert drop_spools(store, before=clock.now) == []
    with (
        pytest.raises(WrongState, match="is quiet, so it cannot be triggered"),
        store.transaction() as tx,
    ):
        tx.pools.apply(1, PoolEvent.TRIGGERED)
    assert check(store) == []


def test_features_that_are_still_needed_cannot_be_dropped(store: Store) -> None:
    fill(store)
    with pytest.raises(WrongState, match="still needed"), store.transaction() as tx:
        tx.pools.drop_members(1)


@pytest.mark.parametrize("merged", [False, True])
def test_a_purge_removes_one_source_and_nothing_else(store: Store, merged: bool) -> None:
    fill(store)
    finish(store)
    if merged:
        compact(store, "verdicts", owner="me", least_files=2)
    done = purge(store, "cam-2", before=LATER)
    assert done.rows == {
        "verdicts": 3,
        "rejected": 1,
        "discoveries": 0,
        "held": 0,
        "settled": 3,
    }
    assert (done.pools, done.kept_pools) == ((1,), ())
    names = current(store.folder, "verdicts")
    assert sorted(verdict_ids(store, names)) == sorted(
        f"feed/a.parquet:{row}" for row in (0, 1, 2, 3, 8, 9, 10, 11)
    )
    assert check(store) == []
    again = purge(store, "cam-2", before=LATER)
    assert sum(again.rows.values()) == 0
    compact(store, "verdicts", owner="me", least_files=1)
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == 8
    assert check(store) == []


def test_a_purge_spares_what_is_younger(store: Store) -> None:
    fill(store)
    done = purge(store, "cam-2", before=CAPTURED)
    assert sum(done.rows.values()) == 0
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == 11


def test_a_purge_names_the_pools_that_still_need_their_features(store: Store) -> None:
    fill(store)
    done = purge(store, "cam-2", before=LATER)
    assert (done.pools, done.kept_pools) == ((), (1,))
    assert len(store.folder.list("features")) == 3
    assert purge(store, "cam-77", before=LATER).kept_pools == ()


def test_pictures_go_with_their_last_question(store: Store, clock: Clock) -> None:
    fill(store)
    shared, own = put_thumbnail(store.folder, b"shared"), put_thumbnail(store.folder, b"own")
    with store.transaction() as tx:
        tx.pools.apply(1, PoolEvent.FILLED)
        tx.pools.begin_asking(1, budget=3, detector_version=1)
        tx.questions.open(
            1,
            1,
            [
                sample(1, 0, source_id="cam-1", thumbnail=shared),
                sample(2, 0, source_id="cam-2", thumbnail=shared),
                sample(2, 1, source_id="cam-2", thumbnail=own),
            ],
        )
    assert purge(store, "cam-2", before=LATER).thumbnails == 1
    assert [entry.name[-64:] for entry in store.folder.list("thumbnails")] == [shared]
    with store.transaction() as tx:
        tx.questions.close_round(1, 1)
    clock.advance(days=1)
    assert drop_thumbnails(store, before=clock.now) == 1
    assert store.folder.list("thumbnails") == []
    assert check(store) == []
