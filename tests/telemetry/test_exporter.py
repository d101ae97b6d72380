"""The page shows committed truth, stays bounded, and outlives its store's troubles."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete

from monitor.config import load
from monitor.config.telemetry_section import MetricsSection
from monitor.feed.errors import SourceMissing
from monitor.novelty.detector import Detector
from monitor.novelty.drift.adaptation import adapt
from monitor.novelty.drift.source_drift import Sketch
from monitor.outages import Outages
from monitor.store import NewClass, Store, Transaction, VersionUpdate, commit_version
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Count
from monitor.store.tables import counters
from monitor.telemetry import exporter as module
from monitor.telemetry.errors import MetricsUnavailable
from monitor.telemetry.exporter import Exporter
from monitor.telemetry.metric_catalog import BORDERS
from monitor.telemetry.status_report import describe, to_dict
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.building import commit_batch, plan_feed, scored
from tests.store.conftest import Clock
from tests.telemetry import feeding
from tests.telemetry.scraping import Page

ANY_PORT = MetricsSection(port=0)


@pytest.fixture(autouse=True)
def fresh_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look twice within a second."""
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)


@pytest.fixture
def scrape(store: Store) -> Iterator[Callable[[], Page]]:
    with Exporter(store, ANY_PORT) as exporter:
        assert exporter.url is not None
        url = exporter.url
        yield lambda: Page(url)


def test_a_whole_life_in_figures(store: Store, clock: Clock, scrape: Callable[[], Page]) -> None:
    feeding.whole_life(store)
    clock.advance(seconds=90)
    page = scrape()
    for (name, labels), value in {
        ("store_up", ()): 1,
        ("monitor_running", ()): 1,
        ("images_total", (("source", "cam-1"), ("outcome", "known"))): 100,
        ("images_total", (("source", "cam-1"), ("outcome", "novel"))): 12,
        ("images_total", (("source", "cam-1"), ("outcome", "duplicate"))): 0,
        ("images_rejected_total", (("source", "cam-2"), ("reason", "truncated"))): 1,
        ("batches_total", (("state", "done"),)): 4,
        ("batches_total", (("state", "quarantined"),)): 1,
        ("samples_above_t_inner_total", (("source", "cam-1"),)): 12,
        ("detector_version", ()): 2,
        ("discoveries_total", ()): 1,
        ("inner_loops_total", (("outcome", "discovered"),)): 1,
        ("inner_loops_total", (("outcome", "held"),)): 0,
        ("questions_open", (("source", "cam-1"),)): 3,
        ("questions_suspected", (("source", "cam-1"),)): 3,
        ("questions_oldest_age_seconds", (("source", "cam-1"),)): 90,
        ("questions_oldest_age_seconds", (("source", "cam-2"),)): 0,
        ("answers_total", (("kind", "new_class"), ("outcome", "accepted"))): 4,
        ("labels_spent_total", ()): 9,
        ("label_budget_remaining", ()): 7,
        ("label_budget_weekly_remaining", ()): 460,
        ("false_novel_ratio", ()): 0.2,
        ("pseudo_labels_total", (("outcome", "contradicted"),)): 1,
        ("update_failures_total", ()): 1,
        ("files", (("state", "quarantined"),)): 1,
        ("files_waiting", ()): 3,
        ("input_lag_seconds", ()): 90,
        ("pools", (("state", "waiting"),)): 1,
        ("actors_up", (("role", "embedder"),)): 2,
        ("actors_starting", (("role", "embedder"),)): 1,
        ("actor_restarts_total", (("role", "embedder"),)): 1,
        ("actor_restarts_total", (("role", "scorer"),)): 0,
        ("drift_score", (("source", "cam-1"),)): 0.2,
        ("shift_corrected", (("source", "cam-1"),)): 0.0,
        ("shift_corrected", (("source", "cam-2"),)): 1.0,
    }.items():
        assert page.get(name, **dict(labels)) == pytest.approx(value), (name, labels)
    discovered = page.get(
        "class_discovered_timestamp_seconds", source="cam-2", class_id="class-3", class_name="dune"
    )
    assert discovered == (clock.now.timestamp() - 90)


