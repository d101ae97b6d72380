"""Answers to questions: recorded together, judged one by one, and taken back together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from monitor.errors import ConcladError
from monitor.people.class_names import clean_name
from monitor.people.errors import BadAnswer
from monitor.people.version_manifest import current_knowledge
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import NotFound, WrongState
from monitor.store.record_states import ClassOrigin, QuestionState
from monitor.store.records import Answer, ClassRow, Question
from monitor.store.store import Store, Transaction

GROUP = "/"
"""Stands between the id of an action and the number of an answer in it (see `client_ids`)."""

MOST_AT_ONCE = 500
"""Limit of answers in one transaction: more than people select, and quick to commit."""

LOOKED_BACK = 20 * MOST_AT_ONCE
"""Answers of a person among which an action is looked for: more than a working day has."""


class Word(StrEnum):
    """The three things a person can say."""

    CLASS = "class"
    CANNOT_TELL = "cannot_tell"
    BAD_IMAGE = "bad_image"


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: a class by its id or name, "cannot tell", or "bad image".

    >>> Said(7, Word.CLASS, "truck").class_
    'truck'
    """

    question_id: int
    word: Word
    class_: str | None = None

    def __post_init__(self) -> None:
        if (self.word is Word.CLASS) != (self.class_ is not None):
            raise BadAnswer(
                f"question {self.question_id}: name a class, or say cannot_tell or bad_image, "
                "not both"
            )


class Fate(StrEnum):
    """What became of one answer."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an answer, in words where it did not simply go in."""

    question_id: int
    fate: Fate
    message: str
    answer: Answer | None = None
    class_name: str | None = None
    new_class: bool = False
    """Whether the answer introduced a new name."""


def client_ids(action: str, count: int) -> list[str]:
    """Ids for the answers of one action, by which it is taken back as one.

    >>> client_ids("a", 2)
    ['a/0', 'a/1']
    """
    return [f"{action}{GROUP}{number}" for number in range(count)]


def give(store: Store, said: Sequence[Said], *, who: str, action: str) -> list[Receipt]:
    """Record the answers of one action; sending the same action again changes nothing.

    An answer that cannot be taken (its question is unknown, or closed) is refused by itself;
    the others go in.
    """
    if len(said) > MOST_AT_ONCE:
        raise BadAnswer(f"{len(said)} answers at once; send at most {MOST_AT_ONCE} together")
    known = frozenset(current_knowledge(store).classes)
    found: dict[str, ClassRow] = {}
    with store.transaction() as tx:
        return [
            _give(tx, one, who=who, client_id=client_id, known=known, found=found)
            for one, client_id in zip(said, client_ids(action, len(said)), strict=True)
        ]


def find_class(tx: Transaction, text: str) -> ClassRow | None:
    """The living class that an id (also one merged since) or a name means."""
    try:
        row = tx.classes.resolve(text)
    except NotFound:
        return tx.classes.find(text)
    return row if row.living else tx.classes.find(text)


def _give(
    tx: Transaction,
    said: Said,
    *,
    who: str,
    client_id: str,
    known: frozenset[str],
    found: dict[str, ClassRow],
) -> Receipt:
    """``found`` are the classes that this transaction has looked up: most answers name the same."""
    try:
        # A refused answer must not leave the class behind that it would have named.
        with tx.connection.begin_nested():
            return _record(tx, said, who=who, client_id=client_id, known=known, found=found)
    except ConcladError as error:
        return Receipt(said.question_id, Fate.REFUSED, str(error))


