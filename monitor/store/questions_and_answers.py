"""Questions to people, and what they answered.

Questions are opened within a budget and leased to one person at a time. Answers are only ever
added; taking one back is a row as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import func, insert, or_, select, update

from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.detector_versions import Classes
from monitor.store.errors import (
    BudgetExceeded,
    ClientIdReused,
    NotFound,
    QuestionClosed,
    WrongState,
)
from monitor.store.pool_transitions import PoolState
from monitor.store.pools import PoolRepository
from monitor.store.record_states import QuestionState
from monitor.store.records import Answer, PoolSample, Question
from monitor.store.tables import Repository, answers, chunks, pools, questions


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


_WITH_CLASS = frozenset({AnswerKind.KNOWN_CLASS, AnswerKind.NEW_CLASS})


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answer as stored; ``repeated`` if it was sent before."""

    answer: Answer
    repeated: bool = False

    @property
    def accepted(self) -> bool:
        return self.answer.outcome is AnswerOutcome.ACCEPTED


class Answers(Repository):
    """Answers: the first one counts, later ones are kept as conflicts."""

    def record(
        self,
        question_id: int,
        kind: AnswerKind,
        *,
        who: str,
        client_id: str,
        class_id: str | None = None,
    ) -> Recorded:
        """Take an answer; sending it again with the same ``client_id`` changes nothing."""
        if kind is AnswerKind.UNDO:
            raise WrongState(f"question {question_id}: use undo() to take an answer back")
        if (class_id is not None) != (kind in _WITH_CLASS):
            raise WrongState(
                f"question {question_id}: the answer {kind} goes "
                f"{'with' if kind in _WITH_CLASS else 'without'} a class id"
            )
        if class_id is not None:
            Classes(self._connection, self._now).get(class_id)
        earlier = self._sent_before(client_id, question_id, kind)
        if earlier is not None:
            return Recorded(earlier, repeated=True)
        open_questions = Questions(self._connection, self._now)
        question = open_questions.get(question_id)
        if question.state is QuestionState.CLOSED:
            raise QuestionClosed(_closed(question))
        first = question.state is QuestionState.OPEN
        outcome = AnswerOutcome.ACCEPTED if first else AnswerOutcome.CONFLICT
        answer = self._append(question_id, kind, class_id, outcome, None, who, client_id)
        if first:
            open_questions.set_answer(question_id, answer.id)
        return Recorded(answer)

    def people_by_class(self) -> dict[str, int]:
        """How many people have named each class; answers that were taken back do not count."""
        undone = select(answers.c.undoes).where(answers.c.undoes.is_not(None))
        rows = self._connection.execute(
            select(answers.c.class_id, func.count(answers.c.who.distinct()))
            .where(answers.c.class_id.is_not(None), answers.c.id.not_in(undone))
            .group_by(answers.c.class_id)
        )
        return {str(class_id): int(people) for class_id, people in rows}

    def people(self) -> int:
        """How many people have ever answered."""
        found = self._connection.execute(select(func.count(answers.c.who.distinct())))
        return int(found.scalar() or 0)

    def undo(self, question_id: int, *, who: str, client_id: str) -> Recorded:
        """Take the standing answer back and open the question again, until its round ends.

        Conflicting answers are not promoted: whoever looks at the question sees them and
        decides again.
        """
        earlier = self._sent_before(client_id, question_id, AnswerKind.UNDO)
        if earlier is not None:
            return Recorded(earlier, repeated=True)
        open_questions = Questions(self._connection, self._now)
        question = open_questions.get(question_id)
        if question.state is QuestionState.CLOSED:
            raise QuestionClosed(_closed(question))
        if question.answer_id is None:
            raise WrongState(f"question {question_id}: has no answer that could be taken back")
        undo = self._append(
            question_id,
            AnswerKind.UNDO,
            None,
            AnswerOutcome.ACCEPTED,
            question.answer_id,
            who,
            client_id,
        )
        open_questions.set_answer(question_id, None)
        return Recorded(undo)

    def get(self, answer_id: int) -> Answer:
        found = self._first(Answer, select(answers).where(answers.c.id == answer_id))
        if found is None:
            raise NotFound(f"answer {answer_id}: there is no such answer")
        return found

    def of_question(self, question_id: int) -> list[Answer]:
        """Everything ever said about a question, in order."""
        return self._all(
            Answer,
            select(answers).where(answers.c.question_id == question_id).order_by(answers.c.id),
        )

    def standing(self, pool_id: int) -> dict[int, Answer]:
        """The answers that count, by question id: what a replay of the inner loop is fed."""
        found = self._all(
            Answer,
            select(answers)
            .join(questions, questions.c.answer_id == answers.c.id)
            .where(questions.c.pool_id == pool_id)
            .order_by(answers.c.question_id),
        )
        return {answer.question_id: answer for answer in found}

    def last_undoable(self, who: str) -> Answer | None:
        """The latest answer of a person that can still be taken back (also after a reload)."""
        return self._first(
            Answer,
            select(answers)
            .join(questions, questions.c.answer_id == answers.c.id)
            .where(answers.c.who == who, questions.c.state == QuestionState.ANSWERED)
            .order_by(answers.c.id.desc()),
        )

    def count_by_kind(self) -> dict[tuple[AnswerKind, AnswerOutcome], int]:
        rows = self._connection.execute(
            select(answers.c.kind, answers.c.outcome, func.count()).group_by(
                answers.c.kind, answers.c.outcome
            )
        )
        return {(kind, outcome): int(count) for kind, outcome, count in rows}

    def by_person(self, who: str, *, limit: int = 100) -> Sequence[Answer]:
        """The audit trail of one person, latest first."""
        return self._all(
            Answer,
            select(answers).where(answers.c.who == who).order_by(answers.c.id.desc()).limit(limit),
        )

    def _sent_before(self, client_id: str, question_id: int, kind: AnswerKind) -> Answer | None:
        found = self._first(Answer, select(answers).where(answers.c.client_id == client_id))
        if found is not None and (found.question_id != question_id or found.kind is not kind):
            raise ClientIdReused(
                f"client id {client_id!r}: was already used for {found.kind} on question "
                f"{found.question_id}; use a fresh id for every request"
            )
        return found

    def _append(
        self,
        question_id: int,
        kind: AnswerKind,
        class_id: str | None,
        outcome: AnswerOutcome,
        undoes: int | None,
        who: str,
        client_id: str,
    ) -> Answer:
        answer = Answer(
            id=self._next_id(answers.c.id),
            question_id=question_id,
            kind=kind,
            class_id=class_id,
            outcome=outcome,
            undoes=undoes,
            who=who,
            at=self._now,
            client_id=client_id,
        )
        self._connection.execute(
            insert(answers).values({name: getattr(answer, name) for name in Answer.__slots__})
        )
        return answer


def _closed(question: Question) -> str:
    return (
        f"question {question.id}: round {question.round} of pool {question.pool_id} has ended and "
        "its answers were used; correct the class on the classes page or roll the detector back"
    )
