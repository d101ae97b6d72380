"""Every source is watched, whatever the cap on labels, whenever it usually sends."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monitor.config.telemetry_section import MetricsSection
from monitor.store import Store
from monitor.telemetry import exporter as module
from monitor.telemetry.exporter import Exporter
from monitor.telemetry.metric_catalog import SILENT_NAMED
from monitor.telemetry.silent_sources import Pace
from monitor.telemetry.status_report import describe, to_dict
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.conftest import Clock
from tests.telemetry import feeding
from tests.telemetry.scraping import Page

BEGAN = datetime(2024, 5, 13, tzinfo=UTC)  # a Monday

Sends = Callable[[datetime], bool]


class Watch:
    """A pace that looks every ten minutes at sources that send, or do not."""

    def __init__(self, sources: Mapping[str, Sends]) -> None:
        self.sources = dict(sources)
        self.now = BEGAN
        self.pace = Pace()
        self.last: dict[str, datetime] = {}

    def go_on(self, *, looking: bool = True, **duration: float) -> None:
        until = self.now + timedelta(**duration)
        while self.now < until:
            self.now += timedelta(minutes=10)
            if looking:
                self.last |= {s: self.now for s, sends in self.sources.items() if sends(self.now)}
                self.pace.look(self.now, self.last)

    def restart(self) -> None:
        self.pace = Pace.from_notes(self.pace.hours(), self.pace.looks())

    def silent(self) -> set[str]:
        return {found.source for found in self.pace.silent(self.now, self.last)}


def always(_: datetime) -> bool:
    return True


def by_day(now: datetime) -> bool:
    return 6 <= now.hour < 18


def now_and_then(now: datetime) -> bool:
    """Twice a day, at other hours every day."""
    return (now.hour - 5 * now.day) % 12 == 0 and now.minute == 0


def on_weekdays(now: datetime) -> bool:
    return now.weekday() < 5 and by_day(now)


def until(end: timedelta, sends: Sends) -> Sends:
    return lambda now: now < BEGAN + end and sends(now)


def test_one_that_sends_all_the_time_is_missed_after_an_hour() -> None:
    watch = Watch({"cam-1": until(timedelta(days=1, hours=2), always), "cam-2": always})
    watch.go_on(days=1, hours=2, minutes=50)
    assert watch.silent() == set()
    watch.go_on(minutes=20)
    assert watch.silent() == {"cam-1"}


def test_daylight_is_missed_by_day_and_not_by_night() -> None:
    gone = until(timedelta(days=4, hours=12), by_day)
    watch = Watch({"cam-1": by_day, "cam-2": gone})
    for _ in range(24 * 4 + 12):
        watch.go_on(hours=1)
        assert watch.silent() == set(), watch.now
    watch.go_on(hours=1, minutes=50)
    assert watch.silent() == set(), "one whole hour is missing"
    watch.go_on(hours=1)
    assert watch.silent() == {"cam-2"}, "two are"


def test_a_source_that_works_on_weekdays_has_its_weekend_from_the_second_on() -> None:
    watch = Watch({"cam-1": on_weekdays})
    watch.go_on(days=11, hours=12)
    for _ in range(30):
        watch.go_on(hours=1)
        assert watch.silent() == set(), watch.now


def test_one_that_sends_rarely_is_missed_after_two_days() -> None:
    watch = Watch({"cam-1": until(timedelta(days=3), now_and_then)})
    watch.go_on(days=3)
    while watch.now <= watch.last["cam-1"] + timedelta(days=2):
        assert watch.silent() == set(), watch.now
        watch.go_on(hours=1)
    assert watch.silent() == {"cam-1"}


def test_a_time_in_which_nobody_looked_is_no_silence() -> None:
    watch = Watch({"cam-1": always, "cam-2": until(timedelta(days=2), always)})
    watch.go_on(days=2)
    watch.go_on(hours=30, looking=False)
    watch.restart()
    # The monitor is back, and has not got to anybody's files yet.
    watch.pace.look(watch.now, watch.last)
    assert watch.silent() == set()
    watch.go_on(hours=1, minutes=30)
    assert watch.silent() == {"cam-2"}


def test_restarts_do_not_make_anybody_forget() -> None:
    watch = Watch({"cam-1": until(timedelta(hours=30), always)})
    watch.go_on(hours=31, minutes=30)
    assert watch.silent() == {"cam-1"}
    for _ in range(10):
        watch.restart()
        watch.go_on(minutes=10)
        assert watch.silent() == {"cam-1"}, "at once, not an hour later"


def test_one_that_was_removed_is_forgotten_and_bad_notes_say_nothing() -> None:
    pace = Pace()
    pace.look(BEGAN, {"cam-1": BEGAN, "cam-2": BEGAN})
    pace.look(BEGAN, {"cam-2": BEGAN})
    assert set(pace.sent) == {"cam-2"}
    bad: tuple[Any, ...] = (None, [], {}, {"hour": "x"}, {"hour": 1, "observed": "f", "sent": [3]})
    for note in bad:
        assert Pace.from_notes(note, pace.looks()) == Pace()
        assert Pace.from_notes(pace.hours(), note) == Pace()


# -- on the page -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)


def test_four_thousand_cameras_are_watched_with_a_thousand_labels(
    store: Store, clock: Clock
) -> None:
    """In small: forty cameras with ten labels, and thirty of them fall silent."""
    cameras = [f"cam-{n:02d}" for n in range(40)]
    feeding.fit(store)
    for camera in cameras:
        feeding.judge(store, camera, known=1, novel=0, rejected=0)
    settings = MetricsSection(port=0, sources_most=10)

    def hours(number: int, sending: list[str]) -> Page:
        for _ in range(number):
            with Exporter(store, settings) as exporter:  # each hour in another process
                assert exporter.url is not None
                for _ in range(6):
                    clock.advance(minutes=10)
                    with store.transaction() as tx:
                        sent = {"last_commit_at": tx.now.isoformat()}
                        tx.notes.set_many("source", dict.fromkeys(sending, sent))
                    page = Page(exporter.url)
        return page

    page = hours(26, cameras)
    assert (page.get("sources_silent"), page.get("sources_capped")) == (0, 30)
    page = hours(2, cameras[30:])
    assert page.get("sources_silent") == 30
    named = [key for key in page.series if key[0] == "conclad_source_silent_seconds"]
    assert len(named) == SILENT_NAMED < 30
    # cam-15 has no label of its own for anything else.
    assert page.get("images_total", source="cam-15", outcome="known") is None
    assert page.get("source_silent_seconds", source="cam-15") == 2 * 3600
    truth = StoreSummaryReader(store).read()
    assert "Silent: cam-00 for 2 h," in describe(truth)
    assert "and 25 more." in describe(truth)
    assert len(to_dict(truth)["silent"]) == 30


def test_no_cap_no_count(store: Store) -> None:
    feeding.fit(store)
    feeding.judge(store, "cam-1")
    with Exporter(store, MetricsSection(port=0)) as exporter:
        assert exporter.url is not None
        page = Page(exporter.url)
    assert (page.get("sources_capped"), page.get("sources_silent")) == (0, 0)
    free, size = page.get("state_disk_free_bytes"), page.get("state_disk_size_bytes")
    assert free is not None
    assert size is not None
    assert 0 < free < size
    inodes = page.get("state_disk_free_inodes_ratio")
    assert inodes is None or 0 < inodes <= 1, "some file systems count none"


def test_alive_while_somebody_holds_the_lease(store: Store, clock: Clock) -> None:
    def asked(url: str | None) -> int:
        assert url is not None
        try:
            with urllib.request.urlopen(url.replace("/metrics", "/alive")) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with Exporter(store, MetricsSection(port=0)) as exporter:
        assert asked(exporter.url) == 503
        feeding.start_monitor(store, ttl=30)
        assert asked(exporter.url) == 200
        clock.advance(seconds=31)
        assert asked(exporter.url) == 503, "it hangs: the page answers, the lease has run out"
