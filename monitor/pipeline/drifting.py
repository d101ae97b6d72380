"""What is remembered of each source's drift, and what is said when it begins or ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from monitor.novelty.drift import accept
from monitor.pipeline.looking import Looked
from monitor.store import Transaction

ROOM = "drift"


def read_states(tx: Transaction, sources: Collection[str]) -> dict[str, Mapping[str, Any]]:
    kept = tx.notes.get_many(ROOM, sources)
    return {source: note["state"] for source, note in kept.items()}


def keep_drift(tx: Transaction, looked: Looked) -> None:
    """Remember what a pool taught about its sources, and tell of what began or ended."""
    told = {source: verdict.to_json() for source, verdict in looked.verdicts.items()}
    tx.notes.set_many(
        ROOM, {s: {"state": looked.states[s], "verdict": told[s]} for s in looked.verdicts}
    )
    for source, verdict in looked.verdicts.items():
        if verdict.started or verdict.ended:
            kind = "drift.detected" if verdict.started else "drift.ended"
            tx.events.append(kind, told[source], source=source)


def accept_looks(tx: Transaction, sources: Collection[str]) -> None:
    """The present look of these sources has been learnt: it is normal from here on."""
    for source in sources:
        note = tx.notes.get(ROOM, source)
        if note is not None:
            state = accept(note["state"], tx.now.timestamp())
            verdict = {**note["verdict"], "shifted": False, "accepted": True}
            tx.notes.set(ROOM, source, {"state": state, "verdict": verdict})
