"""What is remembered of each source's drift, and what is said when it begins or ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from monitor.novelty.drift import accept
from monitor.pipeline.looking import Looked
from monitor.store import Transaction

ROOM = "drift"


def read_states(tx: Transaction, sources: Collection[str]) -> dict[str, Mapping[str, Any]]:
    kept = {source: tx.notes.get(ROOM, source) for source in sources}
    return {source: note["state"] for source, note in kept.items() if note is not None}


def keep_drift(tx: Transaction, looked: Looked) -> None:
    """Remember what a pool taught about its sources, and tell of what began or ended."""
    for source, verdict in looked.verdicts.items():
        told = verdict.to_json()
        tx.notes.set(ROOM, source, {"state": looked.states[source], "verdict": told})
        if verdict.started or verdict.ended:
            tx.events.append(
                "drift.detected" if verdict.started else "drift.ended", told, source=source
            )


def accept_looks(tx: Transaction, sources: Collection[str]) -> None:
    """The present look of these sources has been learnt: it is normal from here on."""
    for source in sources:
        note = tx.notes.get(ROOM, source)
        if note is not None:
            state = accept(note["state"], tx.now.timestamp())
            verdict = {**note["verdict"], "shifted": False, "accepted": True}
            tx.notes.set(ROOM, source, {"state": state, "verdict": verdict})
