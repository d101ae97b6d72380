"""Versions, classes and what moves with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from monitor.store import (
    NewClass,
    Occurrence,
    Store,
    VersionUpdate,
    check,
    commit_version,
    load_snapshot,
    refuse_version,
    release_version,
)
from monitor.store.errors import ClassNameTaken, LeaseLost, NotFound, WrongState
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.records import Count
from monitor.store.verdict_columns import current, read_table
from tests.store.building import assert_identical, discoveries, dump, small_detector
from tests.store.conftest import Clock
from tests.store.crashing import prepare_release, prepare_version, version

FIT = VersionUpdate(
    "fit:1", small_detector(), None, [NewClass("class-1", "water", ClassOrigin.FIT)]
)


def test_an_update_moves_everything_together(store: Store) -> None:
    prepare_version(store)
    update = VersionUpdate(
        key="pool:1",
        detector=small_detector(1),
        parent=1,
        classes=[NewClass("class-9", "dune", ClassOrigin.PERSON)],
        discoveries=discoveries(1),
        pool_id=1,
        evidence={"labels": 3},
        counts=[Count("discoveries", "", "", 1)],
        events=[Occurrence("class.discovered", {"class": "class-9"}, source="cam-1")],
    )
    done = commit_version(store, update)
    assert (done.number, done.parent, done.state) == (2, 1, VersionState.PUBLISHED)
    with store.reading() as tx:
        assert tx.versions.current() == done
        pool = tx.pools.get(1)
        assert (pool.state, pool.resolved_by) == (PoolState.RESOLVED, 2)
        assert tx.classes.get("class-9").created_in == 2
        assert tx.counters.value("discoveries") == 1
        kinds = [event.kind for event in tx.events.after()]
        assert kinds == ["detector.updated", "detector.updated", "class.discovered"]
    (name,) = current(store.folder, "discoveries")
    rows = read_table(store.folder, name).to_pylist()
    assert [(row["class_name"], row["detector_version"]) for row in rows] == [("dune", 2)] * 3
    back = load_snapshot(store.folder, done.snapshot, sha256=done.sha256)
    assert_identical(back, small_detector(1))
    before = dump(store)
    assert commit_version(store, update) == done
    assert dump(store) == before
    assert check(store) == []


def test_an_update_of_an_older_parent_is_refused(store: Store) -> None:
    commit_version(store, FIT)
    with pytest.raises(WrongState, match="computed from detector version None, but version 1"):
        commit_version(store, replace(FIT, key="fit:2", detector=small_detector(2)))
    with store.reading() as tx:
        assert len(tx.versions.all()) == 1


def test_a_number_taken_meanwhile_is_not_used_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_version(store, FIT)
    fired: list[int] = []

    def meanwhile(name: str) -> None:
        if name == "version.after_snapshot" and not fired:
            fired.append(1)
            commit_version(
                store,
                VersionUpdate("held", small_detector(3), 1, held=True, reason="false-novel rate"),
            )

    monkeypatch.setattr("monitor.store.version_and_settled_commit.fault_point", meanwhile)
    done = commit_version(store, VersionUpdate("pool:1", small_detector(4), 1))
    assert done.number == 3
    assert done.snapshot.startswith("detectors/v000003-")
    assert check(store) == []


def test_a_lost_lease_publishes_nothing(store: Store, clock: Clock) -> None:
    lease = store.acquire_lease("monitor", "old", timedelta(seconds=1))
    clock.advance(seconds=2)
    store.acquire_lease("monitor", "new", timedelta(seconds=1))
    with pytest.raises(LeaseLost):
        commit_version(store, FIT, lease=lease)
    with store.reading() as tx:
        assert tx.versions.current() is None


def test_a_held_version_waits_for_an_operator(store: Store) -> None:
    prepare_release(store)
    with store.reading() as tx:
        held, in_use = tx.versions.get(2), tx.versions.current()
        assert in_use is not None
        assert (held.state, in_use.number) == (VersionState.HELD, 1)
        assert tx.pools.get(1).state is PoolState.HELD
        assert tx.classes.get("class-9").created_in is None
    assert current(store.folder, "discoveries") == []
    release_version(store, 2, who="ada", reason="looks right")
    with store.reading() as tx:
        assert tx.versions.current() == tx.versions.get(2)
        assert tx.pools.get(1).state is PoolState.RESOLVED
        assert tx.classes.get("class-9").created_in == 2
    assert current(store.folder, "discoveries") == ["discoveries/v000000000002.parquet"]
    assert store.folder.list("held") == []
    assert check(store) == []
    with pytest.raises(WrongState, match="is published, not held"):
        release_version(store, 2, who="ada", reason="again")


def test_a_held_version_can_be_turned_down(store: Store) -> None:
    prepare_release(store)
    refuse_version(store, 2, who="ada", reason="too many false alarms")
    with store.reading() as tx:
        in_use = tx.versions.current()
        assert in_use is not None
        assert in_use.number == 1
        assert tx.pools.get(1).state is PoolState.UNRESOLVED
    assert store.folder.list("held") == []
    assert check(store) == []


def test_rollback_uses_an_older_version_again(store: Store) -> None:
    prepare_version(store)
    version(store)
    with store.transaction() as tx:
        assert tx.versions.rollback(1, who="ada", reason="dunes were fields").number == 1
    with store.transaction() as tx:
        assert tx.versions.get(2).state is VersionState.ROLLED_BACK
        assert tx.versions.get(2).reason != "dunes were fields", "why it was made stays with it"
        assert [(p.number, p.rollback) for p in tx.versions.publications()] == [
            (1, False),
            (2, False),
            (1, True),
        ]
        assert tx.versions.next_number() == 3
    with pytest.raises(WrongState, match="already the one in use"), store.transaction() as tx:
        tx.versions.rollback(1, who="ada", reason="again")
    with pytest.raises(NotFound), store.transaction() as tx:
        tx.versions.rollback(9, who="ada", reason="no such version")
    assert commit_version(store, VersionUpdate("pool:2", small_detector(5), 1)).number == 3


def test_class_ids_never_move(store: Store) -> None:
    with store.transaction() as tx:
        truck = tx.classes.add("truck", ClassOrigin.FIT)
        lorry = tx.classes.ensure("lorry", ClassOrigin.PERSON)
        assert tx.classes.ensure("lorry", ClassOrigin.PERSON) == lorry
        assert (truck.id, lorry.id) == ("class-1", "class-2")
        assert tx.classes.rename(truck.id, "van").id == truck.id
        tx.classes.merge(lorry.id, truck.id)
        assert tx.classes.resolve(lorry.id).name == "van"
        again = tx.classes.add("lorry", ClassOrigin.PERSON)
        assert again.id == "class-3"
        tx.classes.retire(again.id)
        assert [row.name for row in tx.classes.living()] == ["van"]
        assert len(tx.classes.all()) == 3
    with pytest.raises(ClassNameTaken, match="class-1 already has this name"):
        store_add(store, "van")
    with pytest.raises(WrongState, match="merged into 'class-1'"), store.transaction() as tx:
        tx.classes.rename("class-2", "bus")
    with pytest.raises(WrongState, match="was retired"), store.transaction() as tx:
        tx.classes.merge("class-1", "class-3")
    with pytest.raises(WrongState, match="into itself"), store.transaction() as tx:
        tx.classes.merge("class-1", "class-1")


def store_add(store: Store, name: str) -> None:
    with store.transaction() as tx:
        tx.classes.add(name, ClassOrigin.PERSON)
