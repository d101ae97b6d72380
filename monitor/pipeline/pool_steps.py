"""The steps of a pool, each inside one transaction: quiet or asked about, rounds, the end.

With them moves what is remembered from one pool to the next: the evidence of the trigger here, and
the drift of sources in :mod:`monitor.pipeline.drift_states`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np

from monitor.config import Config
from monitor.config.schema import LabelsSection
from monitor.jobs.score_batch import UNCORRECTED, ShiftCorrections
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DriftSettings
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.novelty.trigger.trigger_decision import Decision, TriggerState
from monitor.novelty.trigger.trigger_settings import TriggerSettings
from monitor.pipeline.drift_states import DriftStates, keep_corrections, keep_drift
from monitor.pipeline.finish_pool import SettlementInput
from monitor.pipeline.inner_loop_driver import LoopConclusion, LoopInput
from monitor.pipeline.pool_inspection import PoolInspection
from monitor.pipeline.pool_samples import PoolSamples, discovered_samples, taught_samples
from monitor.pipeline.worker_tasks import RowThumbnail
from monitor.store import Store, Transaction
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import NotFound
from monitor.store.pool_transitions import PoolEvent, PoolState
from monitor.store.record_states import ClassOrigin, QuestionState
from monitor.store.records import ClassRow, Count, Pool, PoolSample, Question

WEEK = timedelta(days=7)
#: Sources that the record of a pool names with their figures.
SOURCES_TOLD = 20


@dataclass(frozen=True, slots=True, eq=False)
class CurrentDetector:
    """The detector in use, and how it is used."""

    number: int
    detector: Detector
    corrections: ShiftCorrections = UNCORRECTED
    """How sources that are shifted are judged by it."""


def decide_pool(
    tx: Transaction,
    pool_id: int,
    seen: PoolInspection,
    current: CurrentDetector,
    config: Config,
    *,
    at: float,
    states: DriftStates | None = None,
) -> None:
    """A pool is quiet, or people are asked; what is remembered moves with it.

    ``at`` is when the pool was taken, in POSIX seconds. A pool that is still filling is closed if
    people are to be asked, and goes on filling otherwise. While questions about another quiet pool
    are out, no more of that kind are asked.
    """
    pool = tx.pools.get(pool_id)
    is_closed = pool.state is PoolState.CLOSED
    settings = trigger_settings(config)
    if tx.pools.in_state(PoolState.ASKING, PoolState.WAITING, limit=1):
        settings = replace(settings, probe=0)
    watch, found = read_watch(tx, current.number).decided(
        seen.seen, at=at, settings=settings, closing=is_closed
    )
    triggered = found.kind == "round"
    if config.pools.trigger == "any":
        triggered = is_closed and pool.above > 0
    budget = min(budget_of(pool.size, config.labels), questions_left(tx, config.labels))
    probe = min(found.questions, budget)
    if is_closed and not triggered and any(v.started for v in seen.verdicts.values()):
        # A shift has begun, and nothing seems new: a few questions make sure, and their answers
        # teach the classes their new look.
        budget, probe = min(budget, config.drift.confirm_labels), 0
        triggered = budget > 0
    keep_watch(tx, current.number, watch)
    # Also from a pool that is still filling: whoever reads verdicts need not wait for its end.
    for source in keep_corrections(tx, seen.corrections, seen.calm):
        strength = seen.corrections[source].strength
        tx.events.append("drift.corrected", {"pool": pool_id, "strength": strength}, source=source)
    if not is_closed and not triggered:
        return
    keep_drift(tx, seen, states or DriftStates())
    reasons = _reasons(seen, found, probe=0 if triggered else probe)
    if not is_closed:
        tx.pools.apply(pool_id, PoolEvent.FILLED)
    told = _brief(reasons)
    if not triggered and not probe:
        tx.pools.apply(pool_id, PoolEvent.FOUND_CALM, evidence=told)
        tx.events.append("pool.quiet", {"pool": pool_id, **told})
        return
    tx.pools.begin_asking(
        pool_id,
        budget=budget,
        detector_version=current.number,
        evidence=reasons,
        event=PoolEvent.TRIGGERED if triggered else PoolEvent.PROBED,
    )
    tx.events.append(
        "pool.triggered" if triggered else "pool.probed",
        {"pool": pool_id, "budget": budget if triggered else probe, **told},
        source=found.sources[0] if found.sources else None,
    )


def _reasons(seen: PoolInspection, found: Decision, *, probe: int) -> dict[str, Any]:
    """What a pool's record says about the decision."""
    return {
        "images": sum(seen.images.values()),
        "novel": {source: number for source, number in seen.novel.items() if number},
        "explained_by_shift": seen.explained,
        "strength": {s: round(value, 3) for s, value in seen.seen.strength.items()},
        "chance": float(f"{found.chance:.4g}"),
        "level": float(f"{found.level:.4g}"),
        "sources": list(found.sources),
        "shifted": sorted(s for s, v in seen.verdicts.items() if v.shifted),
        "corrected": sorted(seen.corrections),
        "probe": probe,
    }


