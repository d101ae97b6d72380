"""The trigger's evidence between two pools: where it is kept, and when it begins anew."""

from __future__ import annotations

from monitor.novelty.trigger import Evidence
from monitor.store import Transaction

ROOM = "trigger"


def read_evidence(tx: Transaction, measure: str, version: int) -> Evidence:
    """What has gathered with this version of the detector.

    Another version judges by another T_inner and knows more: the bets start anew with it, the
    baselines that people confirmed stay.
    """
    kept = tx.notes.get(ROOM, measure, {})
    evidence = Evidence.from_dict(kept)
    return evidence if kept.get("version") == version else evidence.settled()


def keep_evidence(tx: Transaction, measure: str, version: int, evidence: Evidence) -> None:
    tx.notes.set(ROOM, measure, {"version": version, **evidence.to_dict()})
