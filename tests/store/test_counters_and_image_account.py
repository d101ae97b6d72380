"""Every image of a listed file is somewhere; where it is not, somebody is told."""

from __future__ import annotations

from sqlalchemy import update

from monitor.store import Store, check
from monitor.store.counters_and_image_account import Account, account, by_source, uneven_files
from monitor.store.records import FileStat
from monitor.store.tables import batches, files
from tests.store.building import commit_batch, plan_feed, scored


def test_the_images_of_a_feed_add_up_in_every_state(store: Store) -> None:
    done, bad, given_up, _ = plan_feed(store, rows=16, size=4)
    commit_batch(store, scored(done))
    with store.transaction() as tx:
        tx.batches.quarantine(given_up.id, "why")
        tx.quarantine.drop()
        tx.batches.quarantine(bad.id, "why")
        tx.files.register([FileStat("unopened", 10, 1)])
    with store.reading() as tx:
        found = account(tx)
        assert (found.listed, found.quarantined, found.waiting, found.dropped) == (16, 4, 4, 4)
        assert found.verdicts + found.rejected == 4
        assert found.unaccounted == 0
        assert list(uneven_files(tx)) == []
        assert sum(each.listed for each in by_source(tx).values()) == 4
        assert tx.counts.new_files(10) == 1
    (finding,) = check(store)
    assert (finding.code, finding.severity) == ("quarantined", "warning")


def test_a_lost_batch_is_found(store: Store) -> None:
    first, second = plan_feed(store, rows=8)
    commit_batch(store, scored(first))
    with store.transaction() as tx:
        tx.connection.execute(batches.delete().where(batches.c.id == second.id))
        ((_, found),) = uneven_files(tx)
        assert found.unaccounted == 4 == account(tx).unaccounted
    codes = {finding.code for finding in check(store)}
    assert "images-unaccounted" in codes


def test_a_file_that_holds_more_than_was_planned_is_found(store: Store) -> None:
    plan_feed(store, rows=8)
    with store.transaction() as tx:
        tx.connection.execute(update(files).values(rows=9))
        assert account(tx).unaccounted == 1


def test_an_empty_state_adds_up(store: Store) -> None:
    with store.reading() as tx:
        assert account(tx) == Account()
