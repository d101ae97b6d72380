"""An outage is seen by the people who answer, and keeps them from nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import monitor.store.disk_space
from monitor.config.desk_section import DeskSection
from monitor.desk.app import build
from monitor.desk.http_replies import status_of
from monitor.errors import ErrorKind
from monitor.feed.errors import SourceMissing
from monitor.outages import Outages
from monitor.store import Store
from monitor.store.disk_space import Disk
from monitor.store.errors import DiskUnavailable, StoreBusy, StoreUnreachable
from monitor.telemetry.status_report import describe, to_dict
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.desk.client import Client
from tests.store.conftest import Clock


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


REFUSING = [
    (Disk(0, 1 << 30, 0.5), "no space is left on the disk of the state"),
    (Disk(1 << 29, 1 << 30, 0.0), "no inode is left on the disk of the state"),
    (Disk(1 << 29, 1 << 30, 0.5, is_read_only=True), "the disk of the state is read-only"),
]


@pytest.mark.parametrize(("disk", "what"), REFUSING)
def test_a_disk_that_takes_nothing_is_seen_although_nobody_can_note_it(
    state: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, what: str
) -> None:
    monkeypatch.setattr(monitor.store.disk_space, "disk_of", lambda store: disk)
    clock = Clock()
    with Store.open(state, clock=clock) as store:
        client = Client(build(store, DeskSection()))
        store.acquire_lease("coordinator", "somebody", timedelta(minutes=1))
        clock.advance(minutes=30)
        text = client.get("/").text
        assert "The monitor waits for the disk since" in text
        assert what in text
        truth = StoreSummaryReader(store).read()
        assert [outage.kind for outage in truth.outages] == [ErrorKind.DISK]
        assert any("Waiting for" in line and what in line for line in describe(truth).splitlines())


@pytest.mark.parametrize("left", ["never there", "given back", "long ago"])
@pytest.mark.parametrize(("disk", "what"), REFUSING)
def test_nobody_waits_for_the_disk_of_a_state_without_a_monitor(
    state: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, what: str, left: str
) -> None:
    """A copy on a disk that is read-only on purpose, say."""
    monkeypatch.setattr(monitor.store.disk_space, "disk_of", lambda store: disk)
    clock = Clock()
    with Store.open(state, clock=clock) as store:
        if left != "never there":
            lease = store.acquire_lease("coordinator", "somebody", timedelta(minutes=1))
            clock.advance(minutes=1, hours=1 if left == "long ago" else 0)
        if left == "given back":
            store.release_lease(lease)
        text = Client(build(store, DeskSection())).get("/").text
        assert "waits for the disk" not in text
        assert what in text
        truth = StoreSummaryReader(store).read()
        assert truth.outages == ()
        assert what in to_dict(truth)["unwritable"]
        assert f"Nothing can be written: {store.folder}: {what}" in describe(truth)
