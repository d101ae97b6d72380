"""Teaching from the gallery works like an answer, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.config.schema import GateSection
from monitor.novelty.detector import KnownClass
from monitor.people.answer_questions import Said, Word, give
from monitor.people.errors import NotPossible
from monitor.people.teach_images import call_no_image, called_no_image, teach, unteach
from monitor.people.version_manifest import current_knowledge
from monitor.pipeline.pool_samples import answer_from_lessons, read_samples, taught_samples
from monitor.pipeline.pool_steps import open_round
from monitor.store import Store, check
from monitor.store.pool_images import find_in_pools
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import QuestionState
from monitor.store.snapshots import load_snapshot
from monitor.store.verdict_columns import read_table
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


def test_what_is_no_image_is_marked_and_comes_back(taught: Store) -> None:
    call_no_image(taught, DUNES, who="ada", action="lesson-1")
    with taught.reading() as tx:
        assert len(called_no_image(tx)) == 3
    assert unteach(taught, "lesson-1", who="ada", action="undo-1") == "3 images are back"
    with taught.reading() as tx:
        assert not called_no_image(tx)


def known_class(store: Store, id: str) -> KnownClass:
    with store.reading() as tx:
        current = tx.versions.current()
    assert current is not None
    return load_snapshot(store.folder, current.snapshot).find(id)


def test_a_young_class_learns_as_from_an_answer_and_can_go_on_growing(taught: Store) -> None:
    first = teach(taught, DUNES, "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    before = known_class(taught, first.class_id or "")
    more = [("cam-1", f"{row:05d}") for row in range(9, 27, 3)]
    done = teach(taught, more, "dune", who="bo", action="lesson-2", gate=OPEN_GATE, seed=0)
    after = known_class(taught, done.class_id or "")
    assert after.human == before.human + len(more)
    assert len(after.modes) == 1, "a class of several looks would not grow any more"


def test_what_a_known_class_does_not_explain_becomes_a_look_of_its_own(taught: Store) -> None:
    done = teach(taught, DUNES, "water", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    water = known_class(taught, done.class_id or "")
    assert len(water.modes) == 2
    with taught.reading() as tx:
        current = tx.versions.current()
    assert current is not None
    detector = load_snapshot(taught.folder, current.snapshot)
    [rows] = find_in_pools(taught, DUNES).values()
    named = read_samples(taught, 1).features[rows]
    assert not detector.score(named).novel.any(), "they look known now"


def test_one_of_two_people_names_a_class_without_confirming_it(taught: Store) -> None:
    samples = read_samples(taught, 1)
    with taught.transaction() as tx:
        tx.pools.begin_asking(1, budget=4, detector_version=1)
        opened = open_round(tx, 1, 0, [samples.sample(index, {}, None) for index in (90, 91)])
    for who, question in zip(("ada", "bo"), opened, strict=True):
        give(taught, [Said(question.id, Word.CLASS, "water")], who=who, action=f"answer-{who}")
    done = teach(
        taught,
        DUNES,
        "dune",
        who="ada",
        action="lesson-1",
        gate=OPEN_GATE,
        seed=0,
        confirm_people=2,
    )
    assert not known_class(taught, done.class_id or "").confirmed


def test_the_pool_takes_a_lesson_for_an_answer(taught: Store) -> None:
    done = teach(taught, DUNES, "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    samples = read_samples(taught, 1)
    with taught.reading() as tx:
        found = taught_samples(taught, tx, 1, samples)
    assert sorted(i for i, one in found.items() if one.by_person) == [0, 3, 6]
    assert len(found) == 3 + done.pseudo
    assert {one.class_id for one in found.values()} == {done.class_id}
    unteach(taught, "lesson-1", who="ada", action="undo-1")
    with taught.reading() as tx:
        assert taught_samples(taught, tx, 1, samples) == {}


def test_what_was_named_already_is_not_asked_about(taught: Store) -> None:
    teach(taught, DUNES, "dune", who="ada", action="lesson-1", gate=OPEN_GATE, seed=0)
    samples = read_samples(taught, 1)
    with taught.transaction() as tx:
        current = tx.versions.current()
        assert current is not None
        tx.pools.begin_asking(1, budget=4, detector_version=1)
        chosen = [3, 4]
        asked = [samples.sample(index, {}, None) for index in chosen]
        opened = open_round(tx, 1, 0, asked)
        found = taught_samples(taught, tx, 1, samples)
        detector = load_snapshot(taught.folder, current.snapshot)
        answer_from_lessons(tx, opened, chosen, found, detector)
    with taught.reading() as tx:
        states = [tx.questions.get(one.id).state for one in opened]
        [answer] = tx.answers.standing(1).values()
    assert states == [QuestionState.ANSWERED, QuestionState.OPEN]
    assert answer.who == "ada"
