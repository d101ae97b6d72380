"""Questions to people: opened within a budget, leased to one person at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, or_, select, update

from monitor.store.errors import BudgetExceeded, NotFound, WrongState
from monitor.store.pools import PoolRepository
from monitor.store.records import PoolSample, Question
from monitor.store.repository import Repository, chunks
from monitor.store.states import PoolState, QuestionState
from monitor.store.tables import pools, questions


class Questions(Repository):
    """All questions that were asked; a replay finds them and asks nothing again."""

    def open(self, pool_id: int, round: int, samples: Sequence[PoolSample]) -> list[Question]:
        """Ask about these samples; those already asked about in this pool come back as they are.

        The budget is checked and spent here, together with the questions, so it can never be
        exceeded: not by a crash in between, and not by a loop that is replayed.
        """
        pool = PoolRepository(self._connection, self._now).get(pool_id)
        if pool.state is not PoolState.ASKING:
            raise WrongState(
                f"pool {pool_id}: is {pool.state}, only an asking pool opens questions"
            )
        asked = {
            (question.batch_id, question.spool_row): question for question in self.of_pool(pool_id)
        }
        wanted = {(sample.batch_id, sample.spool_row): sample for sample in samples}
        fresh = [sample for key, sample in wanted.items() if key not in asked]
        if pool.asked + len(fresh) > pool.budget:
            raise BudgetExceeded(
                f"pool {pool_id}: {pool.asked} of {pool.budget} labels are spent, "
                f"{len(fresh)} more do not fit"
            )
        opened = self._insert(pool_id, round, fresh)
        self._connection.execute(
            update(pools)
            .where(pools.c.id == pool_id)
            .values(asked=pool.asked + len(fresh), round=max(pool.round, round))
        )
        known = {
            **asked,
            **{(question.batch_id, question.spool_row): question for question in opened},
        }
        return [known[key] for key in wanted]

    def _insert(self, pool_id: int, round: int, samples: Sequence[PoolSample]) -> list[Question]:
        if not samples:
            return []
        first = self._next_id(questions.c.id)
        values = [
            {
                **{name: getattr(sample, name) for name in PoolSample.__slots__},
                "id": first + offset,
                "pool_id": pool_id,
                "round": round,
                "state": QuestionState.OPEN,
                "lease_owner": None,
                "lease_until": None,
                "answer_id": None,
                "opened_at": self._now,
                "closed_at": None,
            }
            for offset, sample in enumerate(samples)
        ]
        self._connection.execute(insert(questions), values)
        return [Question(**value) for value in values]

    def get(self, question_id: int) -> Question:
        found = self._first(Question, select(questions).where(questions.c.id == question_id))
        if found is None:
            raise NotFound(f"question {question_id}: there is no such question")
        return found

    def of_pool(self, pool_id: int, round: int | None = None) -> list[Question]:
        """In the order they were asked."""
        statement = select(questions).where(questions.c.pool_id == pool_id)
        if round is not None:
            statement = statement.where(questions.c.round == round)
        return self._all(Question, statement.order_by(questions.c.id))

    def list_open(self, *, limit: int = 1000, after: int = 0) -> list[Question]:
        return self._all(
            Question,
            select(questions)
            .where(questions.c.state == QuestionState.OPEN, questions.c.id > after)
            .order_by(questions.c.id)
            .limit(limit),
        )

    def count_open(self, pool_id: int | None = None) -> int:
        statement = (
            select(func.count())
            .select_from(questions)
            .where(questions.c.state == QuestionState.OPEN)
        )
        if pool_id is not None:
            statement = statement.where(questions.c.pool_id == pool_id)
        return int(self._connection.execute(statement).scalar_one())

    def count_opened(self, since: datetime) -> int:
        """How many questions were asked since a moment: what a weekly budget counts."""
        statement = select(func.count()).select_from(questions).where(questions.c.opened_at > since)
        return int(self._connection.execute(statement).scalar_one())

    def lease(self, who: str, *, limit: int, ttl: timedelta) -> list[Question]:
        """Lend open questions to a person: free ones, expired ones, and those they hold.

        A lease only decides who is shown what. An answer by somebody else is still taken.
        """
        free = self._all(
            Question,
            select(questions)
            .where(
                questions.c.state == QuestionState.OPEN,
                or_(
                    questions.c.lease_owner.is_(None),
                    questions.c.lease_owner == who,
                    questions.c.lease_until <= self._now,
                ),
            )
            .order_by(questions.c.id)
            .limit(limit),
        )
        until = self._now + ttl
        self._set([question.id for question in free], lease_owner=who, lease_until=until)
        return [replace(question, lease_owner=who, lease_until=until) for question in free]

    def release(self, who: str) -> None:
        """Give back everything a person holds (they closed the page)."""
        self._connection.execute(
            update(questions)
            .where(questions.c.state == QuestionState.OPEN, questions.c.lease_owner == who)
            .values(lease_owner=None, lease_until=None)
        )

    def set_answer(self, question_id: int, answer_id: int | None) -> None:
        """Set the answer that counts, or (None) open the question again."""
        self._set(
            [question_id],
            answer_id=answer_id,
            state=QuestionState.OPEN if answer_id is None else QuestionState.ANSWERED,
            lease_owner=None,
            lease_until=None,
        )

    def shows(self, thumbnail: str) -> bool:
        """Whether any question refers to this picture."""
        found = select(questions).where(questions.c.thumbnail == thumbnail)
        return self._first(Question, found) is not None

    def close_round(self, pool_id: int, round: int) -> list[Question]:
        """End a round, answered or not: from here on its answers are used and stay as they are."""
        self._connection.execute(
            update(questions)
            .where(
                questions.c.pool_id == pool_id,
                questions.c.round == round,
                questions.c.state != QuestionState.CLOSED,
            )
            .values(
                state=QuestionState.CLOSED, closed_at=self._now, lease_owner=None, lease_until=None
            )
        )
        return self.of_pool(pool_id, round)

    def _set(self, question_ids: Sequence[int], **values: Any) -> None:
        for piece in chunks(question_ids):
            self._connection.execute(
                update(questions).where(questions.c.id.in_(piece)).values(**values)
            )
