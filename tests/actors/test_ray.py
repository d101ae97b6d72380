"""The monitor on a real Ray: whatever is lost on the way, it ends where it would have ended."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from actors.coordinator_lease import acquire_lease
from actors.ray_cluster import living_nodes
from actors.ray_worker_pool import RayWorkerPool
from actors.worker_pool import Done
from monitor.config import Config
from monitor.feed.batch_plan import plan_files
from monitor.feed.feed_storage import FeedStorage
from monitor.jobs.actor_placement import places
from monitor.jobs.from_config import columns_of
from monitor.pipeline.worker_tasks import EmbedBatch
from monitor.store import Store
from monitor.store.note_and_counter_names import OUTAGES
from tests.actors.crashing import KILLED, at, drain
from tests.actors.driving import PATIENCE, drive, driver, has_committed, terminate, until
from tests.actors.engines import deadly, slow
from tests.actors.nodes import Nodes, nodes
from tests.actors.story import (
    Story,
    expected_ids,
    image_ids,
    outcome,
    tell_story,
    with_oracle,
)
from tests.jobs.feeds import write_feed

#: Every driver and its actors start anew, which takes minutes where many share two cores.
pytestmark = pytest.mark.timeout(900)
#: More than slow batches in flight need, however crowded the machine.
GRACE = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """A head that takes no work, and a node that does."""
    with nodes(cpus=0) as found:
        found.add(cpus=2)
        yield found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, cluster: Nodes) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"), f"run.address={cluster.address}")


@pytest.fixture(scope="module")
def undisturbed(story: Story) -> dict[str, Any]:
    """What the story comes to in one process, without Ray."""
    state = story.folder / "undisturbed"
    shutil.copytree(story.state, state)
    assert drain(with_oracle(changed(at(story.config, state), address="none"))) == 0
    return outcome(state)


@pytest.fixture
def config(story: Story, tmp_path: Path) -> Config:
    """The story from its beginning, on the cluster."""
    shutil.copytree(story.state, tmp_path / "state")
    return with_oracle(at(story.config, tmp_path / "state"))


def changed(config: Config, **run: object) -> Config:
    return config.model_copy(update={"run": config.run.model_copy(update=run)})


def state_of(config: Config) -> Path:
    return Path(config.state.dir)


def restarts(config: Config) -> dict[str, int]:
    with Store.open(config.state.dir) as store, store.reading() as tx:
        return {c.label: int(c.value) for c in tx.counters.all("actor_restarts")}


def test_the_cluster_changes_nothing_but_the_time(
    config: Config, undisturbed: dict[str, Any]
) -> None:
    assert drive(config) == 0
    assert outcome(state_of(config)) == undisturbed
    assert restarts(config) == {}


def test_workers_of_every_role_may_be_killed_in_the_middle_of_their_work(
    config: Config, undisturbed: dict[str, Any]
) -> None:
    kills = {"embedder": (2, 11), "scorer": (3,), "updater": (1, 4), "querier": (1,)}
    assert drive(config, kills=kills) == 0
    assert outcome(state_of(config)) == undisturbed
    assert restarts(config) == {role: len(times) for role, times in kills.items()}


def test_a_driver_that_is_killed_goes_on_where_it_was(
    config: Config, undisturbed: dict[str, Any]
) -> None:
    # Questions are open and batches on their way; the actors die with their driver.
    assert drive(config, fault="pool.after_ask") == KILLED
    with Store.open(config.state.dir) as store:
        # Its lease is taken at once, without waiting for it to run out.
        store.release_lease(acquire_lease(store, sleep=_must_not_wait))
    assert drive(config) == 0
    assert outcome(state_of(config)) == undisturbed


def _must_not_wait(seconds: float) -> None:
    raise AssertionError("waited for a lease whose owner is dead")


def test_a_node_may_be_lost(config: Config, undisturbed: dict[str, Any], cluster: Nodes) -> None:
    first, second = cluster.add(site=1), cluster.add(site=1)
    on_both = changed(config, embedders=2, embedder_cpus=0, embedder_resources={"site": 1})
    try:
        with driver(on_both, engine=slow) as process:
            until(state_of(config), has_committed(2), process)
            cluster.remove(first)
            process.join(PATIENCE)
            assert process.exitcode == 0
    finally:
        cluster.remove(second)
    assert outcome(state_of(config)) == undisturbed
    assert restarts(config)["embedder"] >= 1


def test_embedders_come_with_the_work_and_leave_when_it_is_done(
    config: Config, cluster: Nodes
) -> None:
    growing = changed(config, embedders_most=2, embedder_cpus=1, lag_seconds=2.0, idle_seconds=60.0)
    now = 0.0
    with workers_on(cluster, growing, clock=lambda: now) as workers:
        keys = give_work(workers, growing)
        workers.scale(len(keys))
        done = [*first_of(workers)]
        now = 5.0
        workers.scale(len(keys))
        assert workers.up()["embedder"] + workers.starting()["embedder"] == 2
        while workers.up()["embedder"] < 2:
            done += workers.wait(0.1)
        assert head() not in places_of_actors()
        # Both have something in hand when one of them is told to leave.
        keys += give_work(workers, growing)
        assert workers.up()["embedder"] == 2
        for later in (10.0, 80.0, 150.0):
            now = later
            workers.scale(0)
        assert workers.up()["embedder"] == 2
        assert workers.capacity("embedder") < len(keys)
        while len(done) < len(keys):
            done += workers.wait(0.1)
        assert all(piece.error is None for piece in done)
        assert sorted(one.task.batch_id for one in done if isinstance(one.task, EmbedBatch)) == keys
        assert workers.up()["embedder"] == 1
        assert "embedder" not in workers.restarts()


def test_nodes_that_drain_get_no_work_and_keep_nobody(config: Config, cluster: Nodes) -> None:
    both = [cluster.add(site=1) for _ in range(2)]
    on_site = changed(config, embedders=2, embedder_cpus=0, embedder_resources={"site": 1})
    try:
        with workers_on(cluster, on_site, clock=lambda: 0.0) as workers:
            while workers.up()["embedder"] < 2:
                workers.wait(0.1)
            drained = both[0].node_id
            assert drained in places_of_actors()
            keys = give_work(workers, on_site)
            drain_node(cluster, drained)
            assert drained not in {node.id for node in living_nodes()}
            workers.scale(len(keys))
            assert workers.capacity("embedder") == 2 * workers._each("embedder"), (
                "another is started"
            )
            done: list[Done] = []
            while len(done) < len(keys):
                done += workers.wait(0.1)
            assert all(piece.error is None for piece in done), "what it had in hand it finished"
            until_true(lambda: not workers.wait(0.1) and drained not in places_of_actors())
            assert (workers.up()["embedder"], workers.starting()["embedder"]) == (1, 1)
            assert "embedder" not in workers.restarts()
            both.append(cluster.add(site=1))
            until_true(lambda: not workers.wait(0.1) and workers.up()["embedder"] == 2)
            assert both[2].node_id in places_of_actors()
    finally:
        for node in both:
            cluster.remove(node)


def drain_node(cluster: Nodes, node: str) -> None:
    """As an autoscaler does before it takes a node away."""
    from ray import _raylet
    from ray.core.generated import autoscaler_pb2

    # Neither module says what it has.
    gcs: Any = getattr(_raylet, "GcsClient")(address=cluster.address)  # noqa: B009
    reasons: Any = getattr(autoscaler_pb2, "DrainNodeReason")  # noqa: B009
    deadline = int((time.time() + 600) * 1000)
    reason = reasons.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = gcs.drain_node(node, reason, "test", deadline)
    assert accepted, why


def until_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


@contextmanager
def workers_on(
    cluster: Nodes, config: Config, *, clock: Callable[[], float]
) -> Iterator[RayWorkerPool]:
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        workers = RayWorkerPool(config, places(config, living_nodes()), slow, clock=clock)
        workers.start()
        yield workers
        workers.close()
    finally:
        ray.shutdown()


def head() -> str:
    (found,) = [n.id for n in living_nodes() if "node:__internal_head__" in n.resources]
    return found


def places_of_actors() -> set[str]:
    """The nodes on which actors of any role live."""
    from ray._private.state import actors

    return {one["Address"]["NodeID"] for one in actors().values() if one["State"] == "ALIVE"}


_numbers = itertools.count()


def give_work(workers: RayWorkerPool, config: Config) -> list[int]:
    """Every batch of the story's first file, under numbers that nobody else has."""
    source = FeedStorage.at(config.feed.path)
    (plan,) = plan_files(source, source.list()[:1], columns_of(config), rows_per_batch=10)
    keys = [next(_numbers) for _ in plan.batches]
    for key, spec in zip(keys, plan.batches, strict=True):
        workers.submit(EmbedBatch(key, spec))
    return keys


