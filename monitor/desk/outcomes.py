"""What came of the questions: what the monitor is doing with the answers, and what it learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from monitor.people.class_pictures import pictures_of
from monitor.store.pool_transitions import PoolState
from monitor.store.records import Pool
from monitor.store.store import Transaction
from monitor.store.tables import pools

ALIVE = timedelta(seconds=60)
"""The monitor writes a sign of life every five seconds; a crowded machine may miss a few."""

LATELY = timedelta(days=14)
"""How long what was learnt is shown as an outcome."""

PICTURES = 6
EVENTS = 500
"""Latest lessons that are looked through: more than anybody gave in two weeks."""

_LEARNT = ("class.discovered", "class.grown", "class.confirmed")


@dataclass(frozen=True, slots=True)
class Learnt:
    """One class that the questions about a pool brought, or taught more images."""

    class_id: str
    name: str
    is_new: bool
    human: int
    pseudo: int
    yours: bool
    """Whether whoever looks gave all of the answers about the pool."""
    pictures: tuple[str, ...]

    @property
    def words(self) -> str:
        told = f"{self.human:,} by {'you' if self.yours else 'people'}"
        itself = f"{self.pseudo:,} by itself"
        if self.is_new:
            return f"{told}, {itself}"
        return "learnt more images, " + ", ".join([told, itself] if self.human else [itself])


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What came of asking about one pool."""

    pool: int
    at: datetime
    asked: int
    learnt: tuple[Learnt, ...]
    words: str


def monitor_seen(tx: Transaction) -> datetime | None:
    """When the monitor last gave a sign of life; None if it never ran."""
    note: Mapping[str, Any] = tx.notes.get("monitor", "coordinator", {}) or {}
    seen = note.get("seen_at")
    return datetime.fromisoformat(seen) if seen else None


def is_alive(tx: Transaction) -> bool:
    seen = monitor_seen(tx)
    if seen is None or tx.now - seen >= ALIVE:
        return False
    # A monitor that was stopped has said so; one that was killed has not.
    last = next(iter(tx.events.latest(kinds=("monitor.started", "monitor.stopped"), limit=1)), None)
    return last is None or last.kind == "monitor.started" or last.at < seen


def in_progress(tx: Transaction) -> str | None:
    """What the monitor does with answers that it has; None if it has none to work on."""
    waiting = tx.pools.in_state(PoolState.WAITING)
    due = [pool for pool in waiting if not tx.counts.open_questions(pool.id)]
    if not due and not tx.pools.in_state(PoolState.ASKING, limit=1):
        return None
    if not is_alive(tx):
        return "Your answers are kept. The monitor is not running; it uses them when it is back."
    return "Thank you. The monitor is working out what the answers mean; this takes a minute or so."


def latest_outcomes(tx: Transaction, who: str, limit: int = 5) -> list[RoundOutcome]:
    """What came of the latest pools that people were asked about, the newest first."""
    ended = (PoolState.RESOLVED, PoolState.UNRESOLVED, PoolState.HELD)
    rows = tx.connection.execute(
        select(pools)
        .where(pools.c.state.in_(ended), pools.c.asked > 0)
        .order_by(pools.c.finished_at.desc(), pools.c.id.desc())
        .limit(limit)
    ).mappings()
    found = [Pool(**dict(row)) for row in rows]
    brought = _learnt(tx, who) if found else {}
    outcomes = [_outcome(tx, pool, brought.get(pool.id, ())) for pool in found]
    return [one for one in outcomes if tx.now - one.at < LATELY]


def _learnt(tx: Transaction, who: str) -> dict[int, tuple[Learnt, ...]]:
    """The classes of each pool, as they are called now; those taken back since are left out.

    A class that was discovered and then grew with the same pool is told once.
    """
    by_pool: dict[int, dict[str, Learnt]] = {}
    for event in tx.events.latest(kinds=_LEARNT, limit=EVENTS):
        said = event.payload
        row = tx.classes.resolve(said["class_id"])
        pool = said.get("pool")
        if not row.living or pool is None:
            continue
        classes = by_pool.setdefault(pool, {})
        before = classes.get(row.id)
        is_new = event.kind == "class.discovered"
        shown = [one.thumbnail for one in pictures_of(tx, row.id)]
        classes[row.id] = Learnt(
            row.id,
            row.name,
            is_new=is_new or (before is not None and before.is_new),
            human=said["human"] + (before.human if before else 0),
            pseudo=said["pseudo"] + (before.pseudo if before else 0),
            yours=_all_by(tx, pool, who),
            pictures=tuple(shown[:PICTURES]),
        )
    return {
        pool: tuple(sorted(found.values(), key=lambda one: (not one.is_new, one.name)))
        for pool, found in by_pool.items()
    }


def _all_by(tx: Transaction, pool: int, who: str) -> bool:
    return {one.who for one in tx.answers.standing(pool).values()} == {who}


def _outcome(tx: Transaction, pool: Pool, learnt: tuple[Learnt, ...]) -> RoundOutcome:
    at = pool.finished_at or pool.closed_at or pool.opened_at
    if pool.state is PoolState.HELD:
        words = (
            "What it learnt waits for an admin, who may use it or refuse it on the history page."
        )
    elif pool.state is PoolState.UNRESOLVED:
        words = f"Nothing came of it: {pool.reason or 'it was left'}."
    elif learnt:
        words = "; ".join(f"{one.name}: {one.words}" for one in learnt) + "."
    else:
        words = "Nothing new: what looked unusual is known."
    return RoundOutcome(pool.id, at, pool.asked, learnt, words)
