"""What the evaluation expects of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.protocol import IntArray

FloatArray = NDArray[np.float32]
ScoreArray = NDArray[np.floating[Any]]

# Indices into the pool -> true class names. Whoever hands it out counts and enforces the budget.
Ask = Callable[[IntArray], list[str]]

# How methods that cannot tell new classes apart name whatever they found.
GENERIC_NEW = "new"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a method made of a pool.

    ``found`` names the new classes it learnt; ``pseudo`` maps pool indices to the class name it
    gave them without asking (:data:`GENERIC_NEW` when it has no names). ``evidence`` is
    whatever else should reach the results, as JSON-able values.

    >>> Observation(found=("cat",), pseudo={3: "cat"}, iterations=2).found
    ('cat',)
    """

    found: tuple[str, ...] = ()
    pseudo: Mapping[int, str] = field(default_factory=dict)
    iterations: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """A continual novelty detector under evaluation.

    Called in this order: ``start`` once, then for each task ``observe``, ``score`` (as often
    as needed, any batch size), ``threshold``, ``update``. An answer that names a class the
    method already knows means "known".
    """

    name: str

    def start(self, features: FloatArray, labels: Sequence[str], seed: int) -> None:
        """Learn the initial known classes."""

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        """Run the inner loop on a pool, without yet changing what is known."""

    def score(self, features: FloatArray) -> ScoreArray:
        """Novelty, higher is newer, with the known classes as before the update."""

    def threshold(self) -> float | None:
        """T_inner for :meth:`score`: above it a sample is called new."""

    def update(self) -> None:
        """What was found becomes known."""
