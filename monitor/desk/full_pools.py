"""Why full pools wait, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.desk.outcomes import is_alive
from monitor.store.note_and_counter_names import HEARTBEAT
from monitor.store.pool_transitions import PoolState
from monitor.store.store import Transaction


def why_full_pools_wait(tx: Transaction) -> str:
    """A sentence; empty if no pool is full. In the order in which the monitor itself decides."""
    full = len(tx.pools.in_state(PoolState.CLOSED))
    if not full:
        return ""
    many = "1 full pool" if full == 1 else f"{full} full pools"
    reason = _reason(tx)
    if reason is None:
        return f"{many} {'is' if full == 1 else 'are'} about to be examined."
    return f"{many} {'waits' if full == 1 else 'wait'} {reason}."


def _reason(tx: Transaction) -> str | None:
    if not is_alive(tx):
        return "for the monitor, which is not running; start it with conclad run"
    if tx.pools.in_state(PoolState.HELD, limit=1):
        return "until an admin has used or refused the version that is held, on the history page"
    asked = [
        pool for pool in tx.pools.in_state(PoolState.ASKING, PoolState.WAITING) if not pool.is_probe
    ]
    if any(tx.counts.open_questions(pool.id) for pool in asked):
        return "until the questions about earlier images are answered"
    if asked:
        return "until the monitor has worked out what the answers about earlier images mean"
    note: Mapping[str, Any] = tx.notes.get(*HEARTBEAT) or {}
    labels = note.get("labels") or {}
    if "per_week" in labels and labels.get("spent_this_week", 0) >= labels["per_week"]:
        return (
            f"until more may be asked: all {labels['per_week']:,} questions of these seven days "
            "are used up; labels.per_week allows more"
        )
    return None
