"""What the coordinator does now and then reaches the store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import actors.coordinator
import actors.periodic_tasks
from actors.coordinator_lease import acquire_lease
from actors.periodic_tasks import NOTES_SECONDS, PeriodicTasks
from actors.run_monitor import run
from actors.worker_pool import InlineWorkerPool
from monitor.config import Config
from monitor.people.class_corrections import rename
from monitor.store import Store
from monitor.store.settled_commit import standing_rows
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
