"""The corrections of shifted sources in the store: kept by the monitor, used by every verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from monitor.novelty.drift.shift_correction import ShiftCorrection
from monitor.store import Transaction
from monitor.store.shared_names import SHIFT_REVISION, SHIFTS


@dataclass(frozen=True, slots=True, eq=False)
class ShiftCorrections:
    """The corrections in use by source. Every change of any of them has a revision of its own."""

    revision: int = 0
    by_source: Mapping[str, ShiftCorrection] = field(default_factory=dict)


#: Where no source is shifted.
UNCORRECTED = ShiftCorrections()


def corrections_revision(tx: Transaction) -> int:
    """The revision in use, without reading the corrections themselves."""
    return int(tx.notes.get(*SHIFT_REVISION, 0))


def read_corrections(tx: Transaction) -> ShiftCorrections:
    kept = tx.notes.all(SHIFTS)
    return ShiftCorrections(
        corrections_revision(tx), {s: ShiftCorrection.from_json(c) for s, c in kept.items()}
    )


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
        tx.notes.set(*SHIFT_REVISION, corrections_revision(tx) + 1)
    return tuple(source for source in kept if source not in before)
