"""After a death in the middle of a commit: what is committed gets its name, the rest goes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.store import (
    Severity,
    Store,
    check,
    commit_batches,
    compact,
    purge,
    recover,
    repair,
)
from monitor.store.errors import LeaseLost
from monitor.store.note_and_counter_names import STAGING
from monitor.store.pool_transitions import PoolState
from monitor.store.records import OutputFile, PoolMember
from monitor.store.store import Recovered
from monitor.store.verdict_columns import current
from tests.store.building import commit_batch, dump, plan_feed, scored, verdict_ids
from tests.store.conftest import Clock


def take_names_away(store: Store) -> list[str]:
    """The state of a process that died right after its transaction: files wait for names."""
    with store.reading() as tx:
        pools = tx.pools.in_state(*PoolState)
        members = [member for pool in pools for member in tx.pools.members(pool.id)]
        files: list[OutputFile | PoolMember] = [*tx.outputs.all(), *members]
    for file in files:
        assert file.staged is not None
        os.replace(store.folder.path(file.name), store.folder.path(file.staged))
    return sorted(file.name for file in files)


def committed(store: Store) -> None:
    first, second, *_ = plan_feed(store)
    with store.transaction() as tx:
        pool = tx.pools.open().id
    commit_batches(store, [scored(first, rejected=1, pool=pool), scored(second, pool=pool)])


def test_committed_files_get_their_names(store: Store) -> None:
    committed(store)
    before = dump(store)
    names = take_names_away(store)
    assert current(store.folder, "verdicts") == []
    assert {finding.code for finding in check(store)} == {"unnamed"}
    assert recover(store) == Recovered(named=tuple(names))
    assert dump(store) == before
    assert check(store) == []
    assert recover(store) == Recovered()


def test_repair_names_them_too_and_keeps_them(store: Store, clock: Clock) -> None:
    committed(store)
    before = dump(store)
    take_names_away(store)
    clock.now = clock.now.replace(year=2099)  # old enough to be thought left over
    assert repair(store) == []
    assert dump(store) == before


def test_files_of_unfinished_tries_are_removed(store: Store) -> None:
    committed(store)
    before = dump(store)
    store.folder.write(f"{STAGING}/.verdicts-b000000000003.parquet.0123.tmp", b"half")
    assert recover(store).removed == (f"{STAGING}/.verdicts-b000000000003.parquet.0123.tmp",)
    assert dump(store) == before


def test_only_the_holder_of_the_lease_clears_up(store: Store, clock: Clock) -> None:
    committed(store)
    old = store.acquire_lease("coordinator", "first", timedelta(seconds=30))
    clock.advance(seconds=31)
    new = store.acquire_lease("coordinator", "second", timedelta(seconds=30))
    store.folder.write(f"{STAGING}/.x.tmp", b"")
    with pytest.raises(LeaseLost):
        recover(store, old)
    assert recover(store, new).removed == (f"{STAGING}/.x.tmp",)


def test_a_living_writer_without_a_lease_stages_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody recovers while we are between staging and the transaction."""
    batch = plan_feed(store)[0]
    cleared: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "commit.after_sync" and not cleared:
            cleared.extend(recover(store).removed)

    monkeypatch.setattr("monitor.store.batch_commit.fault_point", meanwhile)
    assert not commit_batch(store, scored(batch)).already
    assert len(cleared) == 1
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == batch.rows
    assert check(store) == []


def test_whoever_needs_a_committed_file_names_it(store: Store, clock: Clock) -> None:
    """Merging and purging do not stumble over a commit that is between its last two steps."""
    for batch in plan_feed(store, rows=40):
        commit_batch(store, scored(batch))
    take_names_away(store)
    assert compact(store, "verdicts", owner="me").merged == 10
    assert len(verdict_ids(store, current(store.folder, "verdicts"))) == 40
    (late,) = plan_feed(store, "feed/b.parquet", rows=4)
    commit_batch(store, scored(late, file="feed/b.parquet"))
    with store.reading() as tx:
        last = tx.outputs.of_kind("verdicts")[-1]
    assert last.staged is not None
    Path(store.folder.path(last.name)).rename(store.folder.path(last.staged))
    clock.advance(days=1)
    assert purge(store, "cam-1", before=clock()).rows["verdicts"] == 44
    assert [f for f in check(store) if f.severity is not Severity.NOTE] == []


def test_a_commit_whose_outcome_is_unknown_keeps_its_files(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks while the database commits; only the database knows the rest."""
    batch = plan_feed(store)[0]

    def break_down(name: str) -> None:
        if name == "commit.after_commit":
            raise ConnectionError("gone")

    monkeypatch.setattr("monitor.store.batch_commit.fault_point", break_down)
    with pytest.raises(ConnectionError):
        commit_batch(store, scored(batch))
    monkeypatch.undo()
    assert recover(store).named == ("verdicts/b000000000001.parquet",)
    assert commit_batch(store, scored(batch)).already
    assert check(store) == []
