"""The summary of the store as text for a terminal, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from monitor.novelty.trigger.rate_bounds import rate_interval
from monitor.plain_text import span
from monitor.store.answer_kinds import AnswerOutcome
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import FileState
from monitor.telemetry.store_summary import (
    DiscoverySummary,
    SourceSummary,
    StoreSummary,
    VersionSummary,
)

OUTCOMES = ("known", "novel", "rejected", "duplicate")

#: What fits on a screen; ``--json`` has all of them.
SOURCES_SHOWN = 20
DISCOVERIES_SHOWN = 5
SILENT_SHOWN = 5


def to_dict(truth: StoreSummary) -> dict[str, Any]:
    """Everything; states without members are included with 0."""
    monitor, detector, labels = truth.coordinator, truth.detector, truth.labels
    return {
        "at": _iso(truth.at),
        "store": truth.where,
        "monitor": {
            "running": monitor.running,
            "owner": monitor.owner,
            "since": _iso(monitor.since),
            "version": monitor.version,
            "host": monitor.host,
            "pid": monitor.pid,
            "address": monitor.address,
            "actors_up": dict(monitor.actors_up),
            "actors_starting": dict(monitor.actors_starting),
        },
        "detector": None
        if detector is None
        else {
            "version": detector.version,
            "updated_at": _iso(detector.updated_at),
            "t_inner": detector.t_inner,
            "exceedance": detector.exceedance,
            "classes": {"known": detector.known, "discovered": detector.discovered},
            "backbone": detector.backbone,
            "precision": detector.precision,
            "held_versions": list(truth.held),
            "adapted": {id_: share for (id_, _), share in detector.adapted.items()},
            "noticeable": {str(pools): share for pools, share in detector.noticeable.items()},
        },
        "files": {
            **{state.value: truth.files.get(state, 0) for state in FileState},
            "waiting": truth.files_waiting,
            "oldest_waiting_at": _iso(truth.oldest_waiting_at),
        },
        "batches": {
            "pending": truth.batches_pending,
            "done": int(truth.total("batches", "done")),
            "quarantined": truth.quarantined.get("batches", 0),
        },
        "account": {**asdict(truth.account), "unaccounted": truth.account.unaccounted},
        "quarantined": dict(truth.quarantined),
        "outages": {
            outage.kind.value: {"since": _iso(outage.since), "sentence": outage.sentence}
            for outage in truth.outages
        },
        "unwritable": truth.unwritable,
        "images": {
            source.name: {outcome: source.images.get(outcome, 0) for outcome in OUTCOMES}
            for source in truth.sources
        },
        "reused": {
            source.name: {
                "images": source.reused,
                "checks": source.reuse_checks,
                "score_change": source.reuse_change / max(1, source.reuse_checks),
            }
            for source in truth.sources
            if source.reused or source.reuse_checks
        },
        "pools": {state.value: truth.pools.get(state, 0) for state in PoolState},
        "inner_loops": {k: int(v) for k, v in sorted(truth.by_label("inner_loops").items())},
        "questions": {
            "open": truth.questions_open,
            "oldest_at": _iso(truth.oldest_question_at),
            "oldest_age_seconds": age(truth.oldest_question_at, truth.at),
            "by_source": {s.name: s.questions_open for s in truth.sources if s.questions_open},
        },
        "answers": {
            kind.value: count
            for (kind, outcome), count in sorted(truth.answers.items())
            if outcome is AnswerOutcome.ACCEPTED
        },
        "labels": {
            "spent": labels.spent,
            "budget": labels.budget,
            "asked": labels.asked,
            "remaining": labels.remaining,
            "per_week": labels.per_week,
            "spent_this_week": labels.this_week,
        },
        "discoveries": [_discovery(found) for found in truth.discoveries],
        "silent": {silent.source: silent.seconds for silent in truth.silent},
        "webhooks": dict(truth.webhooks),
        "drift": {
            source.name: {
                "level": source.drift.level,
                "strength": source.drift.strength,
                "learning": source.drift.learning,
                "active": source.drift.active,
                "since": _iso(source.drift.since),
                "words": source.drift.words,
            }
            for source in truth.sources
            if source.drift is not None
        },
    }


def describe(truth: StoreSummary) -> str:
    """The most important lines first."""
    return "\n".join(
        [
            _monitor_line(truth),
            *_outages(truth),
            _detector_line(truth.detector, truth.held),
            "",
            *_new(truth),
            *_questions(truth),
            *_drift(truth),
            *_silence(truth),
            *_undelivered(truth),
            "",
            *_actors(truth),
            *_feed(truth),
            *_reuse(truth.sources),
            "",
            *_table(truth.sources),
        ]
    ).rstrip()


def _reuse(sources: Sequence[SourceSummary]) -> Iterator[str]:
    reused, checks = sum(s.reused for s in sources), sum(s.reuse_checks for s in sources)
    if reused:
        change = sum(s.reuse_change for s in sources) / max(1, checks)
        yield (
            f"Unchanged frames: {reused:,} images reused the features of an earlier frame; where "
            f"that was checked, scores over T_inner differ by {change:.2f} on average."
        )


def _outages(truth: StoreSummary) -> Iterator[str]:
    for outage in truth.outages:
        waited = span(age(outage.since, truth.at) or 0.0)
        yield f"Waiting for the {outage.kind} for {waited}: {outage.sentence}"
    if truth.unwritable:
        yield f"Nothing can be written: {truth.unwritable}"
    if truth.account.unaccounted:
        yield (
            f"{truth.account.unaccounted:,} images have neither a verdict nor a reason: run "
            "conclad store check"
        )


def age(then: datetime | None, now: datetime) -> float | None:
    """Seconds since, never negative: clocks of two machines may differ a little."""
    return None if then is None else max((now - then).total_seconds(), 0.0)


def _monitor_line(truth: StoreSummary) -> str:
    monitor = truth.coordinator
    if monitor.running:
        since = span(age(monitor.since, truth.at) or 0.0)
        return f"A monitor is running: {monitor.owner}, for {since}."
    if monitor.owner is None:
        return "No monitor is running, and none has run on this state."
    return f"No monitor is running; the last one was {monitor.owner}."


def _detector_line(detector: VersionSummary | None, held: Sequence[int]) -> str:
    if detector is None:
        return "No detector yet: fit one with conclad fit."
    threshold = "its files cannot be read (see conclad store check)"
    if detector.t_inner is not None and detector.exceedance is not None:
        threshold = (
            f"T_inner {detector.t_inner:.4g}, exceeded by {detector.exceedance:.1%} of known images"
        )
    waiting = f"; held for an operator: {', '.join(map(str, held))}" if held else ""
    seen = ""
    if detector.noticeable:
        one, ten = detector.noticeable[1], detector.noticeable[10]
        seen = (
            f"\nThe trigger detects a new class from {one:.1%} of one pool, or from {ten:.1%} of "
            "each of ten pools (estimated at the fit)."
        )
    return (
        f"Detector version {detector.version}: {detector.known} classes, "
        f"{detector.discovered} of them discovered; {threshold}{waiting}.{seen}"
    )


def _new(truth: StoreSummary) -> Iterator[str]:
    if not truth.discoveries:
        yield "New classes: none so far."
        return
    yield f"New classes: {int(truth.total('discoveries')) or len(truth.discoveries)}, the latest:"
    for found in truth.discoveries[:DISCOVERIES_SHOWN]:
        where = f" at {found.source}" if found.source else ""
        yield (
            f"  {found.at:%Y-%m-%d %H:%M} UTC  {found.name}{where} "
            f"({found.human} by people, {found.pseudo} by pseudo-label)"
        )


def _questions(truth: StoreSummary) -> Iterator[str]:
    oldest = age(truth.oldest_question_at, truth.at)
    waited = "" if oldest is None else f", the oldest for {span(oldest)}"
    labels = truth.labels
    budget = f"; {labels.asked} of {labels.budget} questions about the pools in question asked"
    week = (
        ""
        if labels.per_week is None
        else f"; {labels.this_week or 0} of {labels.per_week} questions of this week asked"
    )
    yield (
        f"Questions open: {truth.questions_open}{waited}; asked so far: {labels.spent}"
        f"{budget if labels.budget else ''}{week}."
    )
    known, new = (int(truth.total("false_novel", said)) for said in ("known", "new"))
    if known + new:
        low, high = rate_interval(known, known + new)
        yield (
            f"Of {known + new} images above T_inner that people named, {known} were of a known "
            f"class: {low:.0%} to {high:.0%} of such images, with 95% certainty at any time."
        )


def _drift(truth: StoreSummary) -> Iterator[str]:
    for source in truth.sources:
        if source.drift is not None and source.drift.active:
            words = f" ({source.drift.words})" if source.drift.words else ""
            since = age(source.drift.since, truth.at)
            lasts = "" if since is None else f" for {span(since)}"
            yield f"Drift: {source.name}{lasts}, strength {source.drift.strength:.2f}{words}."
    if truth.detector is not None and truth.detector.adapted:
        furthest = sorted(((share, name) for (_, name), share in truth.detector.adapted.items()))
        told = ", ".join(f"{name} {share:.0%}" for share, name in reversed(furthest))
        yield f"Classes that adapted to drift, as a share of their limit: {told}."


def _silence(truth: StoreSummary) -> Iterator[str]:
    if truth.silent:
        named = [f"{s.source} for {span(s.seconds)}" for s in truth.silent[:SILENT_SHOWN]]
        more = len(truth.silent) - len(named)
        yield f"Silent: {', '.join(named)}{f' and {more:,} more' if more else ''}."


def _undelivered(truth: StoreSummary) -> Iterator[str]:
    for receiver, failures in truth.webhooks.items():
        if failures:
            yield f"Webhook: {receiver} could not be reached, {failures} times in a row."


def _actors(truth: StoreSummary) -> Iterator[str]:
    monitor = truth.coordinator
    if not monitor.running or not monitor.actors_up:
        return
    found = []
    for role, number in monitor.actors_up.items():
        more = monitor.actors_starting.get(role, 0)
        found.append(f"{number} {role}{f' (and {more} starting)' if more else ''}")
    yield f"Actors: {', '.join(found)}."


def _feed(truth: StoreSummary) -> Iterator[str]:
    files = [f"{truth.files.get(state, 0):,} {state.value}" for state in FileState]
    oldest = age(truth.oldest_waiting_at, truth.at)
    waits = "" if oldest is None else f"; the oldest unfinished one waits for {span(oldest)}"
    yield f"Files: {', '.join(files)}{waits}."
    yield (
        f"Batches: {truth.batches_pending:,} pending, {truth.total('batches', 'done'):,.0f} done, "
        f"{truth.quarantined.get('batches', 0):,} quarantined."
    )
    if any(truth.quarantined.values()):
        yield (
            f"Quarantined without a verdict: {truth.quarantined['files']:,} files, "
            f"{truth.quarantined['images']:,} images; see conclad quarantine list."
        )
    pools = [f"{truth.pools[state]:,} {state.value}" for state in PoolState if state in truth.pools]
    yield f"Pools: {', '.join(pools) or 'none'}."


def _table(sources: Sequence[SourceSummary]) -> Iterator[str]:
    if not sources:
        yield "No images yet."
        return
    shown = sorted(sources, key=lambda s: (-s.images.get("novel", 0), s.name))[:SOURCES_SHOWN]
    width = max(len("source"), *(len(source.name or "(none)") for source in shown))
    yield "source".ljust(width) + "".join(f"{outcome:>12}" for outcome in OUTCOMES)
    for source in shown:
        counts = "".join(f"{source.images.get(outcome, 0):>12,}" for outcome in OUTCOMES)
        yield (source.name or "(none)").ljust(width) + counts
    if len(sources) > len(shown):
        yield f"… and {len(sources) - len(shown):,} more sources (see --json)"


def _discovery(found: DiscoverySummary) -> Mapping[str, Any]:
    return {
        "at": _iso(found.at),
        "class_id": found.class_id,
        "name": found.name,
        "source": found.source,
        "version": found.version,
        "pool": found.pool,
        "human": found.human,
        "pseudo": found.pseudo,
        "sources": dict(found.sources),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
