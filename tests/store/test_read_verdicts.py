"""Immediate and settled verdicts as one table: the last word on every image, by today's names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from monitor.store import (
    Store,
    commit_batches,
    compact,
    drop_spools,
    purge,
)
from monitor.store.compaction import LEAST_FILES
from monitor.store.errors import NotFound, WrongState
from monitor.store.read_verdicts import STANDING, read_verdicts, row_groups
from monitor.store.record_states import ClassOrigin
from tests.store.building import CAPTURED, commit_batch, plan_feed, scored, settle_pool
from tests.store.conftest import Clock

# What is asked of the database here is plain; one of the two is enough.
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def read(store: Store, **filters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        read_verdicts(store, **filters), STANDING
    ).to_pylist()
    return rows


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["image_id"].rpartition(":")[2]) for row in rows]


@pytest.fixture
def pools(store: Store) -> Store:
    """Two pools of eight images each, whose batches alternate, and four images in none."""
    batches = plan_feed(store, rows=20)
    with store.transaction() as tx:
        first, second = tx.pools.open().id, tx.pools.open().id
        tx.classes.add("water", ClassOrigin.FIT, class_id="class-1")
        tx.classes.add("dune", ClassOrigin.PERSON, class_id="class-9")
    where = [first, second, first, second, None]
    for batch, pool in zip(batches, where, strict=True):
        commit_batch(store, scored(batch, pool=pool, source="cam-1" if pool == 1 else "cam-2"))
    return store


def test_unsettled_images_have_their_immediate_verdict(pools: Store) -> None:
    rows = read(pools)
    assert ids(rows) == list(range(20))
    assert {row["settled_verdict"] for row in rows} == {None}
    assert (rows[0]["nearest_class"], rows[0]["nearest_class_name"]) == ("class-1", "water")
    assert ids(read(pools, verdict="novel")) == list(range(1, 20, 2))
    assert ids(read(pools, verdict="known")) == list(range(0, 20, 2))
    assert read(pools, verdict="new") == []


def test_settled_commit_stand_beside_them(pools: Store) -> None:
    settle_pool(pools, 2)
    rows = {int(row["image_id"].rpartition(":")[2]): row for row in read(pools)}
    assert list(rows) == list(range(20))
    assert {at for at, row in rows.items() if row["pool"] == 2} == {4, 5, 6, 7, 12, 13, 14, 15}
    new = rows[5]
    assert (new["verdict_immediate"], new["settled_verdict"]) == ("novel", "new")
    assert (new["class_id"], new["class_name"], new["by"]) == ("class-9", "dune", "spread")
    assert new["probability"] == pytest.approx(0.9)
    assert (new["revision"], new["settled_by_version"], new["detector_version"]) == (1, 1, 1)
    assert rows[1]["settled_verdict"] is None


def test_the_last_revision_stands_before_and_after_merging(pools: Store) -> None:
    settle_pool(pools, 1)
    settle_pool(pools, 1, 2, images=["feed/a.parquet:1"], verdict="undecided", by="person")
    settle_pool(pools, 1, 3, images=["feed/a.parquet:1", "feed/a.parquet:3"], by="person")
    before = read(pools)
    assert [(r["revision"], r["by"]) for r in before[:4]] == [
        (1, "pool"),
        (3, "person"),
        (1, "pool"),
        (3, "person"),
    ]
    compact(pools, "settled", owner="me", least_files=2)
    compact(pools, "verdicts", owner="me", least_files=2)
    assert read(pools) == before


def test_ids_and_names_are_those_of_today(pools: Store) -> None:
    settle_pool(pools, 1)
    with pools.transaction() as tx:
        tx.classes.add("sand", ClassOrigin.PERSON, class_id="class-10")
        tx.classes.merge("class-9", "class-10")
        tx.classes.rename("class-10", "desert")
        tx.classes.rename("class-1", "lake")
    rows = read(pools)
    assert (rows[1]["class_id"], rows[1]["class_name"]) == ("class-10", "desert")
    assert rows[19]["nearest_class_name"] == "lake"
    for said in ("class-9", "class-10", "desert", "dune"):
        assert ids(read(pools, class_=said)) == [1, 3, 9, 11]
    with pytest.raises(NotFound, match="steppe"):
        read(pools, class_="steppe")


def test_filters(pools: Store) -> None:
    settle_pool(pools, 1)
    settle_pool(pools, 2, verdict="shifted")
    assert ids(read(pools, source="cam-1")) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert ids(read(pools, verdict="new")) == [1, 3, 9, 11]
    assert ids(read(pools, verdict="shifted")) == [4, 5, 6, 7, 12, 13, 14, 15]
    assert ids(read(pools, verdict="shifted", source="cam-1")) == []
    # Settled as water, or unsettled and known, which looks like water.
    assert ids(read(pools, class_="water", verdict="known")) == [0, 2, 8, 10, 16, 18]
    assert read(pools, since=CAPTURED + timedelta(seconds=1)) == []
    assert read(pools, until=CAPTURED) == []
    assert len(read(pools, since=CAPTURED, until=CAPTURED + timedelta(seconds=1))) == 20
    with pytest.raises(WrongState, match="none of known, new"):
        read(pools, verdict="odd")


def test_files_that_hold_nothing_wanted_are_not_read(
    pools: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_pool(pools, 1)
    settle_pool(pools, 2, verdict="shifted")
    opened: list[str] = []

    def watch(folder: Any, name: str, may: Any) -> Any:
        for found in row_groups(folder, name, may):
            if name.startswith("verdicts/"):
                opened.append(name)
            yield found

    monkeypatch.setattr("monitor.store.read_verdicts.row_groups", watch)
    read(pools, since=datetime(2030, 1, 1, tzinfo=UTC))
    read(pools, source="cam-3")
    read(pools, verdict="undecided")
    assert opened == []
    read(pools)
    assert opened


def test_merging_and_dropping_while_somebody_reads(
    pools: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file goes away between the listing and the reading."""
    monkeypatch.setattr("monitor.store.read_verdicts.GROUP_ROWS", 4)
    (extra,) = plan_feed(pools, "feed/b.parquet", rows=4)
    commit_batch(pools, scored(extra, file="feed/b.parquet"))
    settle_pool(pools, 1)
    settle_pool(pools, 2)
    expected = read(pools)
    stream = read_verdicts(pools)
    rows = next(stream).to_pylist()
    compact(pools, "verdicts", owner="me", least_files=1)
    compact(pools, "settled", owner="me", least_files=1)
    clock.advance(days=1)
    drop_spools(pools, before=clock.now)
    rows += [row for batch in stream for row in batch.to_pylist()]
    assert rows == expected
    stream = read_verdicts(pools)
    purge(pools, "cam-1", before=CAPTURED + timedelta(days=1))
    with pytest.raises(WrongState, match="read again"):
        list(stream)


