"""The database forgets what is older than it is kept, by itself and a piece at a time."""

from __future__ import annotations

from datetime import timedelta

from monitor.store import Store
from monitor.store.growth_limits import SLICES, forget_old, last_batch_before
from tests.store.building import commit_batch, plan_feed, scored
from tests.store.conftest import Clock

DAY = timedelta(days=1)


def test_digests_go_with_their_age_and_an_image_that_returns_is_scored_again(
    store: Store, clock: Clock
) -> None:
    first, second, third = plan_feed(store)
    commit_batch(store, scored(first, images=["a", "b", "c", "d"]))
    clock.advance(days=2)
    commit_batch(store, scored(second, images=["e", "f", "g", "h"]))
    gone = forget_old(store, digests=DAY, events=DAY, slices=SLICES)
    assert gone["digests"] == 4
    with store.reading() as tx:
        assert tx.seen.count() == 4
        assert tx.counters.value("forgotten", "", "digests") == 4
    done = commit_batch(store, scored(third, images=["a", "b", "g", "h"]))
    assert (done.batch.known + done.batch.novel, done.batch.duplicates) == (2, 2)


def test_all_digests_come_up_piece_by_piece(store: Store, clock: Clock) -> None:
    for batch in plan_feed(store):
        commit_batch(store, scored(batch))
    clock.advance(days=2)
    pieces = [forget_old(store, digests=DAY, events=DAY, slices=64) for _ in range(SLICES // 64)]
    assert sum(piece["digests"] for piece in pieces) == 12
    assert max(piece["digests"] for piece in pieces) < 12
    with store.reading() as tx:
        assert tx.seen.count() == 0


def test_routine_events_go_and_what_people_did_stays(store: Store, clock: Clock) -> None:
    with store.transaction() as tx:
        for kind in ("pool.quiet", "class.renamed", "pool.settled"):
            tx.events.append(kind)
    clock.advance(days=2)
    with store.transaction() as tx:
        tx.events.append("pool.quiet")
    assert forget_old(store, digests=DAY, events=DAY)["events"] == 2
    with store.reading() as tx:
        assert [event.kind for event in tx.events.after()] == ["class.renamed", "pool.quiet"]
    clock.advance(days=2)
    assert forget_old(store, digests=DAY, events=DAY)["events"] == 0, "numbers go on from the last"


def test_the_last_batch_before_a_moment_is_found(store: Store, clock: Clock) -> None:
    batches = plan_feed(store, rows=40)
    moments = []
    for batch in batches[:7]:
        with store.reading() as tx:
            moments.append(tx.now)
        commit_batch(store, scored(batch))
        clock.advance(days=1)
    with store.reading() as tx:
        found = [last_batch_before(tx, moment) for moment in (*moments, tx.now)]
    assert found == [None, 1, 2, 3, 4, 5, 6, 7]
