"""An outage is seen by the people who answer, and keeps them from nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

import monitor.store.disk_space
from monitor.desk.http_replies import status_of
from monitor.errors import ErrorKind
from monitor.feed.errors import SourceMissing
from monitor.outages import Outages
from monitor.store import Store
from monitor.store.disk_space import Disk
from monitor.store.errors import DiskUnavailable, StoreBusy, StoreUnreachable
from monitor.telemetry.status_report import describe
from monitor.telemetry.store_reading import TruthReader
from tests.desk.client import Client


def note(store: Store) -> None:
    outages = Outages()
    outages.begin(SourceMissing("/data/feed: no such <folder>"))
    with store.transaction() as tx:
        tx.notes.set("monitor", "outages", outages.as_note())


def test_every_page_says_what_the_monitor_waits_for(store: Store, client: Client) -> None:
    note(store)
    assert "waits for the feed" not in client.get("/").text, "of a monitor that has ended"
    lease = store.acquire_lease("coordinator", "somebody", timedelta(minutes=1))
    for path in ("/", "/classes", "/history"):
        text = client.get(path).text
        assert "The monitor waits for the feed since" in text
        assert "no such &lt;folder&gt;" in text
    with store.transaction() as tx:
        tx.notes.set("monitor", "outages", {})
    assert "waits for the feed" not in client.get("/").text
    store.release_lease(lease)


def test_an_outage_of_the_store_is_no_mistake_of_the_person() -> None:
    for error in (DiskUnavailable("full"), StoreBusy("busy"), StoreUnreachable("gone")):
        assert status_of(error) == 503


@pytest.mark.parametrize(
    ("disk", "what"),
    [
        (Disk(0, 1 << 30, 0.5), "no space is left on the disk of the state"),
        (Disk(1 << 29, 1 << 30, 0.0), "no inode is left on the disk of the state"),
        (Disk(1 << 29, 1 << 30, 0.5, is_read_only=True), "the disk of the state is read-only"),
    ],
)
def test_a_disk_that_takes_nothing_is_seen_although_nobody_can_note_it(
    store: Store, client: Client, monkeypatch: pytest.MonkeyPatch, disk: Disk, what: str
) -> None:
    monkeypatch.setattr(monitor.store.disk_space, "disk_of", lambda store: disk)
    assert what in client.get("/").text
    truth = TruthReader(store).read()
    assert [outage.kind for outage in truth.outages] == [ErrorKind.DISK]
    assert any(what in line for line in describe(truth).splitlines())
