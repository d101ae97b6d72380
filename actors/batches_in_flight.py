"""Batches between the ledger and their commit: under way, next, and suspected to be poison.

A batch that kills its worker does so every time. Workers also die by no fault of their work:
machines are taken away, operators mistype, memory is short for an hour. So a batch whose worker
died is tried again alone, and each further death counts by how unlikely it is at the rate at which
workers of all roles have been dying since. If workers rarely die, a few deaths on the same batch
are enough to quarantine it; if many die, it takes more.

A batch that is at fault fails while others pass. When different batches fail alike and none has
passed in between, the fault is in what they share (a driver, a library, a disk of weights, our own
code): then quarantining them one by one would quarantine the feed.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from monitor.errors import ConcladError
from monitor.feed.batch_plan import PlannedBatch
from monitor.store import ScoredBatch, Store
from monitor.store.records import Batch, FileRow

#: Batches that are read at once: enough that quick workers do not ask the ledger every time.
READ_AHEAD = 512
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


class Stage(Enum):
    """How far a batch has come."""

    WAITING = "waiting"
    EMBEDDING = "embedding"
    EMBEDDED = "embedded"
    SCORING = "scoring"
    SCORED = "scored"


@dataclass(slots=True)
class BatchInFlight:
    """One batch between the ledger and its commit."""

    batch: Batch
    planned: PlannedBatch
    stage: Stage = Stage.WAITING
    features: Any = None
    """The embedded batch, wherever it is."""
    scored: ScoredBatch | None = None
    losses: LossRecord = field(default_factory=LossRecord)
    """What it did to the workers that had it."""
    began: float = 0.0
    """When it was last given to a worker."""
    is_recorded: bool = False
    """Whether the ledger knows that this run has begun to embed it."""
    not_before: float = 0.0
    """After an outage: when to try again."""
    away_since: float | None = None
    """Since when its file could not be reached."""
    failing_since: float | None = None
    """When it raised its first error."""
    fails_late: bool = False
    """Whether it failed after it had been embedded: embedding it again proves nothing."""
    root: int = 0
    """The batch that it was a part of before it was halved."""

    def __post_init__(self) -> None:
        self.root = self.root or self.batch.id

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what kills its workers, or whole runs; it is then tried alone."""
        return self.losses.losses > 0 or self.batch.tries > 0

    def back_to(self, stage: Stage) -> None:
        """Do again what comes after this stage."""
        self.stage = stage
        self.scored = None
        if stage is Stage.WAITING:
            self.features = None


class BatchesInFlight:
    """The batches under way, in the order of the ledger. They leave at the front, in order."""

    def __init__(self) -> None:
        self._batches: dict[int, BatchInFlight] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[BatchInFlight]:
        return iter(self._batches.values())

    def add(self, one: BatchInFlight) -> None:
        self._batches[one.batch.id] = one

    def replace(self, batch_id: int, parts: Sequence[BatchInFlight]) -> None:
        """Put the parts of a batch in its place, so that the order stays that of the ledger."""
        before = list(self._batches.values())
        after = [p for one in before for p in (parts if one.batch.id == batch_id else (one,))]
        self._batches = {one.batch.id: one for one in after}

    def get(self, batch_id: int) -> BatchInFlight | None:
        return self._batches.get(batch_id)

    def remove(self, batch_id: int) -> None:
        self._batches.pop(batch_id, None)

    def remove_file(self, file_id: int) -> None:
        """Forget every batch of a file that was quarantined."""
        for one in [one for one in self if one.batch.file_id == file_id]:
            self.remove(one.batch.id)

    def at(self, stage: Stage) -> list[BatchInFlight]:
        return [one for one in self if one.stage is stage]

    def front(self, stage: Stage) -> Iterator[BatchInFlight]:
        """Those at the front that have come so far, up to the first that has not."""
        for one in self:
            if one.stage is not stage:
                return
            yield one


class PendingBatches:
    """The batches that come next, with their files: the ledger, read some way ahead.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     PendingBatches(store, BatchesInFlight()).take(3)
    []
    """

    def __init__(self, store: Store, in_flight: BatchesInFlight) -> None:
        self._store, self._in_flight = store, in_flight
        self._ahead: deque[tuple[Batch, FileRow]] = deque()
        self._has_more = True

    def read_again(self) -> None:
        """The ledger may hold more than when it was last read."""
        self._has_more = True

    def has(self, count: int) -> bool:
        """Whether so many batches wait."""
        if len(self._ahead) < count and self._has_more:
            self._read(count)
        return len(self._ahead) >= count

    def take(self, count: int) -> list[tuple[Batch, FileRow]]:
        """So many of the next batches, or as many as there are; the caller puts them in flight."""
        self.has(count)
        return [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]

    def remove_file(self, file_id: int) -> None:
        """Forget the batches of a file that was quarantined."""
        self._ahead = deque(pair for pair in self._ahead if pair[0].file_id != file_id)

    def _read(self, count: int) -> None:
        limit = max(count, READ_AHEAD) + len(self._in_flight)
        known = {file.id: file for _, file in self._ahead}
        with self._store.reading() as tx:
            found = tx.batches.pending(limit)
            batches = [batch for batch in found if self._in_flight.get(batch.id) is None]
            missing = {batch.file_id for batch in batches} - set(known)
            known |= {file.id: file for file in tx.files.get_many(missing)}
        self._ahead = deque((batch, known[batch.file_id]) for batch in batches)
        self._has_more = len(found) == limit