def first_of(workers: RayWorkerPool) -> list[Done]:
    while True:
        if done := workers.wait(0.1):
            return done


def test_a_batch_that_kills_every_worker_is_quarantined(config: Config, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    shutil.copytree(config.feed.path, feed)
    black = _black()
    write_feed(feed / "000b.parquet", ["water"], first_id=900_000, images=[black])
    poisoned = changed(config, tries=3).model_copy(
        update={"feed": config.feed.model_copy(update={"path": str(feed)})}
    )
    assert drive(poisoned, engine=deadly) == 0
    assert sorted(image_ids(state_of(config))) == expected_ids()
    with Store.open(config.state.dir) as store, store.reading() as tx:
        assert tx.counters.value("batches", "", "quarantined") == 1
        (told,) = [e for e in tx.events.after(limit=1000) if e.kind == "batch.quarantined"]
    assert told.payload["file"].endswith("000b.parquet")
    # Those beside it in the worker's hands were not blamed: they were tried alone, and passed.
    assert 3 <= restarts(config)["embedder"] <= 12


def _black() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


#: A driver whose worker dies: Ray's report of it must reach the log, and nothing else stdout.
DYING = """
import logging, os, sys, threading
from actors.ray_cluster import connect
import ray

told = threading.Event()
handler = logging.Handler(logging.INFO)
handler.emit = lambda record: "worker died" in record.getMessage() and told.set()
logging.getLogger("actors.ray_cluster").addHandler(handler)
logging.getLogger("actors.ray_cluster").setLevel(logging.INFO)
connect(sys.argv[1])

@ray.remote(num_cpus=0)
class Mortal:
    def die(self):
        os._exit(1)

try:
    ray.get(Mortal.remote().die.remote())
except ray.exceptions.RayActorError:
    print("told" if told.wait(120) else "not told")
"""


def test_what_ray_reports_of_dead_workers_stays_out_of_our_results(cluster: Nodes) -> None:
    found = subprocess.run(
        [sys.executable, "-c", DYING, cluster.address], capture_output=True, text=True, timeout=300
    )
    assert (found.stdout, found.stderr) == ("told\n", "")


def test_resources_that_no_node_has_are_named(config: Config) -> None:
    found = conclad(config, "run.embedder_resources={moon: 1}", "run.resources_seconds=1")
    assert found.returncode == 2
    (last,) = [line for line in found.stderr.splitlines() if line.startswith("conclad: ")]
    assert "1 moon" in last
    assert "run.embedder_resources" in last


def test_a_second_monitor_is_refused(config: Config) -> None:
    with Store.open(config.state.dir) as store:
        lease = acquire_lease(store)
        second = conclad(config)
        store.release_lease(lease)
    assert second.returncode == 2
    assert "another monitor" in second.stderr


def test_sigterm_finishes_what_is_in_flight(config: Config, undisturbed: dict[str, Any]) -> None:
    state = state_of(config)
    patient = changed(config, grace_seconds=GRACE)
    with driver(patient, once=False, engine=slow) as process:
        until(state, has_committed(2), process)
        terminate(process)
        began = time.monotonic()
        process.join(GRACE + 30)
        assert process.exitcode == 0
        assert time.monotonic() - began < GRACE
    with Store.open(state) as store, store.reading() as tx:
        assert tx.events.after(limit=1000)[-1].kind == "monitor.stopped"
        # It did not simply go on to the end.
        assert tx.counts.pending_batches() > 0
    assert drive(config) == 0
    assert outcome(state) == undisturbed


def test_the_head_may_be_gone_for_a_while(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """The monitor waits for it, in its own process, and goes on with new workers."""
    state = state_of(config)
    with nodes(cpus=2) as own:
        there = changed(config, address=own.address)
        with driver(there, engine=slow) as process:
            until(state, has_committed(2), process)
            own.lose_head()
            until(state, lambda tx: "cluster" in tx.notes.get(*OUTAGES), process)
            own.start_head()
            process.join(PATIENCE)
            assert process.exitcode == 0
    with Store.open(state) as store, store.reading() as tx:
        assert tx.notes.get(*OUTAGES) == {}
    assert outcome(state) == undisturbed


def conclad(config: Config, *overrides: str) -> subprocess.CompletedProcess[str]:
    """``conclad run --once`` as a person types it, with this configuration."""
    settings = [
        f"feed.path={config.feed.path}",
        f"state.dir={config.state.dir}",
        f"run.address={config.run.address}",
        "backbone.name=tiny",
        "backbone.engine=torch",
        *overrides,
    ]
    flags = [part for setting in settings for part in ("--set", setting)]
    return subprocess.run(
        [sys.executable, "-m", "monitor.cli", "run", "--once", *flags],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CONCLAD_CACHE": str(Path(config.state.dir) / "cache")},
    )
