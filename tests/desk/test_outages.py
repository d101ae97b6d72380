"""An outage is seen by the people who answer, and keeps them from nothing."""

from __future__ import annotations

from datetime import timedelta

from monitor.desk.http_replies import status_of
from monitor.feed.errors import SourceMissing
from monitor.outages import Outages
from monitor.store import Store
from monitor.store.errors import DiskUnavailable, StoreBusy, StoreUnreachable
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
