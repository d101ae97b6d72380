"""The one who answers: knows every label of a pool, and counts the questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.evaluation.errors import BudgetExceededError, QuestionError
from monitor.evaluation.protocol import IntArray


class Oracle:
    """Answers with true class names, never more often than the budget allows.

    Asking twice for one sample is an error rather than free: in a real feed it would waste a
    person's time, so a method that does it has a bug.

    >>> oracle = Oracle(["cat", "dog", "cat"], budget=2)
    >>> oracle.ask(np.array([1, 2])), oracle.used
    (['dog', 'cat'], 2)
    """

    def __init__(self, names: Sequence[str], budget: int) -> None:
        self._names = tuple(names)
        self._budget = budget
        self._asked: frozenset[int] = frozenset()

    @property
    def used(self) -> int:
        return len(self._asked)

    @property
    def asked(self) -> frozenset[int]:
        return self._asked

    def ask(self, indices: IntArray) -> list[str]:
        """The true class names of these samples, in the order they were asked."""
        wanted = [int(i) for i in np.asarray(indices).ravel()]
        outside = [i for i in wanted if not 0 <= i < len(self._names)]
        if outside:
            raise QuestionError(
                f"samples {outside[:5]} were asked for, but the pool has {len(self._names)}; a "
                f"method asks by index into the pool"
            )
        if len(set(wanted)) < len(wanted) or self._asked.intersection(wanted):
            raise QuestionError(
                "a sample was asked for twice; a method must remember the answers it got"
            )
        if self.used + len(wanted) > self._budget:
            raise BudgetExceededError(
                f"{len(wanted)} more labels were asked for after {self.used}, but the budget is "
                f"{self._budget}; a method must stop when its budget is spent"
            )
        self._asked = self._asked.union(wanted)
        return [self._names[i] for i in wanted]
