"""Who is to blame when workers die: the batch that kills every time, never bad luck."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from actors.batch_retries import LossRecord
from actors.coordinator_lease import (
    RUNS_IN_VAIN,
    acquire_lease,
    begin_run,
    end_run,
    record_attempt,
    record_survival,
)
from actors.run_monitor import run
from monitor.store import Store
from monitor.store.record_states import BatchState
from monitor.store.records import Count, FileStat, Lease
from tests.actors.story import Story, tell_story, with_oracle

TRIES = 4
_QUARANTINED = Count("batches", "", "quarantined", 1)


def lives(seconds: float, *, deaths: int, others: int = 0, restart: float = 3.0) -> LossRecord:
    """A batch that was first beside others, then alone, each time when its worker died.

    Meanwhile ``others`` died for each of its own.
    """
    record = LossRecord().died(at=0.0, total=1, alone=None)
    for number in range(1, deaths):
        at, total = number * (seconds + restart), 1 + number * (1 + others)
        record = record.died(at=at, total=total, alone=seconds)
    return record


@pytest.mark.parametrize(("seconds", "enough"), [(0.01, TRIES), (0.5, 6), (4.0, 12)])
def test_a_few_deaths_are_proof_if_workers_rarely_die(seconds: float, enough: int) -> None:
    assert not lives(seconds, deaths=TRIES - 1).is_poison(TRIES)
    assert lives(seconds, deaths=enough).is_poison(TRIES)


def test_it_takes_more_where_many_die() -> None:
    assert not lives(0.5, deaths=6, others=5).is_poison(TRIES)
    assert lives(0.5, deaths=30, others=5).is_poison(TRIES)


def test_errors_count_however_many_die() -> None:
    record = LossRecord()
    for _ in range(TRIES):
        assert not record.is_poison(TRIES)
        record = record.failed()
    assert record.is_poison(TRIES)


@pytest.mark.parametrize("seconds", [0.5, 4.0, 20.0])
def test_no_innocent_batch_is_quarantined_in_hours_of_losses(seconds: float) -> None:
    """Every few seconds one of eight workers is killed; batches are tried alone until they pass."""
    lot = random.Random(7)
    now, total, suspects, lost = 0.0, 0, 0, 0
    while now < 20_000:
        suspects, total = suspects + 1, total + 1
        record = LossRecord().died(at=now, total=total, alone=None)
        survived = False
        while not survived:
            began = now
            while (kill := now + lot.uniform(1.0, 6.0)) < began + seconds:
                now, total = kill, total + 1
                if lot.random() < 1 / 8:
                    lost += 1
                    record = record.died(at=now, total=total, alone=now - began)
                    assert not record.is_poison(TRIES), f"after {suspects} suspects"
                    break
            else:
                now, survived = began + seconds, True
    assert suspects > 500
    assert seconds < 1 or lost > 100


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A ledger with three batches to do."""
    store = Store.open(tmp_path / "state")
    with store.transaction() as tx:
        (file,) = tx.files.register([FileStat("a.parquet", 1, 1)]).new
        tx.files.plan(file.id, 30, [(0, 10), (10, 10), (20, 10)])
    return store


@pytest.fixture
def lease(store: Store) -> Lease:
    return acquire_lease(store)


def tries(store: Store) -> list[int]:
    with store.reading() as tx:
        return [batch.tries for batch in tx.batches.pending(10)]


def die_in_vain(store: Store, lease: Lease, times: int) -> list[bool]:
    return [begin_run(store, lease, first=2) for _ in range(times)]


def test_runs_that_die_without_progress_make_suspects(store: Store, lease: Lease) -> None:
    assert die_in_vain(store, lease, 1 + RUNS_IN_VAIN) == [False] * RUNS_IN_VAIN + [True]
    assert tries(store) == [1, 1, 0]


def test_a_run_that_ends_or_gets_on_makes_none(store: Store, lease: Lease) -> None:
    for _ in range(3 * RUNS_IN_VAIN):
        assert not begin_run(store, lease, first=2)
        end_run(store, lease)
    die_in_vain(store, lease, RUNS_IN_VAIN)
    with store.transaction() as tx:
        tx.batches.quarantine(1, "for a test")
        tx.counters.add([_QUARANTINED])
    assert not begin_run(store, lease, first=2)
    assert tries(store) == [0, 0]


def test_tries_add_up_while_the_same_batch_is_in_hand(store: Store, lease: Lease) -> None:
    die_in_vain(store, lease, 1 + RUNS_IN_VAIN)
    for _ in range(3):
        record_attempt(store, lease, 1)
        assert begin_run(store, lease, first=2)
    assert tries(store) == [4, 1, 0]


def test_a_batch_that_was_survived_is_acquitted(store: Store, lease: Lease) -> None:
    die_in_vain(store, lease, 1 + RUNS_IN_VAIN)
    record_attempt(store, lease, 1)
    record_survival(store, lease, 1)
    assert tries(store) == [0, 1, 0]


def test_a_death_with_no_batch_in_hand_acquits_them_all(store: Store, lease: Lease) -> None:
    die_in_vain(store, lease, 1 + RUNS_IN_VAIN)
    record_attempt(store, lease, 1)
    begin_run(store, lease, first=2)
    assert not begin_run(store, lease, first=2)
    assert tries(store) == [0, 0, 0]


def test_the_monitor_sets_aside_what_killed_it_each_time(tmp_path: Path) -> None:
    story: Story = tell_story(tmp_path, "run.tries=4")
    with Store.open(story.state) as store:
        run(with_oracle(story.config), once=True)  # all of the feed is in the ledger
        lease = acquire_lease(store)
        with store.transaction() as tx:
            (file,) = tx.files.register([FileStat("deadly.parquet", 1, 1)]).new
            (batch,) = tx.files.plan(file.id, 8, [(0, 8)])
            tx.batches.start([batch.id] * 4)
        store.release_lease(lease)
    summary = run(with_oracle(story.config), once=True)
    assert summary.pending == 0
    with Store.open(story.state) as store, store.reading() as tx:
        found = tx.batches.get(batch.id)
    assert found.state is BatchState.QUARANTINED
    assert "each time that the monitor died" in (found.reason or "")