def _brief(reasons: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the foremost sources only: a pool may show thousands.

    What the others have together stands under the empty name, so that sums stay what they are.
    """

    def foremost(values: Mapping[str, float]) -> dict[str, float]:
        named = {s: v for s, v in values.items() if s != EVERYWHERE}
        chosen = dict(sorted(named.items(), key=lambda pair: -pair[1])[:SOURCES_TOLD])
        return {EVERYWHERE: values[EVERYWHERE], **chosen} if EVERYWHERE in values else chosen

    def counted(values: Mapping[str, int]) -> dict[str, float]:
        chosen = foremost(values)
        left = sum(values.values()) - sum(chosen.values())
        return {**chosen, EVERYWHERE: left} if left else chosen

    return {
        **reasons,
        "novel": counted(reasons["novel"]),
        "explained_by_shift": counted(reasons["explained_by_shift"]),
        "strength": foremost(reasons["strength"]),
    }


def drift_settings(config: Config) -> DriftSettings:
    return DriftSettings(**config.drift.model_dump())


def trigger_settings(config: Config) -> TriggerSettings:
    return TriggerSettings(
        false_rounds_per_month=config.pools.false_rounds_per_month,
        trickle_per_week=config.labels.trickle_per_week,
        probe=config.labels.probe,
    )


def budget_of(size: int, labels: LabelsSection) -> int:
    """How many questions a pool may ask: a share of it, within bounds.

    >>> labels = LabelsSection(budget=0.0125, least=3)
    >>> budget_of(2000, labels), budget_of(20, labels)
    (25, 3)
    """
    return min(max(labels.least, round(labels.budget * size)), labels.most, size)


def questions_left(tx: Transaction, labels: LabelsSection) -> int:
    """How many questions this week still allows."""
    return labels.per_week - tx.counts.questions_since(tx.now - WEEK)


def learn_nothing(tx: Transaction, pool_id: int, found: LoopConclusion) -> None:
    """People have looked: what the pool showed is what nothing new looks like.

    A few questions of a probe do not say that: they count only where the trigger asked.
    """
    pool = tx.pools.get(pool_id)
    assert pool.detector_version is not None, "nobody was asked about this pool"
    if not pool.evidence.get("probe"):
        watch = read_watch(tx, pool.detector_version).nothing_new(pool.evidence["strength"])
        keep_watch(tx, pool.detector_version, watch)
    outcome = {"outcome": found.outcome, "missed": found.missed}
    tx.pools.apply(pool_id, PoolEvent.NOTHING_LEARNT, reason="nothing new", evidence=outcome)
    tx.events.append("pool.quiet", {"pool": pool_id, "asked": pool.asked})
    tx.counters.add(
        [
            Count("inner_loops", "", found.outcome, 1),
            Count("inner_loop_rounds", "", "", found.rounds),
            Count("inner_loop_seconds", "", "", found.seconds),
        ]
    )


def give_up(tx: Transaction, pool_id: int, reason: str) -> None:
    """Nothing will come of this pool."""
    tx.pools.apply(pool_id, PoolEvent.GIVEN_UP, reason=reason)
    tx.events.append("pool.unresolved", {"pool": pool_id, "reason": reason})
    tx.counters.add([Count("inner_loops", "", "unresolved", 1)])


# -- what is remembered from one pool to the next ---------------------------------------------

#: The one note that the trigger keeps; nothing else reads it.
WATCH = ("trigger", "watch")


def read_watch(tx: Transaction, version: int) -> TriggerState:
    """The evidence gathered with this detector version; a new version starts from zero."""
    kept = tx.notes.get(*WATCH, {})
    watch = TriggerState.from_dict(kept)
    return watch if kept.get("version", version) == version else watch.learnt()


def keep_watch(tx: Transaction, version: int, watch: TriggerState) -> None:
    tx.notes.set(*WATCH, {"version": version, **watch.to_dict()})


#: Who answers where a column of the feed takes the place of people.
ORACLE = "oracle"


def recorded_answers(tx: Transaction, pool_id: int, samples: PoolSamples) -> dict[int, str | None]:
    """What was said in the rounds that are over: a class id for each sample, or None.

    Merges since then are followed, so the loop hears of a class under the id it has today. Of a
    class that was retired since then nothing is known any more.
    """
    position = {key: index for index, key in enumerate(samples.keys)}
    standing = tx.answers.standing(pool_id)
    answers: dict[int, str | None] = {}
    for question in tx.questions.of_pool(pool_id):
        if question.state is QuestionState.CLOSED:
            answer = standing.get(question.id)
            row = _living(tx, answer.class_id if answer is not None else None)
            answers[position[question.batch_id, question.spool_row]] = row.id if row else None
    return answers


def confirmable(tx: Transaction, people: int) -> frozenset[str] | None:
    """The classes that enough people have named; None where fewer than that annotate."""
    if tx.answers.people() < people:
        return None
    named: Counter[str] = Counter()
    for class_id, count in tx.answers.people_by_class().items():
        named[tx.classes.resolve(class_id).id] += count
    return frozenset(class_id for class_id, count in named.items() if count >= people)


def class_names(tx: Transaction) -> dict[str, str]:
    """What the classes are called today, by id."""
    return {row.id: row.name for row in tx.classes.all()}


def loop_input(tx: Transaction, pool: Pool, samples: PoolSamples, config: Config) -> LoopInput:
    """What the inner loop of a pool goes on from: the answers of the rounds that are over."""
    return LoopInput(
        pool_id=pool.id,
        budget=pool.budget,
        seed=config.run.seed,
        rounds=len({question.round for question in tx.questions.of_pool(pool.id)}),
        answers=recorded_answers(tx, pool.id, samples),
        stop="stopped" in pool.evidence,
        shifted={
            source: np.flatnonzero(samples.sources == source)
            for source in pool.evidence.get("shifted", ())
        },
        probe=pool.evidence.get("probe", 0),
        confirmable=confirmable(tx, config.labels.confirm_people),
    )


def settlement_input(
    tx: Transaction, store: Store, pool: Pool, samples: PoolSamples, config: Config
) -> SettlementInput:
    """What a pool that is over is settled by: answers, lessons, and what it has taught before."""
    taught = taught_samples(store, tx, pool.id, samples)
    said = {index: one.class_id for index, one in taught.items() if one.by_person}
    return SettlementInput(
        pool_id=pool.id,
        answers={**said, **recorded_answers(tx, pool.id, samples)},
        sources=tuple(samples.sources.tolist()),
        shifted=tuple(pool.evidence.get("corrected", ())),
        seed=config.run.seed,
        taken=frozenset([*discovered_samples(store, tx, pool, samples), *taught]),
        confirmable=confirmable(tx, config.labels.confirm_people),
        grown=tx.versions.by_key(samples.growth_key) is not None,
    )


def open_round(
    tx: Transaction, pool_id: int, round: int, samples: Sequence[PoolSample]
) -> list[Question]:
    """Ask people about these samples; from here on it is their turn."""
    before = tx.pools.get(pool_id).asked
    opened = tx.questions.open(pool_id, round, samples)
    spent = tx.pools.get(pool_id).asked - before
    tx.pools.apply(pool_id, PoolEvent.ROUND_OPENED)
    tx.counters.add([Count("labels_spent", "", "", spent)])
    sources = sorted({question.source_id for question in opened})
    tx.events.append(
        "questions.opened",
        {
            "pool": pool_id,
            "round": round,
            "count": len(opened),
            "open": tx.counts.open_questions(),
            "sources": sources,
        },
        source=sources[0] if len(sources) == 1 else None,
    )
    return opened


def report_swapped(
    tx: Transaction,
    pool_id: int,
    places: Sequence[tuple[str, int]],
    rendered: Sequence[RowThumbnail],
) -> None:
    """Say which images are no longer those that were scored, and are therefore not shown."""
    for (file, row), one in zip(places, rendered, strict=True):
        if one.is_other:
            tx.events.append("image.changed", {"file": file, "row": row, "pool": pool_id})


def is_over(tx: Transaction, pool: Pool, limit: timedelta) -> bool:
    """Whether all questions of the round are answered, or their time is over."""
    return not tx.counts.open_questions(pool.id) or _is_late(tx, pool, limit)


def _is_late(tx: Transaction, pool: Pool, limit: timedelta) -> bool:
    asked = tx.questions.of_pool(pool.id, pool.round)
    return bool(asked) and tx.now - asked[0].opened_at >= limit


def close_round(tx: Transaction, pool: Pool, limit: timedelta) -> None:
    """It is the machine's turn again; a question unanswered after ``limit`` ends the asking."""
    late = _is_late(tx, pool, limit)
    closed = tx.questions.close_round(pool.id, pool.round)
    missing = sum(question.answer_id is None for question in closed)
    stopped = {"stopped": "unanswered"} if missing and late else None
    tx.pools.apply(pool.id, PoolEvent.ROUND_CLOSED, evidence=stopped)
    tx.events.append(
        "questions.closed",
        {
            "pool": pool.id,
            "round": pool.round,
            "answered": len(closed) - missing,
            "unanswered": missing,
        },
    )
    tx.counters.add(count_answers(tx, pool.id, pool.round))


def count_answers(tx: Transaction, pool_id: int, round: int) -> list[Count]:
    """How often what looked new was new: the false-novel ratio that people measured."""
    standing = tx.answers.standing(pool_id)
    said = Counter(
        _SAID[standing[question.id].kind]
        for question in tx.questions.of_pool(pool_id, round)
        if question.id in standing and question.score_ratio > 1
    )
    return [Count("false_novel", "", label, number) for label, number in sorted(said.items())]


_SAID = {
    AnswerKind.KNOWN_CLASS: "known",
    AnswerKind.NEW_CLASS: "new",
    AnswerKind.CANNOT_TELL: "cannot_tell",
    AnswerKind.BAD_IMAGE: "cannot_tell",
}


def suggestion(tx: Transaction, guess: str | None, detector: Detector) -> dict[str, Any]:
    """The class that the loop guesses, by its id, as the desk shows it today.

    A class that was merged is shown as what it has become; one that was retired, or is not there
    any more, is no suggestion.
    """
    row = _living(tx, guess)
    if row is None:
        return {"class_id": None, "name": None, "new": False}
    is_known = any(known.id == row.id for known in detector.classes)
    return {"class_id": row.id, "name": row.name, "new": not is_known}


def _living(tx: Transaction, class_id: str | None) -> ClassRow | None:
    """The class that an id means today, if there still is one."""
    if class_id is None:
        return None
    try:
        row = tx.classes.resolve(class_id)
    except NotFound:
        return None
    return row if row.retired_at is None and row.merged_into is None else None


def answer_from_column(
    tx: Transaction, question: Question, label: str | None, detector: Detector
) -> None:
    """Answer in place of a person, with the label of a column."""
    name = (label or "").strip()
    kind, class_id = AnswerKind.CANNOT_TELL, None
    if name:
        row = tx.classes.ensure(name, ClassOrigin.PERSON)
        known = any(c.id == row.id for c in detector.classes)
        kind = AnswerKind.KNOWN_CLASS if known else AnswerKind.NEW_CLASS
        class_id = row.id
    # The question's number makes it idempotent: told twice, it counts once.
    tx.answers.record(
        question.id, kind, who=ORACLE, client_id=f"{ORACLE}:{question.id}", class_id=class_id
    )
