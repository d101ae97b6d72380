"""What becomes of a closed pool, and what is remembered of it, inside one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from monitor.config import Config
from monitor.config.schema import Labels
from monitor.novelty.detector import Detector
from monitor.novelty.trigger import Decision, TriggerSettings
from monitor.pipeline.drifting import keep_drift
from monitor.pipeline.evidence import keep_watch, read_watch
from monitor.pipeline.learning import Conclusion
from monitor.pipeline.looking import Looked
from monitor.store import Transaction
from monitor.store.rows import Count
from monitor.store.states import PoolState

#: The group of sources that share a detector; there is one.
GROUP = ""


@dataclass(frozen=True, slots=True, eq=False)
class Current:
    """The detector in use."""

    number: int
    detector: Detector


def decide(
    tx: Transaction,
    pool_id: int,
    looked: Looked,
    current: Current,
    config: Config,
    *,
    at: float,
    left: int,
    closing: bool = True,
    probing: bool = False,
) -> bool:
    """A pool is quiet, or people are asked; what is remembered moves with it.

    ``at`` is when the pool was taken, in POSIX seconds; ``left`` is how many questions this week
    still allows. A pool that is still filling (not ``closing``) is closed if people are to be
    asked, and goes on filling otherwise. While questions about another quiet pool are out
    (``probing``), no more of that kind are asked. Whether people are asked.
    """
    settings = trigger_settings(config)
    watch, found = read_watch(tx, current.number).decided(
        looked.seen,
        at=at,
        settings=replace(settings, probe=0) if probing else settings,
        closing=closing,
    )
    pool = tx.pools.get(pool_id)
    triggered = found.kind == "round"
    if config.pools.trigger == "any":
        triggered = closing and pool.above > 0
    budget = min(budget_of(pool.size, config.labels), left)
    probe = min(found.questions, budget)
    if closing and not triggered and any(v.started for v in looked.verdicts.values()):
        # A shift has begun, and nothing seems new: a few questions make sure, and their answers
        # teach the classes their new look.
        budget, probe = min(budget, config.drift.confirm_labels), 0
        triggered = budget > 0
    keep_watch(tx, current.number, watch)
    if not closing and not triggered:
        return False
    keep_drift(tx, looked)
    reasons = _reasons(looked, found, probe=0 if triggered else probe)
    if not closing:
        tx.pools.move(pool_id, PoolState.CLOSED)
    if not triggered and not probe:
        tx.pools.move(pool_id, PoolState.QUIET, evidence=reasons)
        tx.events.append("pool.quiet", {"pool": pool_id, **reasons})
        return False
    tx.pools.begin_asking(pool_id, budget=budget, detector_version=current.number, evidence=reasons)
    tx.events.append(
        "pool.triggered" if triggered else "pool.probed",
        {"pool": pool_id, "budget": budget if triggered else probe, **reasons},
        source=found.sources[0] if found.sources else None,
    )
    return True


def _reasons(looked: Looked, found: Decision, *, probe: int) -> dict[str, Any]:
    """What a pool's record says about the decision."""
    return {
        "images": sum(looked.images.values()),
        "novel": {source: number for source, number in looked.novel.items() if number},
        "explained_by_shift": looked.explained,
        "strength": {s: round(value, 3) for s, value in looked.seen.strength.items()},
        "chance": float(f"{found.chance:.4g}"),
        "level": float(f"{found.level:.4g}"),
        "sources": list(found.sources),
        "shifted": sorted(s for s, v in looked.verdicts.items() if v.shifted),
        "probe": probe,
    }


def trigger_settings(config: Config) -> TriggerSettings:
    return TriggerSettings(
        false_rounds_per_month=config.pools.false_rounds_per_month,
        trickle_per_week=config.labels.trickle_per_week,
        probe=config.labels.probe,
    )


def budget_of(size: int, labels: Labels) -> int:
    """How many questions a pool may ask: a share of it, within bounds.

    >>> budget_of(2000, Labels(budget=0.0125)), budget_of(20, Labels(budget=0.0125, least=3))
    (25, 3)
    """
    return min(max(labels.least, round(labels.budget * size)), labels.most, size)


def nothing_new(tx: Transaction, pool_id: int, found: Conclusion) -> None:
    """People have looked: what the pool showed is what nothing new looks like.

    A few questions of a probe do not say that: they count only where the trigger asked.
    """
    pool = tx.pools.get(pool_id)
    assert pool.detector_version is not None, "nobody was asked about this pool"
    if not pool.evidence.get("probe"):
        watch = read_watch(tx, pool.detector_version).nothing_new(pool.evidence["strength"])
        keep_watch(tx, pool.detector_version, watch)
    outcome = {"outcome": found.outcome, "missed": found.missed}
    tx.pools.move(pool_id, PoolState.RESOLVED, reason="nothing new", evidence=outcome)
    tx.events.append("pool.quiet", {"pool": pool_id, "asked": pool.asked})
    tx.counters.add(
        [
            Count("inner_loops", "", found.outcome, 1),
            Count("inner_loop_rounds", "", "", found.rounds),
            Count("inner_loop_seconds", "", "", found.seconds),
        ]
    )
