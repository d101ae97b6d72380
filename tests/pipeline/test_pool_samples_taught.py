"""What people name without being asked counts for its pool as an answer does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.config.schema import GateSection
from monitor.people.teach_images import teach, unteach
from monitor.store import check
from monitor.store.read_verdicts import standing_rows
from tests.pipeline.world import NEW, World, make_world

OPEN_GATE = GateSection(stolen_most=1.0, false_novel_most=1.0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    assert check(made.store) == []
    made.store.close()


def name_new(world: World, count: int, action: str = "lesson-1", file: int = 1) -> list[str]:
    """Name the first images of the new kind; returns their ids."""
    rows = [row for row, kind in enumerate(NEW) if kind == "n"][:count]
    ids = [f"{file}-{row}" for row in rows]
    keys = [("cam-1", id) for id in ids]
    teach(world.store, keys, "new", who="ada", action=action, gate=OPEN_GATE, seed=0)
    return ids


def settled_as(world: World, pool: int) -> dict[str, tuple[str, str | None, str]]:
    rows = standing_rows(world.store, [pool]).to_pylist()
    return {row["image_id"]: (row["verdict"], row["class_name"], row["by"]) for row in rows}


def test_images_named_in_a_filling_pool_are_settled_by_the_person(world: World) -> None:
    pool = world.fill(NEW)
    named = name_new(world, 4)
    world.settle(answer=lambda kind: "new" if kind == "n" else kind)
    found = settled_as(world, pool)
    assert {found[id][1:] for id in named} == {("new", "person")}
    assert not set(named) & {question.image_id for question in world.questions(pool)}


def test_a_lesson_that_was_taken_back_settles_nothing(world: World) -> None:
    pool = world.fill(NEW)
    named = name_new(world, 4)
    unteach(world.store, "lesson-1", who="ada", action="undo-1")
    world.settle(answer=lambda kind: None)
    assert "new" not in {settled_as(world, pool)[id][1] for id in named}


def test_a_class_taught_by_hand_goes_on_growing_with_the_next_pool(world: World) -> None:
    world.fill(NEW)
    name_new(world, 6)
    world.settle(answer=lambda kind: "new" if kind == "n" else kind)
    before = world.current.detector.find("new")
    world.fill(NEW)
    world.settle(answer=lambda kind: "new" if kind == "n" else kind)
    after = world.current.detector.find("new")
    assert len(after.modes) == 1
    assert after.human + after.pseudo > before.human + before.pseudo
    assert {one.payload["name"] for one in world.events("class.grown", "class.confirmed")} == {
        "new"
    }
