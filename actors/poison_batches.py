"""Batches that kill the workers or the monitor: told from bad luck, and set aside.

A batch that kills its worker does so every time. Workers also die by no fault of their work:
machines are taken away, operators mistype, memory is short for an hour. So a batch whose worker
died is tried again alone, and each further death counts by how unlikely it is at the rate at which
workers of all roles have been dying since. If workers rarely die, a few deaths on the same batch
are enough to quarantine it; if many die, it takes more.

A batch that kills the coordinator leaves no witness. All that remains is that the last runs ended
without a word and without progress. Then the batches at the front of the ledger are tried one at a
time, each attempt recorded before it begins and struck out when it was survived; a run that dies
between two attempts clears them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from monitor.store import Store
from monitor.store.records import Lease

#: Runs that ended without a word and without a single batch, before batches are suspected.
RUNS_IN_VAIN = 3
#: A batch is set aside if chance explains its losses in one of a million cases. That is cautious:
#: the rate of chance counts losses in all roles, although they may only have hit one of them.
CHANCE = 1e-6

_RUN = ("monitor", "last_run")
_ATTEMPT = ("monitor", "attempted_batch")


@dataclass(frozen=True, slots=True)
class LossRecord:
    """What happened to the workers that had a batch; immutable.

    >>> record = LossRecord().died(at=0.0, total=1, alone=None)
    >>> for second in (5, 12, 20, 29, 40):
    ...     record = record.died(at=second, total=record.total + record.alone + 1, alone=0.5)
    >>> record.losses, record.is_poison(tries=4), record.is_poison(tries=7)
    (6, True, False)
    """

    losses: int = 0
    """Workers that died, and errors that were raised."""
    errors: int = 0
    alone: int = 0
    """Workers that died with no other batch."""
    chance: float = 1.0
    """How likely it is that something else killed all of those."""
    since: float = 0.0
    total: int = 0
    """When the first worker died, and how many of all roles had been lost by then."""

    def died(self, *, at: float, total: int, alone: float | None) -> LossRecord:
        """A worker died; ``total`` are those that have been lost so far, this one among them.

        ``alone`` is for how long it had had this batch, if it had no other one.
        """
        if not self.losses:
            return replace(self, losses=1, since=at, total=total)
        if alone is None:
            return replace(self, losses=self.losses + 1)
        # One more than were seen: even where none died yet the next one may be due.
        others = max(0, total - self.total - self.alone - 1) + 1
        by_chance = -math.expm1(-alone * others / max(at - self.since, alone, 1e-3))
        return replace(
            self,
            losses=self.losses + 1,
            alone=self.alone + 1,
            chance=self.chance * by_chance,
        )

    def failed(self) -> LossRecord:
        """A worker raised an error that is no part of its contract; chance does not do that."""
        return replace(self, losses=self.losses + 1, errors=self.errors + 1)

    def is_poison(self, tries: int) -> bool:
        if self.errors >= tries:
            return True
        return self.losses >= tries and self.chance <= CHANCE


def begin_run(store: Store, lease: Lease, *, first: int) -> bool:
    """Note that a run begins; says whether the ``first`` batches are now suspect."""
    with store.transaction(lease) as tx:
        done = sum(count.value for count in tx.counters.all("batches"))
        last = tx.notes.get(*_RUN, {"ended": True})
        died_in_vain = not last["ended"] and last["done"] == done
        in_vain = last["in_vain"] + 1 if died_in_vain else 0
        if in_vain > RUNS_IN_VAIN and tx.notes.get(*_ATTEMPT) is None:
            # The batches were being tried one by one, and it died with none of them begun.
            tx.batches.acquit()
            in_vain = 0
        suspicious = in_vain >= RUNS_IN_VAIN
        if suspicious:
            pending = tx.batches.pending(first)
            tx.batches.start([batch.id for batch in pending if not batch.tries])
        tx.notes.set(*_RUN, {"ended": False, "done": done, "in_vain": in_vain})
        tx.notes.set(*_ATTEMPT, None)
    return suspicious


def end_run(store: Store, lease: Lease) -> None:
    """Note that the run ended by itself, whatever its reason."""
    with store.transaction(lease) as tx:
        last: dict[str, Any] = tx.notes.get(*_RUN, {})
        tx.notes.set(*_RUN, {**last, "ended": True})


def record_attempt(store: Store, lease: Lease, batch_id: int) -> None:
    """Durable before the work: should the batch take this process along, it is known."""
    with store.transaction(lease) as tx:
        tx.batches.start([batch_id])
        tx.notes.set(*_ATTEMPT, batch_id)


def record_survival(store: Store, lease: Lease, batch_id: int) -> None:
    """The batch was embedded, and we are still here: it is a suspect no more."""
    with store.transaction(lease) as tx:
        tx.batches.acquit(batch_id)
        tx.notes.set(*_ATTEMPT, None)
