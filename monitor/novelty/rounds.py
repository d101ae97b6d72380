"""What passes between the inner loop and whoever chooses its questions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from monitor.novelty.answers import Answers
from monitor.novelty.arrays import Ints
from monitor.novelty.pool_score import PoolScore

# The graph labeller gives its pseudo-labels once, after the last answer.
AT_THE_END = -1


@dataclass(frozen=True, slots=True)
class PseudoLabel:
    """A sample that was given its class without asking, when, and how surely.

    ``round`` is the iteration that accepted it, or :data:`AT_THE_END`.
    """

    sample: int
    name: str
    confidence: float
    round: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One iteration: whom to ask, and whether anything is left to do."""

    ask: Ints
    above: int
    t_inner: float
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """All pseudo-labels, and the score that the iterations arrived at."""

    score: PoolScore
    pseudo: tuple[PseudoLabel, ...] = field(default=())


class Labeller(Protocol):
    """Chooses questions and spreads their answers; knows nothing of budgets or people."""

    def step(self, number: int, answers: Answers, count: int) -> Step:
        """Iteration ``number``, with ``count`` questions to spend at most."""

    def suggestion(self, sample: int) -> str | None:
        """The class that this sample is believed to have, if any."""

    def conclude(self, answers: Answers) -> Conclusion:
        """What the answers come to in the end."""
