"""From a conclusion to a version: what is written together, what the gate holds, what is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.novelty.detector import KnownClass
from monitor.novelty.drift.adaptation import AdaptedClass
from monitor.novelty.inner_loop import Discovery
from monitor.novelty.pseudo_labeller import AT_THE_END, PseudoLabel
from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.pool_results import publish_version
from monitor.pipeline.pool_samples import PoolSamples, read_samples
from monitor.pipeline.version_gate import compare_versions
from monitor.store import Severity, check
from monitor.store.errors import WrongState
from monitor.store.exemplars import missing_thumbnails
from monitor.store.pool_transitions import PoolEvent, PoolState
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.records import Version
from monitor.store.verdict_columns import current, read_table
from tests.pipeline.world import NEW, World, make_world

NEW_ROWS = range(40, 60)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    assert [found for found in check(made.store) if found.severity is not Severity.NOTE] == []
    made.store.close()


@pytest.fixture
def samples(world: World) -> PoolSamples:
    """A pool that is being asked about; its last twenty images are new."""
    pool = world.fill(NEW)
    with world.store.transaction() as tx:
        tx.pools.apply(pool, PoolEvent.FILLED)
        tx.pools.begin_asking(pool, budget=10, detector_version=1)
        tx.classes.add("sand", ClassOrigin.PERSON, class_id="c9")
    return read_samples(world.store, pool)


def found_sand(world: World, samples: PoolSamples, *, human: int = 3) -> LoopConclusion:
    before = world.current.detector
    rows = list(NEW_ROWS)
    pseudo = tuple(PseudoLabel(i, "c9", 0.5 + i / 200, AT_THE_END) for i in rows[human:])
    sand = KnownClass.fit(
        "c9",
        "sand",
        samples.features[rows],
        settings=before.settings,
        rng=np.random.default_rng(0),
        origin="discovered",
        said=np.arange(len(rows)) < human,
    )
    after = before.with_classes([sand])
    return LoopConclusion(
        outcome="new",
        discoveries=(Discovery("c9", tuple(rows[:human]), pseudo),),
        detector=after,
        gate_report=compare_versions(before, after),
        rounds=2,
        above=20,
        missed=0.0,
        seconds=1.5,
    )


def publish(world: World, found: LoopConclusion, samples: PoolSamples) -> Version:
    return publish_version(world.store, found, samples, 1, world.config.gate, None)


def test_a_version_and_everything_with_it_is_published(world: World, samples: PoolSamples) -> None:
    version = publish(world, found_sand(world, samples), samples)
    assert (version.number, version.state) == (2, VersionState.PUBLISHED)
    assert world.current.number == 2
    assert world.state(samples.pool_id) is PoolState.RESOLVED
    assert world.count("discoveries") == 1
    assert world.count("inner_loops", "discovered") == 1
    assert world.count("pseudo_labels", "accepted") == 17
    assert world.count("inner_loop_seconds") == 1.5
    assert version.evidence["gate"]["labels"] == {"sand": 3}


def test_the_event_names_the_class_its_evidence_and_its_sources(
    world: World, samples: PoolSamples
) -> None:
    publish(world, found_sand(world, samples), samples)
    (event,) = world.events("class.discovered")
    assert event.source == "cam-1"
    assert event.payload == {
        "class_id": "c9",
        "name": "sand",
        "pool": samples.pool_id,
        "human": 3,
        "pseudo": 17,
        "confirmed": True,
        "sources": {"cam-1": 20},
    }


def test_discoveries_say_who_assigned_each_image(world: World, samples: PoolSamples) -> None:
    publish(world, found_sand(world, samples), samples)
    (name,) = current(world.store.folder, "discoveries")
    rows = read_table(world.store.folder, name).to_pylist()
    assert [row["row"] for row in rows] == list(NEW_ROWS)
    assert [row["by"] for row in rows] == ["person"] * 3 + ["pseudo-label"] * 17
    assert {row["detector_version"] for row in rows} == {2}
    assert {(row["class_id"], row["class_name"]) for row in rows} == {("c9", "sand")}
    assert [row["confidence"] is None for row in rows] == [True] * 3 + [False] * 17


def test_the_least_certain_pseudo_labels_wait_for_their_thumbnails(
    world: World, samples: PoolSamples
) -> None:
    publish(world, found_sand(world, samples), samples)
    with world.store.reading() as tx:
        wanted = missing_thumbnails(tx)[samples.pool_id]["c9"]
    assert len(wanted) == 17
    assert wanted[0].row == 43


def test_the_gate_holds_a_version_with_its_reason(world: World, samples: PoolSamples) -> None:
    world.configure("gate", least_labels=5)
    version = publish(world, found_sand(world, samples), samples)
    assert version.state is VersionState.HELD
    assert "gate.least_labels" in str(version.reason)
    assert world.current.number == 1
    assert world.state(samples.pool_id) is PoolState.HELD
    assert world.events("class.discovered") == []
    assert world.count("discoveries") == 0
    assert world.count("inner_loops", "held") == 1
    assert current(world.store.folder, "discoveries") == []


def test_provisional_classes_pass_the_gate_and_say_so(world: World, samples: PoolSamples) -> None:
    world.configure("gate", least_labels=5)
    found = replace(found_sand(world, samples, human=0), provisional=True)
    version = publish(world, found, samples)
    assert version.state is VersionState.PUBLISHED


def test_publishing_twice_is_publishing_once(world: World, samples: PoolSamples) -> None:
    found = found_sand(world, samples)
    first = publish(world, found, samples)
    assert publish(world, found, samples) == first
    assert world.count("discoveries") == 1


def test_a_version_of_another_parent_is_refused(world: World, samples: PoolSamples) -> None:
    found = found_sand(world, samples)
    with pytest.raises(WrongState, match="computed from detector version 7"):
        publish_version(world.store, found, samples, 7, world.config.gate, None)
    assert world.state(samples.pool_id) is PoolState.ASKING
    assert world.count("inner_loops", "discovered") == 0


def test_an_adaptation_that_settles_nothing_is_told(world: World, samples: PoolSamples) -> None:
    note = {"state": {}, "verdict": {"shifted": True}}
    with world.store.transaction() as tx:
        tx.notes.set("drift", "cam-1", note)
    found = found_sand(world, samples)
    learnt = AdaptedClass("c1", "a", samples=20, distance=0.4)
    adapted = replace(found, discoveries=(), adapted={"cam-1": (learnt,)}, settled=())
    publish(world, adapted, samples)
    assert world.count("inner_loops", "adapted") == 1
    (event,) = world.events("detector.adapted")
    assert (event.source, event.payload) == ("cam-1", {"classes": ["a"]})
    assert world.events("class.discovered") == []
    with world.store.reading() as tx:
        assert tx.notes.get("drift", "cam-1") == note, "not settled: the shift is still one"