def test_a_month_of_corrections_costs_the_reader_nothing(store: Store) -> None:
    """Every image settled again each day: after merging as many rows as there are images."""
    batches = plan_feed(store, rows=48, size=8)
    with store.transaction() as tx:
        pool_ids = [tx.pools.open().id for batch in batches]
    commit_batches(store, [scored(b, pool=p) for b, p in zip(batches, pool_ids, strict=True)])
    for day in range(1, 31):
        for pool_id in pool_ids:
            settle_pool(store, pool_id, day, class_name=f"name {day}")
        compact(store, "settled", owner="me")
    with store.reading() as tx:
        outputs = tx.outputs.of_kind("settled")
        made = sum(one.rows for p in pool_ids for one in tx.settlements.of_pool(p))
    assert made == 30 * 48
    assert sum(output.rows for output in outputs) <= 3 * 48
    assert len(outputs) < 16
    rows = read(store)
    assert {(row["revision"], row["class_name"]) for row in rows} == {(30, "name 30")}
    assert len(rows) == 48


def test_a_month_of_corrections_does_not_grow_what_the_reader_goes_through(pools: Store) -> None:
    settle_pool(pools, 1)
    settle_pool(pools, 2)
    days = 30
    most_files = most_rows = 0
    for day in range(days):
        settle_pool(pools, 1, day + 2, class_name=f"name {day}", class_id=f"class-{day + 20}")
        settle_pool(pools, 2, day + 2, probability=day / days)
        compact(pools, "settled", owner="month")
        with pools.reading() as tx:
            outputs = tx.outputs.of_kind("settled")
        most_files = max(most_files, len(outputs))
        most_rows = max(most_rows, sum(output.rows for output in outputs))
    # Sixteen images, settled thirty times: merging keeps the last row of each.
    assert most_files <= 2 * LEAST_FILES
    assert most_rows <= 16 * 2 * LEAST_FILES
    rows = [row for row in read(pools) if row["pool"] is not None]
    assert {row["revision"] for row in rows} == {days + 1}
    assert {row["class_name"] for row in rows if row["pool"] == 1} == {f"name {days - 1}"}
    assert {round(row["probability"], 4) for row in rows if row["pool"] == 2} == {
        round((days - 1) / days, 4)
    }
