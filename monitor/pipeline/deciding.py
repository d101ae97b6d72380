"""What becomes of a closed pool, and what is remembered of it, inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from monitor.config import Config
from monitor.config.schema import Labels
from monitor.novelty.detector import Detector
from monitor.novelty.trigger import Tally, Verdict
from monitor.pipeline.drifting import keep_drift
from monitor.pipeline.evidence import keep_evidence, read_evidence
from monitor.pipeline.learning import Conclusion
from monitor.pipeline.looking import ABOVE, Looked
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
    tx: Transaction, pool_id: int, looked: Looked, current: Current, config: Config, *, left: int
) -> None:
    """A closed pool is quiet, or people are asked; evidence and drift move with it.

    ``left`` is how many questions this week still allows.
    """
    keep_drift(tx, looked)
    measure, verdict = _weigh(tx, looked, current, config.pools.false_alarms)
    found = looked.counted[measure]
    triggered = verdict.triggered
    if config.pools.trigger == "any":
        triggered = any(tally.above for tally in looked.counted[ABOVE].tallies.values())
    reasons = {
        "measure": measure,
        "tallies": _plain(found.tallies),
        "expected": found.chance,
        "counted": {name: _plain(counted.tallies) for name, counted in looked.counted.items()},
        "explained_by_shift": looked.explained,
        "strength": round(verdict.strength, 3),
        "threshold": round(verdict.threshold, 3),
        "sources": list(verdict.sources),
        "shifted": sorted(s for s, v in looked.verdicts.items() if v.shifted),
    }
    budget = min(budget_of(tx.pools.get(pool_id).size, config.labels), left)
    if not triggered and any(v.started for v in looked.verdicts.values()):
        # A shift has begun, and nothing seems new: a few questions make sure, and their answers
        # teach the classes their new look.
        budget = min(budget, config.drift.confirm_labels)
        triggered = budget > 0
    if not triggered:
        tx.pools.move(pool_id, PoolState.QUIET, evidence=reasons)
        tx.events.append("pool.quiet", {"pool": pool_id, **reasons})
        return
    tx.pools.begin_asking(pool_id, budget=budget, detector_version=current.number, evidence=reasons)
    tx.events.append(
        "pool.triggered",
        {"pool": pool_id, "budget": budget, **reasons},
        source=verdict.sources[0] if verdict.sources else None,
    )


def _weigh(
    tx: Transaction, looked: Looked, current: Current, false_alarms: float
) -> tuple[str, Verdict]:
    """Bet by each measure, and return the one that has won most."""
    verdicts: dict[str, Verdict] = {}
    for name, counted in looked.counted.items():
        expected = replace(
            current.detector.calibration, exceedance=counted.chance, count=counted.references
        )
        evidence = read_evidence(tx, name, current.number).weighed(counted.tallies, expected)
        keep_evidence(tx, name, current.number, evidence)
        # Whoever bets twice wins by chance twice as often.
        verdicts[name] = evidence.verdict(false_alarms * len(looked.counted))
    best = max(verdicts, key=lambda name: verdicts[name].strength - verdicts[name].threshold)
    return best, verdicts[best]


def _plain(tallies: Mapping[str, Tally]) -> dict[str, list[int]]:
    return {source: [tally.samples, tally.above] for source, tally in tallies.items()}


def budget_of(size: int, labels: Labels) -> int:
    """How many questions a pool may ask: a share of it, within bounds.

    >>> budget_of(2000, Labels(budget=0.0125)), budget_of(20, Labels(budget=0.0125, least=3))
    (25, 3)
    """
    return min(max(labels.least, round(labels.budget * size)), labels.most, size)


def nothing_new(tx: Transaction, pool_id: int, found: Conclusion) -> None:
    """People have looked: what the pool showed is what nothing new looks like."""
    pool = tx.pools.get(pool_id)
    assert pool.detector_version is not None, "nobody was asked about this pool"
    for name, tallies in pool.evidence["counted"].items():
        seen = {source: Tally(*counts) for source, counts in tallies.items()}
        evidence = read_evidence(tx, name, pool.detector_version).nothing_new(seen)
        keep_evidence(tx, name, pool.detector_version, evidence)
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
