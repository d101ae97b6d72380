"""What people correct after a pool has ended reaches the settled verdicts of its images."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from monitor.people.answer_questions import take_back
from monitor.people.class_corrections import merge, rename, retire
from monitor.people.resettle_corrections import Resettled, resettle_corrections
from monitor.people.review_pseudo_labels import assigned_to, mark_wrong
from monitor.people.version_history import rollback
from monitor.store import Store, check, commit_settled, compact, drop_spools, purge
from monitor.store.errors import QuestionClosed
from monitor.store.pool_transitions import PoolEvent
from monitor.store.read_verdicts import STANDING, read_verdicts, standing_rows
from tests.people import world
from tests.store.building import CAPTURED, settled_rows


@pytest.fixture
def dune(store: Store) -> str:
    """A class discovered in pool 1, whose twenty images are settled: half new, half water."""
    world.ask(store, 20)
    found = world.discover(store, "dune", 20)
    settle(store, 1, found)
    return found


def settle(store: Store, pool: int, dune: str) -> None:
    """Odd images are dunes by spread, even ones water by the score."""
    rows = settled_rows(store, pool)
    new = [verdict == "new" for verdict in rows.column("verdict").to_pylist()]
    for name, values in (
        ("class_id", [dune if one else "c2" for one in new]),
        ("class_name", ["dune" if one else "water" for one in new]),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), [values])
    commit_settled(store, pool, 1, rows, reason="the pool has ended")


def said(store: Store, pool: int = 1) -> Counter[tuple[Any, ...]]:
    rows = standing_rows(store, [pool]).to_pylist()
    return Counter(
        (row["verdict"], row["class_id"], row["class_name"], row["by"], row["revision"])
        for row in rows
    )


def test_nothing_is_done_without_a_correction(store: Store, dune: str) -> None:
    assert resettle_corrections(store) == Resettled()


def test_a_new_name_reaches_the_files(store: Store, dune: str) -> None:
    rename(store, dune, "desert", who="ada")
    assert resettle_corrections(store) == Resettled(pools=1, rows=10)
    assert said(store) == {
        ("new", dune, "desert", "spread", 2): 10,
        ("known", "c2", "water", "pool", 1): 10,
    }
    assert resettle_corrections(store) == Resettled()
    with store.reading() as tx:
        _, second = tx.settlements.of_pool(1)
    assert (second.rows, second.reason) == (10, "class.renamed")
    assert [f for f in check(store) if f.code != "picture-unused"] == []


def test_merged_classes_are_one(store: Store, dune: str) -> None:
    merge(store, [dune], "c2", who="ada")
    rename(store, "c2", "surface", who="ada")
    resettle_corrections(store)
    assert said(store) == {
        ("new", "c2", "surface", "spread", 2): 10,
        ("known", "c2", "surface", "pool", 2): 10,
    }


def test_a_retired_class_leaves_its_images_undecided_until_it_returns(
    store: Store, dune: str
) -> None:
    retire(store, dune, who="ada")
    resettle_corrections(store)
    assert said(store)["undecided", dune, "dune", "person", 2] == 10
    assert resettle_corrections(store) == Resettled()
    rollback(store, 2, who="ada")
    resettle_corrections(store)
    assert said(store)["new", dune, "dune", "person", 3] == 10
    assert resettle_corrections(store) == Resettled()


def test_a_contradicted_image_is_undecided(store: Store, dune: str) -> None:
    labels = [one for one in assigned_to(store, dune) if one.by == "pseudo-label"]
    new = {
        (row["source_id"], row["image_id"])
        for row in standing_rows(store, [1]).to_pylist()
        if row["class_id"] == dune
    }
    inside = next(one.key for one in labels if one.key in new)
    outside = next(one.key for one in labels if one.key not in new)
    mark_wrong(store, dune, [inside, outside], who="ada")
    # Only what was settled as the class that it is said not to be is settled again.
    assert resettle_corrections(store) == Resettled(pools=1, rows=1)
    (row,) = (r for r in standing_rows(store, [1]).to_pylist() if r["revision"] == 2)
    assert (row["source_id"], row["image_id"]) == inside
    assert (row["verdict"], row["class_id"], row["by"]) == ("undecided", None, "person")
    assert row["detector_version"] == 3
    rename(store, dune, "desert", who="ada")
    resettle_corrections(store)
    assert said(store)["undecided", None, None, "person", 2] == 1


def test_an_answer_cannot_be_taken_back_once_its_pool_has_ended(store: Store, dune: str) -> None:
    with pytest.raises(QuestionClosed, match="correct the class"):
        take_back(store, 1, who="ada", action="x")


def test_many_pools_are_gone_through_piece_by_piece(store: Store, dune: str) -> None:
    world.ask(store, 8, pool=2)
    world.ask(store, 8, pool=3)
    for pool in (2, 3):
        with store.transaction() as tx:
            tx.pools.apply(pool, PoolEvent.ROUND_CLOSED)
            tx.pools.apply(pool, PoolEvent.NOTHING_LEARNT)
        settle(store, pool, dune)
    rename(store, dune, "desert", who="ada")
    assert resettle_corrections(store, most=1) == Resettled(1, 10, more=True)
    # A correction in the middle waits for a pass of its own, and nothing is left out.
    rename(store, dune, "erg", who="ada")
    steps = []
    while (step := resettle_corrections(store, most=1)) != Resettled():
        steps.append(step)
        assert len(steps) < 20
    for pool in (1, 2, 3):
        assert {name for _, _, name, _, _ in said(store, pool)} == {"erg", "water"}
    assert [f for f in check(store) if f.code != "picture-unused"] == []


def test_names_agree_whoever_reads(store: Store, dune: str) -> None:
    """Before it is settled again, after, without features, and merged: the reader says the same."""
    rename(store, dune, "desert", who="ada")

    def names() -> list[tuple[str, str]]:
        rows = pa.Table.from_batches(read_verdicts(store), STANDING).to_pylist()
        return [(row["class_id"], row["class_name"]) for row in rows]

    before = names()
    with store.reading() as tx:
        later = tx.now + timedelta(days=1)
    drop_spools(store, before=later)
    resettle_corrections(store)
    assert names() == before
    compact(store, "settled", owner="me", least_files=2)
    assert names() == before
    assert (dune, "desert") in before


def test_what_is_purged_meanwhile_does_not_come_back(
    store: Store, dune: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(store, dune, "desert", who="ada")

    def between(name: str) -> None:
        if name == "settle.after_sync":
            monkeypatch.undo()
            purge(store, "cam-1", before=CAPTURED + timedelta(days=1))

    monkeypatch.setattr("monitor.store.version_and_settled_commit.fault_point", between)
    assert resettle_corrections(store) == Resettled(more=True)
    assert standing_rows(store, [1]).num_rows == 0
    assert resettle_corrections(store) == Resettled()
    assert store.folder.list("staging") == []


def test_two_at_once_lose_no_correction(
    store: Store, dune: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(store, dune, "desert", who="ada")

    def between(name: str) -> None:
        if name == "settle.after_sync":
            monkeypatch.undo()
            rename(store, "c2", "lake", who="ada")
            resettle_corrections(store)

    monkeypatch.setattr("monitor.store.version_and_settled_commit.fault_point", between)
    assert resettle_corrections(store) == Resettled(more=True)
    while resettle_corrections(store).more:
        pass
    assert {name for _, _, name, _, _ in said(store)} == {"desert", "lake"}
