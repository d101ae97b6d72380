"""Rounds of questions: opened, answered, closed, and heard again after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.pipeline.pool_samples import PoolSamples, read_samples
from monitor.pipeline.pool_steps import (
    ORACLE,
    answer_from_column,
    close_round,
    is_over,
    open_round,
    recorded_answers,
    suggestion,
)
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import BudgetExceeded
from monitor.store.pool_transitions import PoolEvent, PoolState
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Question
from tests.pipeline.world import NEW, World, make_world

LIMIT = timedelta(hours=72)
NO_GUESS = {"class_id": None, "name": None, "new": False}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def pool(world: World) -> int:
    """A pool that may ask ten questions."""
    number = world.fill(NEW)
    with world.store.transaction() as tx:
        tx.pools.apply(number, PoolEvent.FILLED)
        tx.pools.begin_asking(number, budget=10, detector_version=1)
    return number


@pytest.fixture
def samples(world: World, pool: int) -> PoolSamples:
    return read_samples(world.store, pool)


def ask(world: World, pool: int, samples: PoolSamples, *rows: int) -> list[Question]:
    with world.store.transaction() as tx:
        return open_round(tx, pool, 0, [samples.sample(row, dict(NO_GUESS), None) for row in rows])


def say(world: World, question: Question, name: str | None) -> None:
    with world.store.transaction() as tx:
        answer_from_column(tx, question, name, world.current.detector)


def test_an_open_round_waits_for_people(world: World, pool: int, samples: PoolSamples) -> None:
    opened = ask(world, pool, samples, 0, 50)
    assert world.state(pool) is PoolState.WAITING
    assert [question.image_id for question in opened] == ["1-0", "1-50"]
    assert world.count("labels_spent") == 2
    (event,) = world.events("questions.opened")
    assert (event.source, event.payload["count"], event.payload["open"]) == ("cam-1", 2, 2)


def test_nobody_is_asked_beyond_the_budget(world: World, pool: int, samples: PoolSamples) -> None:
    with pytest.raises(BudgetExceeded):
        ask(world, pool, samples, *range(11))
    assert world.state(pool) is PoolState.ASKING
    assert world.count("labels_spent") == 0


def test_a_round_is_over_when_all_is_answered(
    world: World, pool: int, samples: PoolSamples
) -> None:
    first, second = ask(world, pool, samples, 0, 50)
    for question, expected in ((first, False), (second, True)):
        say(world, question, "a")
        with world.store.reading() as tx:
            assert is_over(tx, tx.pools.get(pool), LIMIT) is expected


def test_a_round_is_over_when_its_time_is(world: World, pool: int, samples: PoolSamples) -> None:
    ask(world, pool, samples, 0)
    world.clock.advance(hours=71)
    with world.store.reading() as tx:
        assert not is_over(tx, tx.pools.get(pool), LIMIT)
    world.clock.advance(hours=1)
    with world.store.reading() as tx:
        assert is_over(tx, tx.pools.get(pool), LIMIT)


def test_a_late_round_stops_the_asking(world: World, pool: int, samples: PoolSamples) -> None:
    ask(world, pool, samples, 0, 50)
    world.clock.advance(hours=72)
    with world.store.transaction() as tx:
        close_round(tx, tx.pools.get(pool), LIMIT)
    assert world.state(pool) is PoolState.ASKING
    assert world.pool(pool).evidence["stopped"] == "unanswered"
    (event,) = world.events("questions.closed")
    assert (event.payload["answered"], event.payload["unanswered"]) == (0, 2)


def test_a_round_that_all_answered_does_not_stop_however_late(
    world: World, pool: int, samples: PoolSamples
) -> None:
    (question,) = ask(world, pool, samples, 0)
    say(world, question, "a")
    world.clock.advance(hours=100)
    with world.store.transaction() as tx:
        close_round(tx, tx.pools.get(pool), LIMIT)
    assert "stopped" not in world.pool(pool).evidence


def test_answers_count_what_looked_new_and_was_not(
    world: World, pool: int, samples: PoolSamples
) -> None:
    new, other, unsure, calm = ask(world, pool, samples, 50, 51, 52, 0)
    for question, name in ((new, "sand"), (other, "a"), (unsure, ""), (calm, "a")):
        say(world, question, name)
    assert calm.score_ratio < 1 < new.score_ratio
    with world.store.transaction() as tx:
        close_round(tx, tx.pools.get(pool), LIMIT)
    counted = {
        label: world.count("false_novel", label) for label in ("new", "known", "cannot_tell")
    }
    assert counted == {"new": 1, "known": 1, "cannot_tell": 1}, "what did not look new is no case"


def test_recorded_answers_are_those_of_closed_rounds(
    world: World, pool: int, samples: PoolSamples
) -> None:
    first, second = ask(world, pool, samples, 3, 50)
    say(world, first, "a")
    say(world, second, "sand")
    with world.store.transaction() as tx:
        assert recorded_answers(tx, pool, samples) == {}, "people may still change their minds"
        close_round(tx, tx.pools.get(pool), LIMIT)
        sand = tx.classes.ensure("sand", ClassOrigin.PERSON)
        assert recorded_answers(tx, pool, samples) == {3: "c1", 50: sand.id}


def test_recorded_answers_follow_merged_classes(
    world: World, pool: int, samples: PoolSamples
) -> None:
    (question,) = ask(world, pool, samples, 50)
    say(world, question, "sand")
    with world.store.transaction() as tx:
        close_round(tx, tx.pools.get(pool), LIMIT)
        sand = tx.classes.ensure("sand", ClassOrigin.PERSON)
        tx.classes.merge(sand.id, into="c1")
        assert recorded_answers(tx, pool, samples) == {50: "c1"}


def test_a_column_answers_in_place_of_people(world: World, pool: int, samples: PoolSamples) -> None:
    known, new, nothing = ask(world, pool, samples, 0, 50, 51)
    say(world, known, " a ")
    say(world, new, "sand")
    say(world, nothing, None)
    say(world, new, "sand")
    with world.store.reading() as tx:
        standing = tx.answers.standing(pool)
    kinds = {number: answer.kind for number, answer in standing.items()}
    assert kinds == {
        known.id: AnswerKind.KNOWN_CLASS,
        new.id: AnswerKind.NEW_CLASS,
        nothing.id: AnswerKind.CANNOT_TELL,
    }
    assert {answer.who for answer in standing.values()} == {ORACLE}


def test_a_suggestion_is_a_living_class_or_nothing(world: World) -> None:
    with world.store.transaction() as tx:
        sand = tx.classes.ensure("sand", ClassOrigin.PERSON)
        detector = world.current.detector
        assert suggestion(tx, None, detector) == NO_GUESS
        expected = {"class_id": "c1", "name": "a", "new": False}
        assert suggestion(tx, "c1", detector) == expected
        assert suggestion(tx, "a", detector) == NO_GUESS, "names change; ids do not"
        assert suggestion(tx, sand.id, detector) == {
            "class_id": sand.id,
            "name": "sand",
            "new": True,
        }
        tx.classes.rename("c1", "highway")
        assert suggestion(tx, "c1", detector)["name"] == "highway"
        tx.classes.merge(sand.id, "c1")
        assert suggestion(tx, sand.id, detector)["class_id"] == "c1"
        tx.classes.retire("c1")
        assert suggestion(tx, "c1", detector) == suggestion(tx, sand.id, detector) == NO_GUESS
