"""The tasks of workers: each travels as a value, and says who runs it with which detectors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.worker_pool import WORKERS
from monitor.feed.batch_plan import PlannedBatch, plan_batches
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.input_contract import Columns
from monitor.jobs.from_config import open_engine_of
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.trigger import measure_pool_novelty
from monitor.novelty.trigger.measure_pool_novelty import PoolNovelty, measure_novelty
from monitor.pipeline.finish_pool import SettlementInput
from monitor.pipeline.inner_loop_driver import LoopConclusion, LoopInput, RoundToAsk
from monitor.pipeline.pool_inspection import SourceHistory
from monitor.pipeline.worker_tasks import (
    ROLES,
    AdvanceInnerLoop,
    BatchEmbedder,
    ClusterPool,
    EmbedBatch,
    InspectPool,
    RenderThumbnails,
    ScoreBatch,
    SettlePool,
    Task,
    UpdaterTools,
)
from monitor.store import ScoredBatch
from monitor.store.verdict_columns import STATS
from tests.jobs.feeds import config_for, picture, write_feed
from tests.pipeline.world import NEW, images, known_detector

FEATURES = images(NEW, 1)
NOBODY = LoopInput(pool_id=1, budget=9, seed=0, rounds=0, answers={})
TASKS: list[tuple[Task, str, tuple[int, ...]]] = [
    (EmbedBatch(1, PlannedBatch(FeedFile("a", 1, 1), 0, 4)), "embedder", ()),
    (ScoreBatch(1, 3), "scorer", (3,)),
    (RenderThumbnails(1, (("a", 0),), of="questions"), "querier", ()),
    (
        InspectPool(
            1,
            3,
            FEATURES,
            np.asarray(["cam-1"] * len(FEATURES), dtype=object),
            np.empty((0, STATS), np.float32),
            SourceHistory({}, {"cam-1": 0.0}),
            DriftSettings(),
        ),
        "updater",
        (3,),
    ),
    (AdvanceInnerLoop(1, 3, 2, NOBODY, {}, FEATURES), "updater", (2, 3)),
    (ClusterPool(1, 3, FEATURES, 0), "updater", (3,)),
]


@pytest.mark.parametrize(("task", "role", "versions"), TASKS)
def test_a_task_names_its_role_and_its_detectors(
    task: Task, role: str, versions: tuple[int, ...]
) -> None:
    assert task.role == role
    assert task.versions == versions


@pytest.mark.parametrize("task", [task for task, _, _ in TASKS])
def test_a_task_travels_between_processes(task: Task) -> None:
    arrived = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes
    assert type(arrived) is type(task)
    assert (arrived.role, arrived.versions) == (task.role, task.versions)


def test_every_role_has_a_worker() -> None:
    assert set(WORKERS) == set(ROLES) == {task.role for task, _, _ in TASKS}


def test_an_inspection_keeps_the_sketch_of_its_version() -> None:
    tools, detector = UpdaterTools(), known_detector()
    first = tools.sketch_of(3, detector)
    assert tools.sketch_of(3, detector) is first
    assert tools.sketch_of(4, detector) is not first


def test_updates_run_with_the_detectors_in_their_order() -> None:
    tools, detector = UpdaterTools(), known_detector()
    inspect, advance, cluster = (task for task, role, _ in TASKS if role == "updater")
    assert isinstance(inspect, InspectPool)
    assert inspect.run(tools, detector).novel["cam-1"] >= 15
    assert isinstance(advance, AdvanceInnerLoop)
    asked = advance.run(tools, detector, detector)
    assert isinstance(asked, RoundToAsk)
    assert min(asked.samples) >= 0
    assert isinstance(cluster, ClusterPool)
    found = cluster.run(tools, detector)
    assert isinstance(found, LoopConclusion)
    assert found.provisional


def test_a_pool_that_is_inspected_and_settled_is_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And settled as by an updater that has not seen it before."""
    measured: list[int] = []

    def counted(*args: Any, **settings: Any) -> PoolNovelty:
        measured.append(1)
        return measure_novelty(*args, **settings)

    monkeypatch.setattr(measure_pool_novelty, "measure_novelty", counted)
    tools, detector = UpdaterTools(), known_detector()
    (inspect,) = (task for task, _, _ in TASKS if isinstance(task, InspectPool))
    state = SettlementInput(1, {}, ("cam-1",) * len(FEATURES), (), seed=0)
    settle = SettlePool(1, 3, 3, state, FEATURES)
    inspect.run(tools, detector)
    found = settle.run(tools, detector, detector)
    assert len(measured) == 1
    afresh = settle.run(UpdaterTools(), detector, detector)
    assert len(measured) == 2
    assert found.settled.verdicts == afresh.settled.verdicts
    assert np.array_equal(found.settled.probability, afresh.settled.probability)


def test_a_batch_is_embedded_and_scored_row_by_row(tmp_path: Path) -> None:
    kinds = ["water", "forest"] * 10
    content = [picture(kind, i) for i, kind in enumerate(kinds)]
    content[3] = b"no image"
    write_feed(tmp_path / "feed" / "a.parquet", kinds, images=content)
    source = FeedStorage.at(tmp_path / "feed")
    (planned,) = plan_batches(source, source.list()[0])
    config = config_for(tmp_path)
    with open_engine_of(config) as engine:
        embedder = BatchEmbedder(source, Columns(), engine)
        seconds, batch = EmbedBatch(7, planned).run(embedder)
        again = embedder.embed(planned)
        embedder.close()
    assert seconds > 0
    assert [row.row for row in batch.rows] == [i for i in range(20) if i != 3]
    assert [row.row for row in batch.rejected] == [3]
    assert np.allclose(batch.features, again.features)
    assert batch.stats.shape == (19, STATS)
    labels = [kinds[row.row] for row in batch.rows]
    repeated = np.concatenate([batch.features] * 6)
    noise = np.random.default_rng(0).normal(0, 1e-3, repeated.shape).astype(np.float32)
    detector = Detector.fit(repeated + noise, labels * 6)
    scored = ScoreBatch(7, 3).run(None, detector, batch)
    assert isinstance(scored, ScoredBatch)
    assert (scored.batch_id, scored.detector_version, scored.pool_id) == (7, 3, None)
    assert scored.verdicts.num_rows + scored.rejected.num_rows == planned.rows
    assert scored.verdicts.column("nearest_class_name").to_pylist() == labels
    assert scored.exceedance == detector.calibration.exceedance
