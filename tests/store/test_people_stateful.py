"""Many people, any order of steps: no answer lost, none double, the budget never exceeded."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from monitor.store import Store, check
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import BudgetExceeded, QuestionClosed, WrongState
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import QuestionState
from tests.store.building import plan_feed, sample
from tests.store.conftest import Clock

PEOPLE = st.sampled_from(["ada", "bob", "cleo"])
QUERIES = st.integers(1, 6)
BUDGET = 5
MINUTE = timedelta(minutes=1)


class Desk(RuleBasedStateMachine):
    """A model in a few dictionaries beside the real store."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.open(self.folder, clock=self.clock)
        plan_feed(self.store)
        with self.store.transaction() as tx:
            tx.pools.open()
            tx.pools.apply(1, PoolEvent.FILLED)
            tx.pools.begin_asking(1, budget=BUDGET, detector_version=1)
        self.asked: set[int] = set()
        self.sent: dict[str, int] = {}
        self.standing: dict[int, str] = {}
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(rows=st.sets(st.integers(0, 7), min_size=1, max_size=4))
    def ask(self, rows: set[int]) -> None:
        fits = len(self.asked | rows) <= BUDGET
        try:
            with self.store.transaction() as tx:
                opened = tx.questions.open(1, 1, [sample(1, row) for row in sorted(rows)])
            assert fits
            assert len(opened) == len(rows)
            self.asked |= rows
        except BudgetExceeded:
            assert not fits

    @rule(who=PEOPLE, question=QUERIES, number=st.integers(0, 8))
    def answer(self, who: str, question: int, number: int) -> None:
        """Client ids are drawn from few, so that requests are often sent twice."""
        client = f"{who}-{question}-{number}"
        if question > len(self.asked):
            return
        try:
            with self.store.transaction() as tx:
                sent = tx.answers.record(question, AnswerKind.BAD_IMAGE, who=who, client_id=client)
        except QuestionClosed:
            assert self.closed
            assert client not in self.sent
            return
        assert sent.repeated == (client in self.sent)
        if not sent.repeated:
            assert sent.accepted == (question not in self.standing)
            self.standing.setdefault(question, client)
        self.sent[client] = sent.answer.id

    @rule(who=PEOPLE, question=QUERIES, number=st.integers(0, 1000))
    def undo(self, who: str, question: int, number: int) -> None:
        client = f"undo-{who}-{question}-{number}"
        if question > len(self.asked) or client in self.sent:
            return
        try:
            with self.store.transaction() as tx:
                self.sent[client] = tx.answers.undo(question, who=who, client_id=client).answer.id
            assert not self.closed
            del self.standing[question]
        except QuestionClosed:
            assert self.closed
        except WrongState:
            assert question not in self.standing

    @rule(who=PEOPLE, seconds=st.integers(0, 90))
    def lease(self, who: str, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        with self.store.transaction() as tx:
            for question in tx.questions.lease(who, limit=2, ttl=MINUTE):
                assert question.state is QuestionState.OPEN
                assert question.id not in self.standing

    @rule()
    def reopen(self) -> None:
        """The server restarts in the middle."""
        self.store.close()
        self.store = Store.open(self.folder, clock=self.clock)

    @precondition(lambda self: len(self.standing) >= 3)
    @rule()
    def close_round(self) -> None:
        with self.store.transaction() as tx:
            tx.questions.close_round(1, 1)
        self.closed = True

    @invariant()
    def nothing_lost_nothing_double(self) -> None:
        with self.store.reading() as tx:
            standing = {q: a.client_id for q, a in tx.answers.standing(1).items()}
            recorded = {
                answer.client_id: answer.id
                for question in tx.questions.of_pool(1)
                for answer in tx.answers.of_question(question.id)
            }
            pool = tx.pools.get(1)
        assert standing == self.standing
        assert recorded == self.sent
        assert pool.asked == len(self.asked) <= pool.budget

    def teardown(self) -> None:
        assert check(self.store) == []
        self.store.close()
        shutil.rmtree(self.folder)


TestDesk = Desk.TestCase
TestDesk.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
