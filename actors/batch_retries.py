"""Batches that fail or kill their workers: tried again, then halved down to the row at fault.

A batch that kills its worker does so every time. Workers also die by no fault of their work:
machines are taken away, operators mistype, memory is short for an hour. So a batch whose worker
died is tried again alone, and each further death counts by how unlikely it is at the rate at which
workers of all roles have been dying since. If workers rarely die, a few deaths on the same batch
are enough to halve it; if many die, it takes more. Its halves are tried in turn, and so on down to
the single row that is at fault, which is quarantined.

A batch that is at fault fails while others pass. When different batches fail alike and none has
passed in between, the fault is in what they share (a driver, a library, a disk of weights, our own
code): then quarantining them one by one would quarantine the feed.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actors.event_sentences import Listener, MonitorMessage
from monitor.errors import ConcladError
from monitor.plain_text import visible
from monitor.store import Store
from monitor.store.atomic_files import declare
from monitor.store.records import Count, Lease

if TYPE_CHECKING:
    from actors.batches_in_flight import BatchesInFlight, BatchInFlight

declare("coordinator.before_quarantine", "coordinator.after_quarantine")

#: What failed for a reason that may be over is tried again after this time.
RETRY_SECONDS = 1.0
#: A batch is quarantined if chance explains its losses in one of a million cases. That is cautious:
#: the rate of chance counts losses in all roles, although they may only have hit one of them.
CHANCE = 1e-6


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


#: So many different batches in a row, with none that passed, are no coincidence.
ALIKE = 3


class BatchesFailAlike(ConcladError):
    """Different batches fail in the same way: it is not the batches."""


class FailureLog:
    """What failed at one stage since the last batch that passed it.

    >>> log = FailureLog("embedding")
    >>> log.failed(7, ValueError("row 12"), at=1.0), log.failed(8, ValueError("row 5"), at=2.0)
    (1, 2)
    >>> log.passed(at=3.0)
    >>> log.failed(9, ValueError("row 1"), at=4.0), log.has_passed_since(2.5)
    (1, True)
    """

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self._alike: dict[str, set[int]] = {}
        self._passed_at = -float("inf")

    def passed(self, *, at: float) -> None:
        """A batch came through."""
        self._passed_at = at
        self._alike.clear()

    def failed(self, batch_id: int, error: BaseException, *, at: float) -> int:
        """A batch failed; how many different ones have failed alike since the last that passed."""
        alike = self._alike.setdefault(_signature(error), set())
        alike.add(batch_id)
        return len(alike)

    def has_passed_since(self, moment: float) -> bool:
        return self._passed_at >= moment


def _signature(error: BaseException) -> str:
    """What an error says, without the numbers and names that differ from batch to batch."""
    return re.sub(r"\d+|'[^']*'|\S*/\S*", "*", f"{type(error).__name__}: {error}")[:200]


class BatchRetries:
    """Counts what batches do to their workers; halves those that are at fault, down to one row."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        in_flight: BatchesInFlight,
        *,
        tries: int,
        listener: Listener,
    ) -> None:
        self._store, self._lease, self._in_flight = store, lease, in_flight
        self._tries = tries
        self._listener = listener
        self._logs = {stage: FailureLog(stage) for stage in ("embedding", "scoring", "committing")}

    def passed(self, stage: str) -> None:
        """A batch came through a stage: whatever fails there now is not everything."""
        self._logs[stage].passed(at=time.monotonic())

    def has_passed_since(self, moment: float) -> bool:
        """Whether a batch was embedded after a moment."""
        return self._logs["embedding"].has_passed_since(moment)

    def count_death(self, one: BatchInFlight, error: BaseException, *, of_all: int) -> None:
        """A worker died with this batch: it is halved if chance cannot explain it.

        ``of_all`` are the workers of all roles that have died so far.
        """
        now = time.monotonic()
        alone = now - one.began if one.is_suspect else None
        one.losses = one.losses.died(at=now, total=of_all, alone=alone)
        if one.losses.is_poison(self._tries):
            number = one.losses.losses
            self._halve(one, f"{number} workers died of it, at last with: {error}")

    def count_error(self, one: BatchInFlight, error: BaseException, stage: str) -> None:
        """This batch has raised one more error at a stage; after too many it is halved.

        Raises BatchesFailAlike where the fault is in what batches share.
        """
        now = time.monotonic()
        one.failing_since = now if one.failing_since is None else one.failing_since
        one.losses = one.losses.failed()
        one.fails_late = one.fails_late or stage != "embedding"
        if not one.losses.is_poison(self._tries):
            return
        log = self._logs[stage]
        alike = log.failed(one.root, error, at=now)
        if alike >= ALIKE:
            raise BatchesFailAlike(
                f"{alike} different batches fail alike at {stage} and none passes: {error}; "
                "nothing was quarantined: look for what they share (driver, library, weights, "
                "memory), then start the monitor again"
            ) from error
        if stage == "committing":
            # Those behind it wait for their turn, so nobody could fare better before it.
            self._halve(one, f"could not be committed, at last with: {error}")
            return
        others = any(
            other.root != one.root and not other.losses.errors for other in self._in_flight
        )
        if others and not log.has_passed_since(one.failing_since):
            # Not yet known whether others fare better: they are tried first.
            one.not_before = now + RETRY_SECONDS
            return
        self._halve(one, f"failed {one.losses.errors} times, at last with: {error}")

    def _halve(self, one: BatchInFlight, reason: str) -> None:
        """Halve a batch, so that the rest of it passes; a single row is quarantined."""
        if one.planned.rows < 2:
            self.quarantine(one, reason)
            return
        with self._store.transaction(self._lease) as tx:
            halves = tx.batches.split(one.batch.id)
        # One more loss is enough: that something is wrong with one of them is known.
        losses = replace(
            one.losses,
            losses=max(one.losses.losses, self._tries) - 1,
            errors=max(0, min(one.losses.errors, self._tries - 1)),
        )
        self._in_flight.replace(one.batch.id, [one.part(half, losses) for half in halves])

    def quarantine(self, one: BatchInFlight, reason: str) -> None:
        """A person has to look at this batch; the others go on."""
        reason = visible(reason)
        with self._store.step("coordinator", "quarantine", self._lease) as tx:
            tx.batches.quarantine(one.batch.id, reason)
            place = {
                "file": one.planned.file.path,
                "first_row": one.planned.first_row,
                "rows": one.planned.rows,
            }
            tx.events.append("batch.quarantined", {**place, "reason": reason})
            tx.counters.add([Count("batches", "", "quarantined", 1)])
        self._in_flight.remove(one.batch.id)
        message = (
            f"{one.planned.file.path}, rows {one.planned.first_row} to "
            f"{one.planned.end_row - 1}: quarantined, {reason}"
        )
        self._listener(MonitorMessage("batch.quarantined", message))
