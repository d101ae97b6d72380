"""What is remembered of the drift of sources: states, verdicts, and corrections of their shift.

The state of a source is what drift is judged by. It is kept in a row of its own, or with many
others for a while.

A pool of many cameras brings a new state for nearly each of its images. As a row for each source
they would cost the coordinator a quarter of all that it does: every row lies on another page of
the database. So the states of such a pool are one note, and now and then these notes are merged
into the rows of their sources, most of which have changed many times by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from monitor.novelty.drift.shift_correction import ShiftCorrection
from monitor.novelty.drift.source_drift import accept
from monitor.novelty.drift.source_state import packed, unpacked
from monitor.pipeline.pool_inspection import PoolInspection
from monitor.store import Transaction
from monitor.store.note_and_counter_names import (
    DRIFT,
    DRIFT_STATES,
    RECENT_DRIFT_STATES,
    SHIFT_REVISION,
    SHIFTS,
)

#: States of fewer sources are rows at once.
TOGETHER_FROM = 200
#: So many pools, and bytes, are kept together: the bytes are what a start has to read.
POOLS_MOST, BYTES_MOST = 64, 32 << 20


class DriftStates:
    """The packed states of sources. What is remembered here is only what need not be read again."""

    def __init__(self) -> None:
        # The notes whose states are in memory, and these states, the latest of each source.
        self._seen: list[str] = []
        self._recent: dict[str, str] = {}
        # A note that may be among them at the next look, if its transaction was committed.
        self._written: dict[str, Mapping[str, str]] = {}

    def read(self, tx: Transaction, sources: Collection[str]) -> dict[str, str]:
        """The states of these sources, as far as there are any."""
        recent = self._read_recent(tx)
        found = {source: recent[source] for source in sources if source in recent}
        rest = [source for source in sources if source not in found]
        return found | tx.notes.get_many(DRIFT_STATES, rest)

    def keep(self, tx: Transaction, states: Mapping[str, str]) -> None:
        """Remember the states that a pool led to."""
        notes = tx.notes.keys(RECENT_DRIFT_STATES)
        if not states or (not notes and len(states) < TOGETHER_FROM):
            tx.notes.set_many(DRIFT_STATES, states)
            return
        size = sum(map(len, states.values()))
        if len(notes) < POOLS_MOST and size + sum(map(_size, notes)) <= BYTES_MOST:
            name = _name(_number(notes[-1]) + 1 if notes else 1, size)
            tx.notes.set(RECENT_DRIFT_STATES, name, dict(states))
            self._written = {name: states}
            return
        tx.notes.set_many(DRIFT_STATES, {**self._read_recent(tx), **states})
        for note in notes:
            tx.notes.delete(RECENT_DRIFT_STATES, note)

    def _read_recent(self, tx: Transaction) -> dict[str, str]:
        """The states in the notes of recent pools; what was seen before is not read again."""
        notes = tx.notes.keys(RECENT_DRIFT_STATES)
        if notes[: len(self._seen)] != self._seen:
            self._seen, self._recent = [], {}
        for note in notes[len(self._seen) :]:
            self._recent |= self._written.get(note) or tx.notes.get(RECENT_DRIFT_STATES, note)
        self._seen, self._written = notes, {}
        return self._recent


def _name(number: int, size: int) -> str:
    """Tells a note also from one of the same number whose transaction was rolled back."""
    return f"{number:09d}.{size}.{uuid.uuid4().hex[:12]}"


def _number(name: str) -> int:
    return int(name.split(".")[0])


def _size(name: str) -> int:
    return int(name.split(".")[1])


def keep_drift(tx: Transaction, seen: PoolInspection, states: DriftStates) -> None:
    """Remember what a pool taught about its sources, and tell of what began or ended."""
    states.keep(tx, seen.states)
    told = {source: seen.verdicts[source].to_json() for source in seen.judged}
    tx.notes.set_many(DRIFT, {source: {"verdict": verdict} for source, verdict in told.items()})
    for source, verdict in told.items():
        if verdict["started"] or verdict["ended"]:
            kind = "drift.detected" if verdict["started"] else "drift.ended"
            tx.events.append(kind, verdict, source=source)


def accept_shift(tx: Transaction, sources: Collection[str]) -> None:
    """The present look of these sources has been learnt: it is normal from here on."""
    judged = tx.notes.get_many(DRIFT, sources)
    states = DriftStates()
    before, at = states.read(tx, judged), tx.now.timestamp()
    states.keep(tx, {s: packed(accept(unpacked(state), at)) for s, state in before.items()})
    for source, note in judged.items():
        verdict = {**note["verdict"], "shifted": False, "accepted": True}
        tx.notes.set(DRIFT, source, {"verdict": verdict})
    keep_corrections(tx, {}, over=sources)


def keep_corrections(
    tx: Transaction, found: Mapping[str, ShiftCorrection], over: Collection[str] = ()
) -> tuple[str, ...]:
    """Correct these sources from the next batch on, and those that are ``over`` no more.

    Returns the sources that were not corrected before. A shift that goes on keeps its beginning.
    """
    before = tx.notes.get_many(SHIFTS, [*found, *over])
    ended = [source for source in over if source in before]
    for source in ended:
        tx.notes.delete(SHIFTS, source)
    kept = {
        source: replace(one, since=before[source]["since"]) if source in before else one
        for source, one in found.items()
    }
    tx.notes.set_many(SHIFTS, {source: one.to_json() for source, one in kept.items()})
    if kept or ended:
        tx.notes.set(*SHIFT_REVISION, tx.notes.get(*SHIFT_REVISION, 0) + 1)
    return tuple(source for source in kept if source not in before)
