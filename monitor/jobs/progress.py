"""How a job says how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobProgress:
    """One moment of a job.

    >>> JobProgress("embed", 30, 120, "images").share
    0.25
    """

    stage: str
    done: int
    total: int | None
    unit: str

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None while the end is not known."""
        return self.done / self.total if self.total else None


Report = Callable[[JobProgress], None]


def silent(progress: JobProgress) -> None:
    """Nobody listens."""
