"""Answers go in together, are judged one by one, and are taken back together."""

from __future__ import annotations

import pytest

from monitor.people.answer_questions import (
    MOST_AT_ONCE,
    Fate,
    Said,
    Word,
    find_class,
    give,
    take_back,
    take_back_last,
)
from monitor.people.class_corrections import merge
from monitor.people.errors import BadAnswer
from monitor.store import Store
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import WrongState
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import ClassOrigin, QuestionState
from tests.people import world
from tests.store.building import sample


def states(store: Store) -> dict[int, QuestionState]:
    with store.reading() as tx:
        return {question.id: question.state for question in tx.questions.of_pool(1)}


def test_known_and_new_are_told_apart_by_the_detector_in_use(store: Store) -> None:
    world.ask(store, 4)
    said = [
        Said(1, Word.CLASS, "water"),
        Said(2, Word.CLASS, "c1"),
        Said(3, Word.CLASS, "  sand   dune "),
        Said(4, Word.CANNOT_TELL),
    ]
    receipts = give(store, said, who="ada", action="a")
    assert [one.fate for one in receipts] == [Fate.ACCEPTED] * 4
    assert [one.class_name for one in receipts] == ["water", "forest", "sand dune", None]
    assert [one.new_class for one in receipts] == [False, False, True, False]
    with store.reading() as tx:
        kinds = [tx.answers.standing(1)[number].kind for number in range(1, 5)]
    assert kinds == [
        AnswerKind.KNOWN_CLASS,
        AnswerKind.KNOWN_CLASS,
        AnswerKind.NEW_CLASS,
        AnswerKind.CANNOT_TELL,
    ]


def test_sending_an_action_again_changes_nothing(store: Store) -> None:
    world.ask(store, 4)
    said = [Said(number, Word.BAD_IMAGE) for number in (1, 2)]
    give(store, said, who="ada", action="a")
    again = give(store, said, who="ada", action="a")
    assert [one.fate for one in again] == [Fate.REPEATED] * 2
    with store.reading() as tx:
        assert len(tx.answers.by_person("ada")) == 2


def test_the_second_answer_is_told_who_was_first(store: Store) -> None:
    world.ask(store, 4)
    give(store, [Said(1, Word.CLASS, "dune")], who="ada", action="a")
    [second] = give(store, [Said(1, Word.CLASS, "water")], who="bob", action="b")
    assert second.fate is Fate.CONFLICT
    assert second.message == (
        "question 1: ada answered 'dune' before you; yours is kept as a conflict"
    )
    give(store, [Said(1, Word.CLASS, "dune")], who="cyd", action="c")
    with store.reading() as tx:
        later = [one.who for one in tx.answers.of_question(1) if one.outcome == "conflict"]
    assert later == ["bob", "cyd"], "kept, also where it agrees"


def test_one_bad_answer_costs_one_answer(store: Store) -> None:
    world.ask(store, 4)
    with store.transaction() as tx:
        tx.pools.apply(1, PoolEvent.ROUND_CLOSED)
        tx.questions.close_round(1, 1)
        tx.questions.open(1, 2, [sample(1, 3, image_id="late", spool_row=77)])
    said = [
        Said(99, Word.CLASS, "lava"),
        Said(1, Word.CLASS, "magma"),
        Said(5, Word.CLASS, "dune"),
        Said(5, Word.CLASS, "a\u200bb"),
    ]
    receipts = give(store, said, who="ada", action="a")
    assert [one.fate for one in receipts] == [
        Fate.REFUSED,
        Fate.REFUSED,
        Fate.ACCEPTED,
        Fate.REFUSED,
    ]
    assert "no such question" in receipts[0].message
    assert "round 1 of pool 1 has ended" in receipts[1].message
    with store.reading() as tx:
        names = {row.name for row in tx.classes.all()}
    assert names == {"water", "forest", "dune"}, "a refused answer leaves no class behind"


def test_an_old_id_means_the_class_it_was_merged_into(store: Store) -> None:
    world.ask(store, 4)
    with store.transaction() as tx:
        lake = tx.classes.add("lake", ClassOrigin.PERSON)
    merge(store, [lake.id], "c2", who="ada")
    [receipt] = give(store, [Said(1, Word.CLASS, lake.id)], who="ada", action="a")
    assert receipt.class_name == "water"
    with store.reading() as tx:
        assert find_class(tx, "lake") is None


def test_too_many_at_once_are_refused_before_any(store: Store) -> None:
    said = [Said(number, Word.CANNOT_TELL) for number in range(MOST_AT_ONCE + 1)]
    with pytest.raises(BadAnswer, match="at most"):
        give(store, said, who="ada", action="a")


@pytest.mark.parametrize("bad", [(Word.CLASS, None), (Word.BAD_IMAGE, "dune")])
def test_an_answer_says_exactly_one_thing(bad: tuple[Word, str | None]) -> None:
    with pytest.raises(BadAnswer, match="not both"):
        Said(1, *bad)


def test_undo_takes_back_what_was_given_together(store: Store) -> None:
    world.ask(store, 8)
    give(store, [Said(1, Word.CLASS, "dune")], who="ada", action="a")
    give(store, [Said(n, Word.CLASS, "dune") for n in (2, 3, 4)], who="ada", action="b")
    give(store, [Said(5, Word.CLASS, "dune")], who="bob", action="c")
    back = take_back_last(store, who="ada", action="u1")
    assert [one.question_id for one in back] == [2, 3, 4]
    again = take_back_last(store, who="ada", action="u1")
    assert again == back, "a repeated undo takes nothing else back"
    assert [one.question_id for one in take_back_last(store, who="ada", action="u2")] == [1]
    found = states(store)
    assert [number for number, state in found.items() if state is QuestionState.ANSWERED] == [5]
    with pytest.raises(WrongState, match="nothing to take back"):
        take_back_last(store, who="ada", action="u3")


def test_an_undone_and_repeated_answer_can_be_undone_again(store: Store) -> None:
    world.ask(store, 4)
    give(store, [Said(1, Word.CLASS, "dune"), Said(2, Word.BAD_IMAGE)], who="ada", action="a")
    take_back(store, 1, who="ada", action="u1")
    assert [one.question_id for one in take_back_last(store, who="ada", action="u2")] == [2]
    give(store, [Said(1, Word.CLASS, "water")], who="ada", action="b")
    assert [one.question_id for one in take_back_last(store, who="ada", action="u3")] == [1]


def test_only_an_admin_takes_back_what_others_said(store: Store) -> None:
    world.ask(store, 4)
    give(store, [Said(1, Word.CLASS, "dune")], who="ada", action="a")
    with pytest.raises(WrongState, match="answered by ada"):
        take_back(store, 1, who="bob", action="u")
    take_back(store, 1, who="root", action="u", anybodys=True)
    assert states(store)[1] is QuestionState.OPEN