def _record(
    tx: Transaction,
    said: Said,
    *,
    who: str,
    client_id: str,
    known: frozenset[str],
    found: dict[str, ClassRow],
) -> Receipt:
    tx.questions.get(said.question_id)  # first: most of what is refused has no such question
    row: ClassRow | None = None
    is_new = False
    kind = AnswerKind(said.word) if said.class_ is None else AnswerKind.NEW_CLASS
    if said.class_ is not None:
        name = clean_name(said.class_)
        row = found.get(name) or find_class(tx, name)
        is_new = row is None
        if row is not None:
            found[name] = row
        row = row or tx.classes.ensure(name, ClassOrigin.PERSON)
        kind = AnswerKind.KNOWN_CLASS if row.id in known else AnswerKind.NEW_CLASS
    recorded = tx.answers.record(
        said.question_id, kind, who=who, client_id=client_id, class_id=row.id if row else None
    )
    name = row.name if row else said.word.replace("_", " ")
    if recorded.repeated:
        fate, message = Fate.REPEATED, f"question {said.question_id}: was taken before"
    elif recorded.accepted:
        fate, message = Fate.ACCEPTED, f"question {said.question_id}: {name}"
    else:
        fate = Fate.CONFLICT
        message = (
            f"question {said.question_id}: {_standing(tx, said.question_id)}; "
            "yours is kept as a conflict"
        )
    return Receipt(
        said.question_id, fate, message, recorded.answer, row.name if row else None, is_new
    )


def _standing(tx: Transaction, question_id: int) -> str:
    answer_id = tx.questions.get(question_id).answer_id
    assert answer_id is not None  # a conflict is with something
    first = tx.answers.get(answer_id)
    return f"{first.who} answered {describe(tx, first)!r} before you"


def describe(tx: Transaction, answer: Answer) -> str:
    """An answer in words."""
    if answer.class_id is not None:
        return tx.classes.get(answer.class_id).name
    return answer.kind.replace("_", " ")


def take_back(
    store: Store, question_id: int, *, who: str, action: str, anybodys: bool = False
) -> Answer:
    """Open one question again; with ``anybodys`` also if somebody else answered it."""
    with store.transaction() as tx:
        return _take_back(tx, tx.questions.get(question_id), who, f"{action}{GROUP}0", anybodys)


def take_back_last(store: Store, *, who: str, action: str, of: str | None = None) -> list[Answer]:
    """Undo an action of a person, ``of`` or their latest: all answers that were given together.

    Reads from the store what that was, so it works after a reload and on another machine. What
    was closed since stays as it is. Sending the same undo again changes nothing.
    """
    with store.transaction() as tx:
        mine = tx.answers.by_person(who, limit=LOOKED_BACK if of else 2 * MOST_AT_ONCE)
        before = [one for one in mine if one.client_id.startswith(f"{action}{GROUP}")]
        if before:
            return sorted(before, key=lambda one: one.id)
        last = None if of else tx.answers.last_undoable(who)
        if last is None and of is None:
            raise WrongState("nothing to take back: no answer of yours is still open to change")
        together = of or (last.client_id.rpartition(GROUP)[0] if last else "")
        questions = [
            tx.questions.get(one.question_id)
            for one in mine
            if (last is not None and one.id == last.id)
            or (together and one.client_id.startswith(f"{together}{GROUP}"))
        ]
        given = {one.id for one in mine if of is None or one.client_id.startswith(f"{of}{GROUP}")}
        again = sorted(
            (q for q in questions if q.state is QuestionState.ANSWERED and q.answer_id in given),
            key=lambda question: question.id,
        )
        if not again:
            raise WrongState("nothing to take back: its round has ended, or it was taken back")
        return [
            _take_back(tx, question, who, client_id, anybodys=False)
            for question, client_id in zip(again, client_ids(action, len(again)), strict=True)
        ]


def _take_back(
    tx: Transaction, question: Question, who: str, client_id: str, anybodys: bool
) -> Answer:
    if question.answer_id is not None and not anybodys:
        first = tx.answers.get(question.answer_id)
        if first.who != who:
            raise WrongState(
                f"question {question.id}: was answered by {first.who}; ask them, or an admin, to "
                "take it back"
            )
    return tx.answers.undo(question.id, who=who, client_id=client_id).answer
