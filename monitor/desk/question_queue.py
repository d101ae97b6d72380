"""The questions as one person sees them: grouped by what the detector suspects."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from monitor.desk.outcomes import RoundOutcome, in_progress, latest_outcomes
from monitor.desk.question_reasons import score_words, why_asked
from monitor.people.class_catalog import ClassView, Standing, list_classes
from monitor.store.note_and_counter_names import HEARTBEAT
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import QuestionState
from monitor.store.records import ClassRow, Question
from monitor.store.store import Store, Transaction
from monitor.store.tables import answers, classes, pools, publications, questions

LISTED = 2000
"""Open questions looked at to fill one person's page; beyond it they wait their turn."""

_BUSY = (PoolState.ASKING, PoolState.WAITING)
_NO_EVIDENCE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Suspect:
    """What the detector thinks an image is: a class there is, a name, or nothing it could say."""

    class_id: str | None
    name: str | None
    is_new: bool

    @property
    def key(self) -> str:
        return self.class_id or self.name or ""


@dataclass(frozen=True, slots=True)
class Card:
    """One question."""

    id: int
    thumbnail: str | None
    source_id: str
    image_id: str
    captured_at: datetime | None
    ratio: float
    score_words: str
    why: str
    nearest_id: str | None
    nearest: str | None
    suspect: Suspect
    contradicted: int
    """Answers that came second and were kept beside one that was taken back since."""


@dataclass(frozen=True, slots=True)
class QuestionGroup:
    """Questions about images that look alike to the detector."""

    suspect: Suspect
    nearest: str | None
    """What tells groups apart that the detector has no suspicion about."""
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """How far the rounds that are open now have come, and what may still be asked."""

    asked: int
    answered: int
    budget: int
    spent: int
    weekly: tuple[int, int] | None
    """Questions of the last seven days and how many there may be; None if nobody says."""

    @property
    def remaining(self) -> int:
        return max(0, self.budget - self.spent)


@dataclass(frozen=True, slots=True)
class Queue:
    groups: tuple[QuestionGroup, ...]
    open: int
    elsewhere: Mapping[str, int]
    """Open questions that others are looking at, by who they are."""
    progress: RoundProgress
    palette: tuple[ClassView, ...]
    stamp: str
    version: int | None
    """The detector version in use."""
    doing: str | None = None
    """What the monitor does with the answers that it has."""
    outcomes: tuple[RoundOutcome, ...] = ()

    @property
    def shown(self) -> int:
        return sum(len(group.cards) for group in self.groups)


def read_queue(store: Store, who: str, shown: int) -> Queue:
    """What is open for this person: what is free, and what they hold already."""
    views = list_classes(store)
    with store.reading() as tx:
        found = tx.questions.list_open(limit=LISTED)
        mine = [question for question in found if not _with_others(question, who, tx.now)]
        elsewhere = Counter(
            str(question.lease_owner) for question in found if _with_others(question, who, tx.now)
        )
        rows = tx.classes.all()
        current = tx.versions.current()
        evidence = {
            pool_id: tx.pools.get(pool_id).evidence for pool_id in {one.pool_id for one in mine}
        }
        cards = [
            _card(question, rows, _contradicted(tx, question), evidence[question.pool_id])
            for question in mine[:shown]
        ]
        return Queue(
            groups=_grouped(cards),
            open=tx.counts.open_questions(),
            elsewhere=dict(elsewhere),
            progress=_progress(tx, found),
            palette=_palette(views, [_card(question, rows, 0) for question in found]),
            stamp=stamp(tx),
            version=None if current is None else current.number,
            doing=None if found else in_progress(tx),
            outcomes=tuple(latest_outcomes(tx, who, limit=3)),
        )


