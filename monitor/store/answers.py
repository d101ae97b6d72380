"""What people said. Rows are only ever added; taking back is a row as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, insert, select

from monitor.store.classes import Classes
from monitor.store.errors import ClientIdReused, NotFound, QuestionClosed, WrongState
from monitor.store.questions import Questions
from monitor.store.records import Answer, Question
from monitor.store.repository import Repository
from monitor.store.states import AnswerKind, AnswerOutcome, QuestionState
from monitor.store.tables import answers, questions

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
        decides anew.
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
