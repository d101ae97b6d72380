"""Events, counters, notes and digests: appended, added up, remembered, and let go."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from monitor.images.image_identity import image_key
from monitor.store import Store
from monitor.store.counters_and_image_account import ADDED_AT_ONCE
from monitor.store.errors import WrongState
from monitor.store.records import Count
from monitor.store.tables import counter_steps, counters
from tests.store.building import commit_batch, plan_feed, scored
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


def test_counters_add_up(store: Store) -> None:
    with store.transaction() as tx:
        tx.counters.add([Count("images", "a", "known", 2), Count("images", "a", "known", 3)])
        tx.counters.add([Count("images", "a", "known", 1), Count("images", "b", "novel", 1)])
        tx.counters.add([])
        assert tx.counters.value("images", "a", "known") == 6
        assert len(tx.counters.all("images")) == 2
        assert tx.counters.all()[1:] == [Count("images", "b", "novel", 1)]


def test_steps_of_many_sources_are_kept_and_added_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the same before and after; a transaction that fails leaves nothing of it."""
    sources = [f"cam-{number}" for number in range(ADDED_AT_ONCE)]
    step = [
        Count("batches", "", "done", 1),
        *(Count("images", source, "known", 2) for source in sources),
        *(Count("settled", source, "new", 0.5) for source in sources[::2]),
    ]

    def rows() -> tuple[int, int]:
        with store.reading() as tx:
            found = (tx.connection.execute(select(t)).all() for t in (counters, counter_steps))
            one, two = (len(some) for some in found)
            return one, two

    def expected(times: int) -> list[Count]:
        found = [Count(c.name, c.source, c.label, times * c.value) for c in step]
        return sorted(found, key=lambda c: (c.name, c.source, c.label))

    with store.transaction() as tx:
        tx.counters.add(step)
    assert rows() == (1, 1)
    with pytest.raises(WrongState):
        _add_and_fail(store, step)
    with store.transaction() as tx:
        tx.counters.add(step[:2])
        tx.counters.add(step[2:])
        assert tx.counters.all() == expected(2)
        assert tx.counters.all("settled") == [c for c in expected(2) if c.name == "settled"]
        assert tx.counters.value("images", "cam-0", "known") == 4
        assert tx.counters.value("images", "cam-1", "known") == 4
        assert tx.counters.value("images", "cam-1", "novel") == 0
    assert rows() == (2, 2)
    monkeypatch.setattr("monitor.store.counters_and_image_account.KEPT_MOST", 4 * len(sources))
    with store.transaction() as tx:
        tx.counters.add(step)
    assert rows() == (len(step), 0)
    with store.reading() as tx:
        assert tx.counters.all() == expected(3)


def _add_and_fail(store: Store, step: list[Count]) -> None:
    with store.transaction() as tx:
        tx.counters.add(step)
        raise WrongState("what came after it was refused")


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


def test_keys_are_found_with_the_batch_that_brought_them(store: Store, clock: Clock) -> None:
    first, second = plan_feed(store, rows=1201, size=1200)
    commit_batch(store, scored(first, images=[str(number) for number in range(1200)]))
    old = [image_key("cam-1", str(number)) for number in range(1200)]
    clock.advance(days=30)
    commit_batch(store, scored(second, images=["new"]))
    with store.transaction() as tx:
        found = tx.seen.lookup([*old, image_key("cam-1", "never")])
        assert found == dict.fromkeys(old, first.id)
        assert tx.seen.lookup([image_key("cam-1", "new")]).popitem()[1] == second.id
