"""Events, counters, notes and digests: appended, added up, remembered, and let go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.store import Store, commit_batch
from monitor.store.rows import Count
from monitor.store.seen import image_digest
from tests.store.building import plan_feed, scored
from tests.store.conftest import Clock


def test_events_are_read_from_where_one_stopped(store: Store) -> None:
    with store.transaction() as tx:
        tx.events.append("pool.closed", {"pool": 1})
        tx.events.append("class.discovered", {"name": "düne", "share": 0.25}, source="cam-1")
    with store.transaction() as tx:
        tx.events.append("pool.closed", {"pool": 2}, source="cam-2")
    with store.reading() as tx:
        assert [event.id for event in tx.events.after(1)] == [2, 3]
        assert [e.payload for e in tx.events.after(kinds=["pool.closed"])] == [
            {"pool": 1},
            {"pool": 2},
        ]
        (found,) = tx.events.after(source="cam-1")
        assert found.payload == {"name": "düne", "share": 0.25}


def test_pruning_never_gives_a_number_out_again(store: Store, clock: Clock) -> None:
    with store.transaction() as tx:
        for _ in range(3):
            tx.events.append("tick")
    clock.advance(days=1)
    with store.transaction() as tx:
        assert tx.events.prune(clock.now) == 2
        assert tx.events.append("tick").id == 4


def test_counters_add_up(store: Store) -> None:
    with store.transaction() as tx:
        tx.counters.add([Count("images", "a", "known", 2), Count("images", "a", "known", 3)])
        tx.counters.add([Count("images", "a", "known", 1), Count("images", "b", "novel", 1)])
        tx.counters.add([])
        assert tx.counters.value("images", "a", "known") == 6
        assert len(tx.counters.all("images")) == 2
        assert tx.counters.forget_source("a") == 1
        assert tx.counters.all() == [Count("images", "b", "novel", 1)]


def test_notes_are_kept_by_room_and_key(store: Store) -> None:
    with store.transaction() as tx:
        tx.notes.set("trigger", "cam-1", {"evidence": [0.5, None]})
        tx.notes.set("trigger", "cam-1", {"evidence": [0.75]})
        tx.notes.set("webhooks", "cursor", 12)
    with store.transaction() as tx:
        assert tx.notes.all("trigger") == {"cam-1": {"evidence": [0.75]}}
        assert tx.notes.get("webhooks", "cursor") == 12
        assert tx.notes.get("webhooks", "nothing", "default") == "default"
        tx.notes.delete("webhooks", "cursor")
        assert tx.notes.all("webhooks") == {}


def test_digests_are_found_and_forgotten_by_age(store: Store, clock: Clock) -> None:
    first, second = plan_feed(store, rows=1201, size=1200)
    commit_batch(store, scored(first, images=[str(number) for number in range(1200)]))
    old = [image_digest("cam-1", str(number)) for number in range(1200)]
    clock.advance(days=30)
    commit_batch(store, scored(second, images=["new"]))
    with store.transaction() as tx:
        found = tx.seen.lookup([*old, image_digest("cam-1", "never")])
        assert found == dict.fromkeys(old, first.id)
        assert tx.seen.prune(clock.now) == 1200
        assert tx.seen.lookup([image_digest("cam-1", "new"), old[0]]).keys() == {
            image_digest("cam-1", "new")
        }


@given(st.lists(st.tuples(st.text(), st.text()), unique=True))
def test_different_images_have_different_digests(pairs: list[tuple[str, str]]) -> None:
    assert len({image_digest(*pair) for pair in pairs}) == len(pairs)
