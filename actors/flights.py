"""Batches under way, in the order of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from actors.suspicion import Record
from monitor.feed.plan import BatchSpec
from monitor.pipeline.judging import Judged
from monitor.store.rows import Batch


class Stage(Enum):
    """How far a batch has come."""

    WAITING = "waiting"
    EMBEDDING = "embedding"
    EMBEDDED = "embedded"
    SCORING = "scoring"
    SCORED = "scored"


@dataclass(slots=True)
class Flight:
    """One batch between the ledger and its commit."""

    batch: Batch
    spec: BatchSpec
    stage: Stage = Stage.WAITING
    handle: Any = None
    """The features, wherever they are."""
    judged: Judged | None = None
    record: Record = field(default_factory=Record)
    """What it did to those who had it in hand."""
    began: float = 0.0
    """When it was last given to a worker."""
    is_noted: bool = False
    """Whether the ledger knows that this run has it in hand."""
    not_before: float = 0.0
    """After a storage that did not answer: when to try again."""

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what kills its workers, or whole runs; it is then tried alone."""
        return self.record.losses > 0 or self.batch.tries > 0

    def back_to(self, stage: Stage) -> None:
        """Do again what comes after this stage."""
        self.stage = stage
        self.judged = None
        if stage is Stage.WAITING:
            self.handle = None


class Flights:
    """The window over the ledger. Batches leave it at the front, in order."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._flights.values())

    def add(self, flight: Flight) -> None:
        self._flights[flight.batch.id] = flight

    def get(self, batch_id: int) -> Flight | None:
        return self._flights.get(batch_id)

    def remove(self, batch_id: int) -> None:
        self._flights.pop(batch_id, None)

    def remove_file(self, file_id: int) -> None:
        """Forget every batch of a file that was set aside."""
        for flight in [f for f in self if f.batch.file_id == file_id]:
            self.remove(flight.batch.id)

    def at(self, stage: Stage) -> list[Flight]:
        return [flight for flight in self if flight.stage is stage]

    def front(self, stage: Stage) -> Iterator[Flight]:
        """Those at the front that have come so far, up to the first that has not."""
        for flight in self:
            if flight.stage is not stage:
                return
            yield flight
