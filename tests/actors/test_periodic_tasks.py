"""What the coordinator does now and then reaches the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import actors.coordinator
import actors.periodic_tasks
from actors.coordinator_lease import acquire_lease
from actors.periodic_tasks import (
    NOTES_SECONDS,
    SOURCES_AT_ONCE,
    SOURCES_SECONDS,
    PeriodicTasks,
)
from actors.run_monitor import run
from actors.worker_pool import InlineWorkerPool
from monitor.config import Config
from monitor.people.class_corrections import rename
from monitor.store import ScoredBatch, Store
from monitor.store.note_and_counter_names import SOURCES
from monitor.store.read_verdicts import standing_rows
from monitor.store.verdict_columns import REJECTED
from tests.actors.story import expected_ids, image_ids, tell_story
from tests.people import world
from tests.store.building import settle_pool


def test_a_correction_reaches_settled_verdicts(tmp_path: Path) -> None:
    moments = [0.0]
    with Store.open(tmp_path / "state") as store:
        world.fit(store)
        world.ask(store, 8)
        dune = world.discover(store, "dune", 8)
        settle_pool(store, class_id=dune)
        rename(store, dune, "desert", who="ada")
        config = Config()
        tasks = PeriodicTasks(
            store,
            config,
            InlineWorkerPool(config),
            acquire_lease(store),
            clock=lambda: moments[0],
        )
        try:
            tasks.tick(0)
            patience = time.monotonic() + 60
            while set(standing_rows(store, [1]).column("class_name").to_pylist()) != {"desert"}:
                assert time.monotonic() < patience
                moments[0] += NOTES_SECONDS
                tasks.tick(0)
        finally:
            tasks.close()


def test_the_readings_of_many_sources_are_noted_seldom_and_none_is_left_out(tmp_path: Path) -> None:
    moments = [0.0]

    def sent(sources: Sequence[str]) -> ScoredBatch:
        times = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(sources))
        found = pa.table({"source_id": list(sources), "captured_at": times})
        return ScoredBatch(1, 1, found, REJECTED.empty_table())

    with Store.open(tmp_path / "state") as store:
        config = Config()
        lease = acquire_lease(store)
        workers = InlineWorkerPool(config)
        tasks = PeriodicTasks(store, config, workers, lease, clock=lambda: moments[0])

        def noted_after(seconds: float) -> int:
            moments[0] += seconds
            tasks.tick(0)
            with store.reading() as tx:
                return len(tx.notes.keys(SOURCES))

        many = [f"many-{number}" for number in range(SOURCES_AT_ONCE + 1)]
        try:
            tasks.committed([sent(["few-1", "few-2"])])
            assert noted_after(NOTES_SECONDS) == 2
            tasks.committed([sent(many), sent(many)])
            assert noted_after(NOTES_SECONDS) == 2
            tasks.committed([sent(["few-3"])])
            assert noted_after(SOURCES_SECONDS) == 3 + len(many)
            tasks.committed([sent([f"more-{source}" for source in many])])
            tasks.finish()
            assert noted_after(0.0) == 3 + 2 * len(many)
        finally:
            tasks.close()


def test_a_monitor_that_is_often_started_again_merges_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single run commits enough for a merge; together they do."""
    config = tell_story(tmp_path).config
    feed, later = Path(config.feed.path), tmp_path / "later"
    feed.rename(later)
    feed.mkdir()
    # One file a run: each of these commits alone.
    monkeypatch.setattr(actors.coordinator, "COMMITTED_AT_ONCE", 1)
    monkeypatch.setattr(actors.periodic_tasks, "COMPACT_AFTER", 10)
    for file in sorted(later.iterdir()):
        file.rename(feed / file.name)
        run(config, once=True)
    with Store.open(config.state.dir) as store, store.reading() as tx:
        done = tx.counters.value("batches", "", "done")
        assert len(tx.outputs.of_kind("verdicts")) < done
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()
