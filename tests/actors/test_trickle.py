"""A quiet feed asks a few questions about what looks newest, and keeps nobody waiting for them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actors.run_monitor import run
from monitor.config import Config
from monitor.jobs.from_config import open_store
from monitor.pipeline.pool_lifecycle import PoolLifecycle
from monitor.pipeline.pool_steps import CurrentDetector
from monitor.pipeline.worker_tasks import InspectPool, UpdaterTools
from monitor.store import Store
from monitor.store.pool_transitions import PoolState
from monitor.store.snapshots import load_snapshot
from tests.actors.crashing import at
from tests.actors.story import Story, tell_story, with_oracle
from tests.actors.test_monitor import answer_all, changed


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"), "labels.trickle_per_week=21")


@pytest.fixture
def config(told: Story, tmp_path: Path) -> Config:
    shutil.copytree(told.state, tmp_path / "state")
    return at(told.config, tmp_path / "state")


def test_a_quiet_pool_costs_a_few_questions_and_makes_no_class(config: Config) -> None:
    summary = run(with_oracle(changed(config, "pools", size=120)), once=True)
    with Store.open(config.state.dir) as store, store.reading() as tx:
        probed = [e for e in tx.events.after(limit=1000) if e.kind == "pool.probed"]
        asked = {p.id: p.asked for p in tx.pools.in_state(PoolState.RESOLVED)}
        names = {c.name for c in tx.classes.all()}
    assert probed
    assert all(event.payload["budget"] <= 3 for event in probed)
    assert all(
        asked[event.payload["pool"]] <= 3 for event in probed if event.payload["pool"] in asked
    )
    assert names == {"water", "forest", "sand"}
    assert summary.labels == sum(asked.values())


def test_questions_about_a_quiet_pool_do_not_keep_others_waiting(config: Config) -> None:
    run(config, once=True)
    with Store.open(config.state.dir) as store, store.reading() as tx:
        waiting = tx.pools.in_state(PoolState.WAITING)
        first, second = (tx.pools.get(number) for number in (1, 2))
    # The first pool is clean and was only probed; in the second, half is sand.
    assert first.evidence["probe"] == 3
    assert (first.state, second.state) == (PoolState.WAITING, PoolState.WAITING)
    assert not second.evidence["probe"]
    assert {pool.id for pool in waiting} == {1, 2}
    while answer_all(config):
        run(config, once=True)
    with Store.open(config.state.dir) as store, store.reading() as tx:
        assert not tx.pools.in_state(PoolState.WAITING, PoolState.ASKING, PoolState.CLOSED)
        assert "sand" in {c.name for c in tx.classes.all()}


def test_a_probe_that_finds_something_new_goes_on_to_a_round(config: Config) -> None:
    """Without its trigger the monitor has nothing but its questions, and they are enough."""
    silent = changed(config, "pools", false_rounds_per_month=0.0)
    run(with_oracle(silent), once=True)
    with Store.open(config.state.dir) as store, store.reading() as tx:
        assert "sand" in {c.name for c in tx.classes.all()}
        rounds = [tx.pools.get(p).round for p in (1, 2, 3, 4)]
    assert max(rounds) >= 1


class _Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_pool_that_fills_slowly_is_looked_at_while_it_fills(config: Config) -> None:
    slow = changed(changed(config, "pools", size=10_000, least=20), "labels", trickle_per_week=0)
    clock = _Clock()
    # Everything is committed to a pool that never gets full; the end of the feed is not yet.
    run(changed(slow, "pools", least=10_000), once=True, clock=clock)
    with open_store(slow, clock) as store:
        with store.reading() as tx:
            version = tx.versions.current()
            pool = tx.pools.filling()
        assert version is not None
        assert pool is not None
        assert pool.size == 240
        detector = load_snapshot(store.folder, version.snapshot)
        pools, current = PoolLifecycle(store, slow, None), CurrentDetector(version.number, detector)
        assert pools.advance(current).step == "idle", "not before pools.look_minutes"
        clock.now += timedelta(minutes=11)
        task = pools.advance(current).task
        assert isinstance(task, InspectPool)
        assert len(task.features) == 240
        pools.receive(task.run(UpdaterTools(), detector), current)
        with store.reading() as tx:
            # A quarter of it is sand: the pool is closed early, and people are asked.
            assert tx.pools.get(pool.id).state is PoolState.ASKING
            assert tx.pools.filling() is None