def test_the_histogram_is_one(store: Store, scrape: Callable[[], Page]) -> None:
    feeding.whole_life(store)
    page = scrape()
    counts = [
        page.get("score_ratio_bucket", source="cam-1", le="+Inf" if b == "+Inf" else str(float(b)))
        for b in BORDERS
    ]
    assert None not in counts
    assert counts == sorted(counts, key=lambda n: n or 0.0)
    assert counts[-1] == page.get("score_ratio_count", source="cam-1") == 112
    above = page.get("samples_above_t_inner_total", source="cam-1")
    at_border = page.get("score_ratio_bucket", source="cam-1", le="1.0")
    assert at_border is not None
    assert above == 112 - at_border


def test_figures_are_right_at_once_after_a_restart(store: Store) -> None:
    feeding.whole_life(store)

    def page() -> dict[object, float]:
        with Exporter(store, ANY_PORT) as exporter:
            assert exporter.url is not None
            found = Page(exporter.url).series
        # How long a look took and how full the disk is are of the moment.
        of_the_moment = (
            "conclad_store_read_seconds",
            "conclad_state_disk_free_bytes",
            "conclad_state_disk_free_inodes_ratio",
        )
        return {
            k: v
            for k, v in found.items()
            if k[0].startswith("conclad_") and k[0] not in of_the_moment
        }

    assert page() == page()


def test_stages_of_this_process(store: Store) -> None:
    with Exporter(store, ANY_PORT) as exporter:
        exporter.observe_stage("embed", 0.3)
        exporter.observe_stage("embed", 400)
        assert exporter.url is not None
        page = Page(exporter.url)
    assert page.get("stage_duration_seconds_count", stage="embed") == 2
    assert page.get("stage_duration_seconds_bucket", stage="embed", le="0.5") == 1
    assert page.get("stage_duration_seconds_sum", stage="embed") == pytest.approx(400.3)
    assert "_created" not in page.text
    assert page.series["process_resident_memory_bytes", frozenset()] > 0


def test_removed_sources_disappear(store: Store, scrape: Callable[[], Page]) -> None:
    feeding.fit(store)
    for source in ("cam-1", "cam-2"):
        feeding.judge(store, source)
        feeding.note_source(store, source)
        feeding.drifts(store, source, 0.1)
    assert scrape().sources() == {"cam-1", "cam-2"}
    with store.transaction() as tx:
        tx.connection.execute(delete(counters).where(counters.c.source == "cam-1"))
    assert scrape().sources() == {"cam-2"}


def test_sources_beyond_the_limit_are_added_up(store: Store) -> None:
    feeding.fit(store)
    settings = MetricsSection(port=0, sources_most=2)
    for source in ("cam-2", "cam-3"):
        feeding.judge(store, source, known=10, novel=0, rejected=0)
    with Exporter(store, settings) as exporter:
        assert exporter.url is not None
        assert Page(exporter.url).sources() == {"cam-2", "cam-3"}
        for source in ("cam-1", "cam-4"):
            feeding.judge(store, source, known=10, novel=1, rejected=2)
            feeding.drifts(store, source, 3.0)
        page = Page(exporter.url)
        # cam-1 comes first by name, but those that were shown stay.
        assert page.sources() == {"cam-2", "cam-3", "other"}
        assert page.get("images_total", source="other", outcome="known") == 20
        assert page.get("images_rejected_total", source="other", reason="truncated") == 4
        assert page.get("score_ratio_count", source="other") == 22
        assert page.get("drift_active", source="other") == 1
        assert page.get("sources") == 4
    with Exporter(store, settings) as again:
        assert again.url is not None
        assert Page(again.url).sources() == {"cam-2", "cam-3", "other"}
    with Exporter(store, MetricsSection(port=0, sources_most=3)) as wider:
        assert wider.url is not None
        assert len(Page(wider.url).sources()) == 4


