"""Is it the batch that fails, or everything? Told by whether other batches fare better.

A batch that is at fault fails while others pass. When different batches fail alike and none has
passed in between, the fault is in what they share (a driver, a library, a disk of weights, our own
code): then setting them aside one by one would set the feed aside.
"""

from __future__ import annotations

import re

from monitor.errors import ConcladError

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
