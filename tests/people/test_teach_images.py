"""Teaching from the gallery works like an answer, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.config.schema import GateSection
from monitor.people.errors import NotPossible
from monitor.people.teach_images import call_no_image, set_aside, teach, unteach
from monitor.people.version_manifest import current_knowledge
from monitor.store import Store, check
from monitor.store.output_files import read_table
from monitor.store.pool_transitions import PoolEvent
from monitor.store.states import QuestionState
from tests.desk import gallery_world
from tests.people import world
from tests.store.building import settle_pool

DUNES = [("cam-1", "00000"), ("cam-1", "00003"), ("cam-1", "00006")]
OPEN_GATE = GateSection(stolen_most=1.0, false_novel_most=1.0)


@pytest.fixture
def taught(tmp_path: Path) -> Iterator[Store]:
    gallery_world.make(tmp_path / "state", images=300, novel=90)
    with Store.open(tmp_path / "state") as store:
        yield store


def name(store: Store, images: list[tuple[str, str]], class_: str, **changes: object) -> object:
    options = {"who": "ada", "action": "lesson-1", "gate": OPEN_GATE, "seed": 0, **changes}
    return teach(store, images, class_, **options)  # type: ignore[arg-type]


def test_a_new_name_becomes_a_class_with_what_follows_it(taught: Store) -> None:
    done = teach(taught, DUNES, "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    assert (done.human, done.version, done.held) == (3, 2, False)
    assert 10 <= done.pseudo <= 27, "thirty are of its kind, three of them named"
    known = current_knowledge(taught).classes[done.class_id or ""]
    assert (known.name, known.human, known.pseudo) == ("dune", 3, done.pseudo)
    with taught.reading() as tx:
        [output] = tx.outputs.of_kind("discoveries")
    rows = read_table(taught.folder, output.name).to_pylist()
    assert {int(row["image_id"]) % 3 for row in rows} == {0}, "and all of them are dunes"
    again = teach(taught, DUNES, "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    assert again.version == done.version
    assert [one for one in check(taught) if one.severity == "error"] == []


def test_the_gate_holds_what_would_do_harm(taught: Store) -> None:
    done = teach(
        taught,
        DUNES,
        "dune",
        who="ada",
        action="lesson-1",
        gate=GateSection(least_labels=9),
        seed=0,
    )
    assert done.held
    assert "dune" not in {one.name for one in current_knowledge(taught).classes.values()}
    assert "not used" in unteach(taught, "lesson-1", who="ada", action="undo-1")


def test_a_lesson_is_taken_back_by_whoever_gave_it(taught: Store) -> None:
    name(taught, DUNES, "dune")
    with pytest.raises(NotPossible, match="taught by ada"):
        unteach(taught, "lesson-1", who="bo", action="undo-1")
    unteach(taught, "lesson-1", who="ada", action="undo-1")
    assert set(current_knowledge(taught).classes) == {"c1", "c2"}
    with pytest.raises(NotPossible, match="nothing to take back"):
        unteach(taught, "lesson-1", who="ada", action="undo-2")


def test_open_questions_about_the_images_are_answered_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "state") as store:
        world.fit(store)
        first, *_ = world.ask(store, 8)
        image = (first.source_id, first.image_id)
        done = teach(store, [image], "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
        assert done.answered == 1
        with store.reading() as tx:
            assert tx.questions.get(first.id).state is QuestionState.ANSWERED


def test_features_that_are_gone_teach_nothing(taught: Store) -> None:
    with taught.transaction() as tx:
        tx.pools.apply(1, PoolEvent.FOUND_CALM)
    settle_pool(taught, 1)
    with taught.transaction() as tx:
        tx.pools.drop_members(1)
    with pytest.raises(NotPossible, match="keep_features_hours"):
        name(taught, DUNES, "dune")


def test_what_is_no_image_is_set_aside_and_comes_back(taught: Store) -> None:
    call_no_image(taught, DUNES, who="ada", action="lesson-1")
    with taught.reading() as tx:
        assert len(set_aside(tx)) == 3
    assert unteach(taught, "lesson-1", who="ada", action="undo-1") == "3 images are back"
    with taught.reading() as tx:
        assert not set_aside(tx)