def test_a_row_without_a_source_is_counted_all_the_same(
    store: Store, scrape: Callable[[], Page]
) -> None:
    with store.transaction() as tx:
        tx.counters.add([Count("images", "", "rejected", 2), Count("rejected", "", "no row", 2)])
    assert scrape().get("images_total", source="(none)", outcome="rejected") == 2


def test_a_store_that_cannot_be_read_is_said_and_outlived(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with Store.open(folder) as store, Exporter(store, ANY_PORT) as exporter:
        feeding.fit(store)
        assert exporter.url is not None
        assert Page(exporter.url).get("store_up") == 1
        store.close()
        folder.rename(tmp_path / "gone")
        page = Page(exporter.url)
        assert (page.get("store_up"), page.get("detector_version")) == (0, None)
        store.close()
        (tmp_path / "gone").rename(folder)
        page = Page(exporter.url)
        assert (page.get("store_up"), page.get("detector_version")) == (1, 1)


def test_many_scrapes_at_once_share_one_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_SECONDS", 60.0)
    feeding.whole_life(store)
    reads: list[str] = []
    whole = store.reading

    def reading() -> AbstractContextManager[Transaction]:
        reads.append("one")
        return whole()

    monkeypatch.setattr(store, "reading", reading)
    with Exporter(store, ANY_PORT) as exporter:
        url = exporter.url
        assert url is not None
        found: list[Page] = []
        threads = [threading.Thread(target=lambda: found.append(Page(url))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [page.get("discoveries_total") for page in found] == [1] * 8
    assert len(reads) == 1


def test_only_the_page_and_the_pulse_are_served(store: Store) -> None:
    with Exporter(store, ANY_PORT) as exporter:
        assert exporter.url is not None
        base = exporter.url.removesuffix("/metrics")
        with urllib.request.urlopen(f"{base}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/")


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    assert load(None, environ={}).config.metrics.host == "127.0.0.1"


def test_off_with_one_setting(store: Store) -> None:
    exporter = Exporter(store, MetricsSection(enabled=False))
    assert exporter.start() is None
    exporter.observe_stage("embed", 1.0)
    exporter.close()


def test_a_port_in_use_is_named(store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MetricsUnavailable, match=f"127.0.0.1:{port}.*metrics.port"):
            Exporter(store, MetricsSection(port=port)).start()


def test_nothing_listens_after_close(store: Store) -> None:
    exporter = Exporter(store, ANY_PORT)
    url = exporter.start()
    assert url is not None
    exporter.close()
    exporter.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_how_far_classes_have_followed_a_drift(store: Store, scrape: Callable[[], Page]) -> None:
    rng = np.random.default_rng(0)
    clean = np.concatenate([rng.normal(m, 1, size=(80, 12)) for m in (0, 9, 18)]).astype("f")
    before = Detector.fit(clean, ["ice"] * 80 + ["rock"] * 80 + ["sand"] * 80)
    classes = [NewClass(known.id, known.name, ClassOrigin.FIT) for known in before.classes]
    commit_version(store, VersionUpdate("fit:1", before, None, classes=classes))
    assert scrape().get("class_adaptation_ratio", class_id="c1", class_name="ice") is None
    dirty = clean + np.array([0.2, -0.2] * 6, dtype="f")
    after = adapt(Sketch.of(before), dirty, {0: 0, 100: 1, 200: 2}).detector
    commit_version(store, VersionUpdate("pool:1", after, 1))
    ratio = scrape().get("class_adaptation_ratio", class_id="c1", class_name="ice")
    assert ratio is not None
    assert 0 < ratio <= 1
    truth = StoreSummaryReader(store).read()
    assert f"ice {ratio:.0%}" in describe(truth)
    assert to_dict(truth)["detector"]["adapted"]["c1"] == pytest.approx(ratio)


def test_outages_are_shown_and_the_monitor_that_waits_is_alive(store: Store) -> None:
    outages = Outages()
    with Exporter(store, MetricsSection(port=0)) as exporter:
        exporter.show_outages(outages)
        assert exporter.url is not None
        alive = exporter.url.replace("/metrics", "/alive")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(alive)
        outages.begin(SourceMissing("/data/feed: no such folder"))
        page = urllib.request.urlopen(exporter.url).read().decode()
        assert "conclad_feed_up 0.0" in page
        assert 'conclad_outage{kind="feed"} 1.0' in page
        assert 'conclad_outage{kind="disk"} 0.0' in page
        assert urllib.request.urlopen(alive).status == 200, "it waits on purpose"


def test_the_account_is_on_the_page(store: Store, scrape: Callable[[], Page]) -> None:
    good, bad = plan_feed(store, rows=8)
    commit_batch(store, scored(good))
    with store.transaction() as tx:
        tx.batches.quarantine(bad.id, "why")
    page = scrape()
    assert page.get("account_images_listed") == 8
    assert page.get("account_images", place="quarantined") == 4
    assert page.get("images_unaccounted") == 0
    assert page.get("quarantined", what="batches") == 1


def test_on_loopback_only_names_of_this_machine_are_answered(store: Store) -> None:
    """A page of another site that resolves its name to this machine reads nothing."""
    with Exporter(store, MetricsSection(port=0)) as exporter:
        url = str(exporter.url)
        with urllib.request.urlopen(url, timeout=10) as page:
            assert page.status == 200
        foreign = urllib.request.Request(url, headers={"Host": "metrics.example.org"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=10)


def test_a_store_that_hangs_is_down_for_the_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen server answers nothing; Prometheus would give the whole page up."""
    feeding.fit(store)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)
    read, thaws = StoreSummaryReader.read, threading.Event()

    def frozen(reader: StoreSummaryReader) -> object:
        assert thaws.wait(60)
        return read(reader)

    with Exporter(store, ANY_PORT) as exporter:
        assert exporter.url is not None
        with monkeypatch.context() as patched:
            patched.setattr(StoreSummaryReader, "read", frozen)
            for _ in range(3):
                page = Page(exporter.url)
                assert (page.get("store_up"), page.get("outage", kind="store")) == (0, 1)
            hanging = [t for t in threading.enumerate() if t.name == "conclad-truth"]
            assert len(hanging) == 1, "asked once"
            thaws.set()
            hanging[0].join(60)
        page = Page(exporter.url)
        assert (page.get("store_up"), page.get("detector_version")) == (1, 1)


def test_what_a_slow_store_says_after_a_page_is_on_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy store that takes longer than a page waits would be down for ever."""
    feeding.fit(store)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    read, turns = StoreSummaryReader.read, threading.Semaphore(0)

    def slow(reader: StoreSummaryReader) -> object:
        assert turns.acquire(timeout=60)
        return read(reader)

    def finish() -> None:
        (reading,) = (t for t in threading.enumerate() if t.name == "conclad-truth")
        turns.release()
        reading.join(60)

    monkeypatch.setattr(StoreSummaryReader, "read", slow)
    with Exporter(store, ANY_PORT) as exporter:
        assert exporter.url is not None
        assert Page(exporter.url).get("store_up") == 0, "nothing is known yet"
        for _ in range(3):
            finish()
            page = Page(exporter.url)
            assert (page.get("store_up"), page.get("detector_version")) == (1, 1)
        monkeypatch.setattr(module, "YOUNG_SECONDS", 0.0)
        page = Page(exporter.url)
        assert page.get("store_up") == 0, "what it said last is not true for ever"
        finish()


def test_a_store_that_fails_is_down_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(reader: StoreSummaryReader) -> object:
        raise OSError("the network is down")

    with Exporter(store, ANY_PORT) as exporter:
        assert exporter.url is not None
        assert Page(exporter.url).get("store_up") == 1
        monkeypatch.setattr(StoreSummaryReader, "read", fails)
        assert Page(exporter.url).get("store_up") == 0