def stamp(tx: Transaction) -> str:
    """Differs whenever the page would; a few numbers, so that asking often costs little."""
    parts = [
        tx.connection.execute(statement).scalar()
        for statement in (
            select(func.max(questions.c.id)),
            select(func.max(answers.c.id)),
            select(func.max(publications.c.id)),
            select(func.count()).select_from(classes),
            select(func.count())
            .select_from(questions)
            .where(questions.c.state == QuestionState.OPEN),
            select(func.count()).select_from(pools).where(pools.c.state.in_(_BUSY)),
        )
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def lease(store: Store, who: str, *, limit: int, seconds: int) -> list[Question]:
    """Lend questions to somebody who looks at them, or prolong what they have."""
    with store.transaction() as tx:
        return tx.questions.lease(who, limit=limit, ttl=timedelta(seconds=seconds))


def _with_others(question: Question, who: str, now: datetime) -> bool:
    return (
        question.lease_owner not in (None, who)
        and question.lease_until is not None
        and question.lease_until > now
    )


def _contradicted(tx: Transaction, question: Question) -> int:
    found = tx.answers.of_question(question.id)
    return sum(one.outcome == "conflict" for one in found)


def _card(
    question: Question,
    rows: Sequence[ClassRow],
    contradicted: int,
    evidence: Mapping[str, Any] = _NO_EVIDENCE,
) -> Card:
    by_id = {row.id: row for row in rows}
    by_name = {row.name: row for row in rows if row.living}
    nearest = by_id.get(question.nearest_class or "") or by_name.get(question.nearest_class or "")
    suspect = _suspect(question, by_id, by_name)
    nearest_name = nearest.name if nearest else question.nearest_class
    return Card(
        id=question.id,
        thumbnail=question.thumbnail,
        source_id=question.source_id,
        image_id=question.image_id,
        captured_at=question.captured_at,
        ratio=question.score_ratio,
        score_words=score_words(question.score_ratio),
        why=why_asked(
            source=question.source_id,
            ratio=question.score_ratio,
            suspect=suspect.name,
            is_new=suspect.is_new,
            nearest=nearest_name,
            evidence=evidence,
        ),
        nearest_id=nearest.id if nearest else None,
        nearest=nearest_name,
        suspect=suspect,
        contradicted=contradicted,
    )


def _suspect(
    question: Question, by_id: Mapping[str, ClassRow], by_name: Mapping[str, ClassRow]
) -> Suspect:
    class_id, name = question.suggestion.get("class_id"), question.suggestion.get("name")
    row = by_id.get(class_id or "") or by_name.get(name or "")
    while row is not None and row.merged_into is not None:
        row = by_id[row.merged_into]
    is_new = bool(question.suggestion.get("new", row is None))
    if row is not None and row.living:
        return Suspect(row.id, row.name, is_new)
    return Suspect(None, name, is_new)


def _grouped(cards: Sequence[Card]) -> tuple[QuestionGroup, ...]:
    """Suspected new classes first, those without a name last; larger groups before smaller."""
    groups: dict[str, list[Card]] = {}
    for card in cards:
        key = card.suspect.key or f"near {card.nearest}"
        groups.setdefault(key, []).append(card)
    found = [
        QuestionGroup(members[0].suspect, members[0].nearest, tuple(members))
        for members in groups.values()
    ]
    return tuple(
        sorted(
            found,
            key=lambda group: (
                group.suspect.name is None,
                not group.suspect.is_new,
                -len(group.cards),
                group.suspect.key,
                group.nearest or "",
            ),
        )
    )


def _progress(tx: Transaction, found: Sequence[Question]) -> RoundProgress:
    busy = tx.pools.in_state(*_BUSY)
    rounds = {(question.pool_id, question.round) for question in found}
    current = [
        question for pool_id, round in rounds for question in tx.questions.of_pool(pool_id, round)
    ]
    labels = (tx.notes.get(*HEARTBEAT, {}) or {}).get("labels") or {}
    weekly = None
    if "per_week" in labels and "spent_this_week" in labels:
        weekly = (int(labels["spent_this_week"]), int(labels["per_week"]))
    return RoundProgress(
        asked=len(current),
        answered=sum(question.state is not QuestionState.OPEN for question in current),
        budget=sum(pool.budget for pool in busy),
        spent=sum(pool.asked for pool in busy),
        weekly=weekly,
    )


def _palette(views: Sequence[ClassView], cards: Sequence[Card]) -> tuple[ClassView, ...]:
    """Living classes, those that the open questions are likely to be about first."""
    weight: Counter[str] = Counter()
    for card in cards:
        weight[card.suspect.class_id or ""] += 3
        weight[card.nearest_id or ""] += 1
    alive = [view for view in views if view.standing in (Standing.KNOWN, Standing.NAMED)]
    return tuple(sorted(alive, key=lambda view: (-weight[view.id], view.name.casefold())))
