"""Batches between the ledger and their commit."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from actors.batch_retries import LossRecord
from monitor.feed.batch_plan import PlannedBatch
from monitor.store import ScoredBatch
from monitor.store.records import Batch


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

    def part(self, batch: Batch, losses: LossRecord) -> BatchInFlight:
        """A part of it, to be tried from the beginning."""
        return BatchInFlight(
            batch,
            replace(self.planned, first_row=batch.first_row, rows=batch.rows),
            losses=losses,
            failing_since=self.failing_since,
            fails_late=self.fails_late,
            root=self.root,
        )

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

    @property
    def ids(self) -> KeysView[int]:
        """Their numbers; a view, which follows what is added and removed."""
        return self._batches.keys()

    def add(self, one: BatchInFlight) -> None:
        self._batches[one.batch.id] = one

    def replace(self, batch_id: int, parts: Sequence[BatchInFlight]) -> None:
        """Put the parts of a batch in its place, so that the order stays that of the ledger."""
        before = list(self._batches.values())
        after = [p for one in before for p in (parts if one.batch.id == batch_id else (one,))]
        self._batches.clear()
        self._batches.update((one.batch.id, one) for one in after)

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
