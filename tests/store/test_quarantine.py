"""What was quarantined is seen, taken back, or given up; none of it is forgotten."""

from __future__ import annotations

import pytest

from monitor.store import Store, check
from monitor.store.errors import NotFound
from monitor.store.ledger import FilePlan
from monitor.store.record_states import BatchState, FileState
from monitor.store.records import FileStat
from tests.store.building import commit_batch, plan_feed, scored


def test_a_batch_that_was_quarantined_is_tried_again(store: Store) -> None:
    good, bad = plan_feed(store, rows=8)
    commit_batch(store, scored(good))
    with store.transaction() as tx:
        tx.batches.quarantine(bad.id, "four workers died of it")
        (aside,) = tx.quarantine.list()
        assert (aside.images, aside.ranges) == (4, ((4, 7),))
        assert aside.reason == "four workers died of it"
        assert tx.counts.quarantined() == {"files": 0, "batches": 1, "images": 4}
        assert tx.quarantine.retry([aside.path]) == 1
        assert tx.quarantine.list() == []
        assert tx.files.get(good.file_id).state is FileState.NEW
        (again,) = tx.files.plan_many([FilePlan(good.file_id, 8, ((0, 4), (4, 4)))])
        assert (again.first_row, again.rows) == (4, 4), "rows that were read are left alone"
    commit_batch(store, scored(again))
    with store.reading() as tx:
        assert tx.files.get(good.file_id).state is FileState.DONE
    assert check(store) == []


def test_a_file_that_was_never_opened_is_tried_again(store: Store) -> None:
    with store.transaction() as tx:
        (file,) = tx.files.register([FileStat("a", 10, 1)]).new
        tx.files.quarantine(file.id, "no Parquet")
        assert [item.images for item in tx.quarantine.list()] == [None]
        tx.quarantine.retry()
        assert tx.files.get(file.id).state is FileState.NEW


def test_a_changed_file_gives_its_unread_rows(store: Store) -> None:
    first, _ = plan_feed(store, rows=8)
    commit_batch(store, scored(first))
    with store.transaction() as tx:
        path = tx.files.get(first.file_id).path
        (changed,) = tx.files.register([FileStat(path, 999, 9)]).changed
        (aside,) = tx.quarantine.list()
        assert (aside.state, aside.images) == (FileState.CHANGED, 4)
        tx.quarantine.retry([path])
        (rest,) = tx.files.plan_many([FilePlan(changed.id, 8, ((0, 8),))])
        assert (rest.first_row, rest.rows) == (4, 4)


def test_what_is_given_up_is_counted_and_asked_about_no_more(store: Store) -> None:
    good, bad = plan_feed(store, rows=8)
    commit_batch(store, scored(good))
    with store.transaction() as tx:
        tx.batches.quarantine(bad.id, "why")
        assert tx.quarantine.drop() == 1
        assert tx.quarantine.list() == []
        assert tx.batches.get(bad.id).state is BatchState.DROPPED


def test_a_file_that_is_not_quarantined_is_named(store: Store) -> None:
    with pytest.raises(NotFound, match="nothing: is not quarantined"), store.transaction() as tx:
        tx.quarantine.retry(["nothing"])
