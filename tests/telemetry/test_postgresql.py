"""The same truth from PostgreSQL, also when several threads ask for it."""

from __future__ import annotations

import threading
from pathlib import Path

from monitor.config.telemetry_section import MetricsSection
from monitor.store import Store
from monitor.telemetry.exporter import Exporter
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.conftest import Clock
from tests.store.postgres import server
from tests.telemetry import feeding
from tests.telemetry.receiving import Receiver
from tests.telemetry.scraping import Page
from tests.telemetry.test_webhooks import sender


def test_postgresql_tells_what_sqlite_tells(tmp_path: Path) -> None:
    with server() as url, Store.open(tmp_path / "one", clock=Clock()) as one:
        feeding.whole_life(one)
        place = f"{url}/postgres"
        with Store.open(place, files=str(tmp_path / "other"), clock=Clock()) as other:
            feeding.whole_life(other)
            ours, theirs = StoreSummaryReader(one).read(), StoreSummaryReader(other).read()
            assert theirs.sources == ours.sources
            assert theirs.totals == ours.totals
            assert theirs.files == ours.files
            assert theirs.discoveries == ours.discoveries
            _scraped_while_fed(other)


def _scraped_while_fed(store: Store) -> None:
    """A page, a webhook and a feed at once, each on a thread of its own."""
    with (
        Exporter(store, MetricsSection(port=0)) as exporter,
        Receiver() as receiver,
        sender(store, receiver.url),
    ):
        url = exporter.url
        assert url is not None
        pages: list[Page] = []
        reader = threading.Thread(target=lambda: pages.extend(Page(url) for _ in range(5)))
        reader.start()
        feeding.judge(store, "cam-3")
        feeding.drifts(store, "cam-3", 2.0)
        assert receiver.next().json["kind"] == "drift.detected"
        reader.join()
    assert [page.get("store_up") for page in pages] == [1] * 5
