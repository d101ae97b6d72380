"""DFM carried from task to task: the distance to what is known, and nothing else.

Ibrahima J. Ndiour, Nilesh A. Ahuja, Omesh Tickoo: "Subspace Modeling for Fast Out-Of-Distribution
and Anomaly Detection", ICIP 2022; carried over tasks as in equation 4 of CONCLAD (Rios et al.,
2024, appendix 4.2.3).

One subspace per initial class (their labels are given, and this is stronger than one for all
of them), then one per task, fitted on everything the method called new in that task: the
paper's adaptation of a detector that was made for a single split. It asks for no labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.evaluation.methods.base import (
    GENERIC_NEW,
    Ask,
    FloatArray,
    Observation,
    ScoreArray,
)
from monitor.evaluation.methods.shared_by_baselines import KnownSubspaces, mean_plus_stds


class DFM:
    """S = min FRE over the known subspaces; above mean + 2 std of the validation set is new.

    >>> rng = np.random.default_rng(0)
    >>> known, new = rng.normal(0, 1, (60, 8)), rng.normal(9, 1, (30, 8))
    >>> dfm = DFM()
    >>> dfm.start(known, ["a"] * 60, seed=0)
    >>> seen = dfm.observe(np.concatenate([known[:20], new]), lambda indices: [], budget=0)
    >>> bool(dfm.score(new).min() > dfm.score(known).max())
    True
    """

    def __init__(self, name: str = "dfm") -> None:
        self.name = name
        self._known: KnownSubspaces
        self._rng: np.random.Generator
        self._new: FloatArray
        self._threshold = 0.0

    def start(self, features: FloatArray, labels: Sequence[str], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._known = KnownSubspaces.of_classes(features, labels, self._rng)

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        self._threshold = mean_plus_stds(self._known.fre(self._known.validation))
        above = np.flatnonzero(self._known.fre(pool) > self._threshold)
        self._new = pool[above]
        return Observation(pseudo={int(i): GENERIC_NEW for i in above}, iterations=1)

    def score(self, features: FloatArray) -> ScoreArray:
        return self._known.fre(features)

    def threshold(self) -> float | None:
        return self._threshold

    def update(self) -> None:
        if len(self._new):
            self._known = self._known.with_group(self._new, self._rng)


METHODS = {"dfm": DFM}
