"""Merging shows every row exactly once to a reader who follows the rule, at every moment."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from monitor.store import Store, check, compact, repair
from monitor.store.compaction import clear_leftovers
from monitor.store.errors import LeaseHeld
from monitor.store.verdict_columns import current
from tests.store.building import commit_batch, plan_feed, scored, verdict_ids


def fill(store: Store, rows: int = 40, skip: frozenset[int] = frozenset()) -> list[str]:
    """Commit batches of four; returns the image ids that a reader must find."""
    for batch in plan_feed(store, rows=rows):
        if batch.id not in skip:
            commit_batch(store, scored(batch))
    return sorted(verdict_ids(store, current(store.folder, "verdicts")))


def seen_by_reader(store: Store) -> list[str]:
    return sorted(verdict_ids(store, current(store.folder, "verdicts")))


def test_many_become_few(store: Store) -> None:
    expected = fill(store)
    done = compact(store, "verdicts", owner="me")
    assert (done.merged, done.into) == (10, 1)
    assert current(store.folder, "verdicts") == ["verdicts/b000000000001-000000000010.parquet"]
    assert len(store.folder.list("verdicts")) == 1
    assert seen_by_reader(store) == expected
    assert check(store) == []
    assert compact(store, "verdicts", owner="me").merged == 0


def test_a_reader_is_never_wrong_at_any_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fill(store)
    looked: Counter[str] = Counter()

    def look(name: str) -> None:
        looked[name] += 1
        assert seen_by_reader(store) == expected, name

    monkeypatch.setattr("monitor.store.compaction.fault_point", look)
    compact(store, "verdicts", owner="me", least_files=2, target_rows=16)
    assert looked["compact.after_publish"] == looked["compact.after_delete"] == 3
    assert check(store) == []


def test_a_range_with_work_left_in_it_is_not_merged(store: Store) -> None:
    """A merged file over a pending batch would hide its verdicts when they come."""
    fill(store, skip=frozenset({5}))
    compact(store, "verdicts", owner="me", least_files=2)
    assert current(store.folder, "verdicts") == [
        "verdicts/b000000000001-000000000004.parquet",
        "verdicts/b000000000006-000000000010.parquet",
    ]
    with store.reading() as tx:
        (late,) = tx.batches.pending(10)
    commit_batch(store, scored(late))
    assert len(seen_by_reader(store)) == 40
    compact(store, "verdicts", owner="me", least_files=2)
    assert current(store.folder, "verdicts") == ["verdicts/b000000000001-000000000010.parquet"]
    assert len(seen_by_reader(store)) == 40
    assert check(store) == []


def test_a_large_file_waits_until_its_followers_have_grown(store: Store) -> None:
    fill(store)
    compact(store, "verdicts", owner="me", least_files=2)
    for batch in plan_feed(store, "feed/b.parquet", rows=12):
        commit_batch(store, scored(batch, file="feed/b.parquet"))
    compact(store, "verdicts", owner="me", least_files=2)
    assert current(store.folder, "verdicts") == [
        "verdicts/b000000000001-000000000010.parquet",
        "verdicts/b000000000011-000000000013.parquet",
    ]


def test_two_at_once_are_refused(store: Store) -> None:
    store.acquire_lease("compact:verdicts", "somebody", timedelta(minutes=1))
    with pytest.raises(LeaseHeld, match="somebody"):
        compact(store, "verdicts", owner="me")


def test_a_merged_file_that_is_all_there_is_is_never_cleared(store: Store) -> None:
    """After the restore of an older database the parts are known but gone."""
    fill(store)
    with store.reading() as tx:
        parts = tx.outputs.of_kind("verdicts")
    compact(store, "verdicts", owner="me")
    with store.transaction() as tx:
        (merged,) = tx.outputs.of_kind("verdicts")
        tx.outputs.remove(merged)
        for part in parts:
            tx.outputs.add(part)
    assert clear_leftovers(store, "verdicts") == []
    assert repair(store) == []
    assert len(seen_by_reader(store)) == 40
    codes = {finding.code for finding in check(store)}
    assert codes == {"file-missing", "unknown-file"}
