"""Pools, questions, answers and leases: what people rely on at the desk."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitor.store import Store, check
from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.errors import (
    BudgetExceeded,
    ClientIdReused,
    LeaseHeld,
    LeaseLost,
    NotFound,
    QuestionClosed,
    WrongState,
)
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import ClassOrigin, QuestionState
from monitor.store.records import Question
from tests.store.building import plan_feed, sample
from tests.store.conftest import Clock, Place

MINUTE = timedelta(minutes=1)


def ask(store: Store, count: int = 3, budget: int = 5) -> list[Question]:
    """A pool in round 1 with some questions and two classes."""
    plan_feed(store)
    with store.transaction() as tx:
        tx.classes.add("water", ClassOrigin.FIT)
        tx.classes.add("dune", ClassOrigin.PERSON)
        pool = tx.pools.open()
        tx.pools.apply(pool.id, PoolEvent.FILLED)
        tx.pools.begin_asking(pool.id, budget=budget, detector_version=1)
        return tx.questions.open(pool.id, 1, [sample(1, row) for row in range(count)])


def test_a_replay_asks_nobody_twice(store: Store) -> None:
    first = ask(store)
    with store.transaction() as tx:
        again = tx.questions.open(1, 1, [sample(1, row) for row in range(4)])
        assert [question.id for question in again] == [*(question.id for question in first), 4]
        assert tx.pools.get(1).asked == 4


def test_the_budget_is_never_exceeded(store: Store) -> None:
    ask(store, count=5)
    with (
        pytest.raises(BudgetExceeded, match="5 of 5 labels are spent, 1 more do not fit"),
        store.transaction() as tx,
    ):
        tx.questions.open(1, 2, [sample(1, 7)])
    with store.reading() as tx:
        assert len(tx.questions.of_pool(1)) == 5
    assert check(store) == []


def test_only_an_asking_pool_opens_queries(store: Store) -> None:
    ask(store)
    with store.transaction() as tx:
        tx.pools.apply(1, PoolEvent.ROUND_OPENED)
    with pytest.raises(WrongState, match="is waiting"), store.transaction() as tx:
        tx.questions.open(1, 2, [sample(1, 7)])


def test_the_first_answer_stands_and_the_second_is_recorded(store: Store) -> None:
    question, *_ = ask(store)
    with store.transaction() as tx:
        one = tx.answers.record(
            question.id, AnswerKind.NEW_CLASS, who="ada", client_id="1", class_id="class-2"
        )
    with store.transaction() as tx:
        two = tx.answers.record(question.id, AnswerKind.BAD_IMAGE, who="bob", client_id="2")
    assert one.accepted
    assert two.answer.outcome is AnswerOutcome.CONFLICT
    with store.reading() as tx:
        assert tx.questions.get(question.id).answer_id == one.answer.id
        assert list(tx.answers.standing(1).values()) == [one.answer]
        assert len(tx.answers.of_question(question.id)) == 2


def test_sending_twice_is_harmless(store: Store) -> None:
    question, other, _ = ask(store)
    for repeated in (False, True):
        with store.transaction() as tx:
            sent = tx.answers.record(question.id, AnswerKind.CANNOT_TELL, who="ada", client_id="1")
            assert sent.repeated is repeated
            assert sent.accepted
    with pytest.raises(ClientIdReused, match="fresh id"), store.transaction() as tx:
        tx.answers.record(other.id, AnswerKind.CANNOT_TELL, who="ada", client_id="1")


def test_undo_opens_the_question_again_and_keeps_the_history(store: Store) -> None:
    question, *_ = ask(store)
    with store.transaction() as tx:
        tx.answers.record(question.id, AnswerKind.BAD_IMAGE, who="ada", client_id="1")
    with store.transaction() as tx:
        last = tx.answers.last_undoable("ada")
        assert last is not None
        tx.answers.undo(last.question_id, who="ada", client_id="2")
        assert tx.answers.undo(question.id, who="ada", client_id="2").repeated
    with store.transaction() as tx:
        assert tx.questions.get(question.id).state is QuestionState.OPEN
        assert tx.answers.last_undoable("ada") is None
        assert tx.answers.standing(1) == {}
        again = tx.answers.record(question.id, AnswerKind.CANNOT_TELL, who="ada", client_id="3")
        assert again.accepted
        kinds = [answer.kind for answer in tx.answers.of_question(question.id)]
    assert kinds == [AnswerKind.BAD_IMAGE, AnswerKind.UNDO, AnswerKind.CANNOT_TELL]
    with (
        pytest.raises(WrongState, match="no answer that could be taken back"),
        store.transaction() as tx,
    ):
        tx.answers.undo(question.id + 1, who="ada", client_id="4")


def test_a_closed_round_cannot_be_changed(store: Store) -> None:
    question, other, _ = ask(store)
    with store.transaction() as tx:
        tx.answers.record(question.id, AnswerKind.BAD_IMAGE, who="ada", client_id="1")
        closed = tx.questions.close_round(1, 1)
        assert {q.state for q in closed} == {QuestionState.CLOSED}
        assert list(tx.answers.standing(1)) == [question.id]
    ended = "round 1 of pool 1 has ended"
    with pytest.raises(QuestionClosed, match=ended), store.transaction() as tx:
        tx.answers.undo(question.id, who="ada", client_id="2")
    with pytest.raises(QuestionClosed, match=ended), store.transaction() as tx:
        tx.answers.record(other.id, AnswerKind.BAD_IMAGE, who="ada", client_id="3")


@pytest.mark.parametrize(
    ("kind", "class_id", "error"),
    [
        (AnswerKind.KNOWN_CLASS, None, WrongState),
        (AnswerKind.BAD_IMAGE, "class-1", WrongState),
        (AnswerKind.NEW_CLASS, "class-77", NotFound),
        (AnswerKind.UNDO, None, WrongState),
    ],
)
def test_an_answer_must_make_sense(
    store: Store, kind: AnswerKind, class_id: str | None, error: type[Exception]
) -> None:
    question, *_ = ask(store)
    with pytest.raises(error), store.transaction() as tx:
        tx.answers.record(question.id, kind, who="ada", client_id="1", class_id=class_id)


def test_a_question_is_lent_to_one_person_until_the_lease_expires(
    store: Store, clock: Clock
) -> None:
    ask(store)
    with store.transaction() as tx:
        assert [q.id for q in tx.questions.lease("ada", limit=2, ttl=MINUTE)] == [1, 2]
        assert [q.id for q in tx.questions.lease("bob", limit=2, ttl=MINUTE)] == [3]
        assert [q.id for q in tx.questions.lease("ada", limit=5, ttl=MINUTE)] == [1, 2]
        assert tx.answers.record(3, AnswerKind.BAD_IMAGE, who="ada", client_id="1").accepted
    clock.advance(seconds=61)
    with store.transaction() as tx:
        assert [q.id for q in tx.questions.lease("bob", limit=5, ttl=MINUTE)] == [1, 2]
        tx.questions.release("bob")
        assert [q.id for q in tx.questions.lease("cleo", limit=1, ttl=MINUTE)] == [1]


def test_a_move_that_is_not_allowed_is_refused(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.pools.filling() is None
        pool = tx.pools.open(seed=7)
        assert tx.pools.filling() == pool
    with (
        pytest.raises(WrongState, match="is filling, so it cannot be nothing learnt"),
        store.transaction() as tx,
    ):
        tx.pools.apply(pool.id, PoolEvent.NOTHING_LEARNT)


def test_a_second_instance_is_refused_and_told_who_and_since_when(
    store: Store, place: Place, clock: Clock
) -> None:
    lease = store.acquire_lease("monitor", "host-a:17", MINUTE)
    clock.advance(seconds=30)
    with place.open(clock) as second:
        with pytest.raises(LeaseHeld, match=r"host-a:17 .* since 2024-05-17 06:00:00 UTC"):
            second.acquire_lease("monitor", "host-b:4", MINUTE)
        lease = store.renew_lease(lease, MINUTE)
        clock.advance(seconds=59)
        with pytest.raises(LeaseHeld):
            second.acquire_lease("monitor", "host-b:4", MINUTE)
        clock.advance(seconds=1)
        taken = second.acquire_lease("monitor", "host-b:4", MINUTE)
    assert taken.token == lease.token + 1
    with pytest.raises(LeaseLost, match="host-b:4 took it"):
        store.renew_lease(lease, MINUTE)
    store.release_lease(lease)
    with store.reading() as tx:
        held = tx.leases.get("monitor")
    assert held == taken


def test_a_released_lease_is_free_at_once(store: Store) -> None:
    store.release_lease(store.acquire_lease("monitor", "a", MINUTE))
    assert store.acquire_lease("monitor", "b", MINUTE).owner == "b"


def test_leases_follow_the_clock_of_the_database(place: Place) -> None:
    with place.open() as store:
        lease = store.acquire_lease("monitor", "a", MINUTE)
        assert lease.expires_at - lease.acquired_at == MINUTE
        assert store.acquire_lease("monitor", "a", MINUTE).token == lease.token
