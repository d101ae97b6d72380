"""What passes between the inner loop and whoever chooses its questions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from monitor.novelty.arrays import Ints
from monitor.novelty.pool_answers import PoolAnswers
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
    """One iteration: whom to ask, which class each is believed to have, and whether it ends."""

    ask: Ints
    suggestions: tuple[str | None, ...]
    above: int
    t_inner: float
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LoopResult:
    """All pseudo-labels, and the score that the iterations arrived at.

    ``confirmed`` has the new names that rest on enough answers; None where all of them count.
    """

    score: PoolScore
    pseudo: tuple[PseudoLabel, ...] = field(default=())
    confirmed: frozenset[str] | None = None


class Labeller(Protocol):
    """Chooses questions and spreads their answers; knows nothing of people."""

    def plan(self, budget: int) -> list[int]:
        """How many questions each iteration may ask; 0 for one that only pseudo-labels."""

    def step(self, number: int, answers: PoolAnswers, count: int) -> Step:
        """Iteration ``number``, with ``count`` questions to spend at most."""

    def conclude(self, answers: PoolAnswers) -> LoopResult:
        """What the answers come to in the end."""
