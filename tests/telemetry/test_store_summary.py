"""The truth is what the store says, all of it at one moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import delete

from monitor.store import Store
from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.pool_transitions import PoolState
from monitor.store.questions_and_answers import Questions
from monitor.store.record_states import ClassOrigin, FileState
from monitor.store.tables import counters
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.building import commit_batch, small_detector
from tests.store.conftest import Clock
from tests.telemetry import feeding


def test_an_empty_store_is_a_truth_as_well(store: Store) -> None:
    truth = StoreSummaryReader(store).read()
    assert truth.detector is None
    assert truth.sources == ()
    assert not truth.coordinator.running
    assert truth.oldest_question_at is None


def test_a_whole_life(store: Store, clock: Clock) -> None:
    feeding.whole_life(store)
    clock.advance(minutes=5)
    truth = StoreSummaryReader(store).read()
    assert truth.detector is not None
    assert (truth.detector.version, truth.detector.fingerprint) == (
        2,
        small_detector(1).fingerprint.digest(),
    )
    assert truth.detector.t_inner == pytest.approx(small_detector(1).calibration.t_inner)
    assert truth.classes == {ClassOrigin.FIT: 2, ClassOrigin.PERSON: 1}
    assert truth.files == {FileState.DONE: 4, FileState.NEW: 3, FileState.QUARANTINED: 1}
    assert (truth.files_waiting, truth.oldest_waiting_at) == (3, truth.oldest_question_at)
    assert truth.pools == {PoolState.RESOLVED: 1, PoolState.WAITING: 1}
    assert truth.answers[AnswerKind.NEW_CLASS, AnswerOutcome.ACCEPTED] == 4
    assert (truth.labels.spent, truth.labels.budget, truth.labels.remaining) == (9, 10, 7)
    assert (truth.labels.per_week, truth.labels.remaining_this_week) == (500, 460)
    assert truth.by_label("inner_loops") == {"discovered": 1, "nothing new": 1}
    assert truth.coordinator.actors_up["embedder"] == 2
    first, second = truth.sources
    assert (first.name, first.questions_open, second.questions_open) == ("cam-1", 3, 0)
    assert first.images == {"known": 100, "novel": 12, "rejected": 1}
    assert first.rejected == {"truncated": 1}
    assert first.above == 12
    assert first.expected_above == pytest.approx(0.02 * 112)
    assert sum(first.ratios.values()) == 112
    assert truth.oldest_question_at == clock.now - timedelta(minutes=5)
    (found,) = truth.discoveries
    assert (found.name, found.source, found.version, found.human) == ("dune", "cam-2", 2, 4)


def test_a_batch_that_is_done_twice_counts_once(store: Store) -> None:
    feeding.fit(store)
    batch = feeding.judge(store, "cam-1", known=9, novel=1, rejected=0)
    before = StoreSummaryReader(store).read()
    assert commit_batch(store, batch).already
    assert StoreSummaryReader(store).read() == before


def test_a_removed_source_disappears_with_its_counters(store: Store) -> None:
    feeding.fit(store)
    for source in ("cam-1", "cam-2"):
        feeding.judge(store, source)
        feeding.note_source(store, source)
    with store.transaction() as tx:
        tx.connection.execute(delete(counters).where(counters.c.source == "cam-1"))
    assert [source.name for source in StoreSummaryReader(store).read().sources] == ["cam-2"]


def test_a_monitor_is_running_as_long_as_its_lease_is(store: Store, clock: Clock) -> None:
    lease = feeding.start_monitor(store, owner="host-1:1", ttl=30)
    reader = StoreSummaryReader(store)
    assert reader.read().coordinator.running
    clock.advance(seconds=31)
    truth = reader.read()
    assert not truth.coordinator.running
    assert (truth.coordinator.owner, truth.coordinator.since) == ("host-1:1", lease.acquired_at)


def test_the_rest_is_shown_when_the_detectors_files_are_out_of_reach(store: Store) -> None:
    version = feeding.fit(store)
    feeding.judge(store)
    store.folder.delete(f"{version.snapshot}/manifest.json")
    truth = StoreSummaryReader(store).read()
    assert truth.detector is not None
    assert truth.detector.t_inner is None
    assert (truth.detector.version, truth.detector.known) == (1, 2)
    assert truth.sources[0].images["known"] == 90


def test_notes_of_another_make_do_no_harm(store: Store) -> None:
    feeding.fit(store)
    feeding.judge(store, "cam-1")
    with store.transaction() as tx:
        tx.notes.set("monitor", "coordinator", ["not", "a", "mapping"])
        tx.notes.set("source", "cam-1", {"last_captured_at": "yesterday"})
        tx.notes.set("drift", "cam-1", {"verdict": {"level": "much"}})
    (source,) = StoreSummaryReader(store).read().sources
    assert source.last_captured_at is None
    assert source.drift is None


def test_questions_of_a_quiet_feed_are_open_but_nothing_is_suspected(store: Store) -> None:
    feeding.fit(store)
    feeding.ask(store, "cam-1", count=3, probe=3)
    feeding.ask(store, "cam-2", count=4)
    found = {
        s.name: (s.questions_open, s.questions_suspected)
        for s in StoreSummaryReader(store).read().sources
    }
    assert found == {"cam-1": (3, 0), "cam-2": (4, 4)}


def test_all_open_questions_count_however_many_pages_they_fill(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeding.fit(store)
    feeding.ask(store, "cam-1", count=5)
    whole = Questions.list_open
    monkeypatch.setattr(
        Questions, "list_open", lambda self, *, limit=2, after=0: whole(self, limit=2, after=after)
    )
    assert StoreSummaryReader(store).read().questions_open == 5
