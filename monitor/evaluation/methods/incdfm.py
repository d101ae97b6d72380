"""incDFM: one new subspace per task, grown from the most certain samples outwards.

Amanda Rios, Nilesh Ahuja, Ibrahima Ndiour, Utku Genc, Laurent Itti, Omesh Tickoo: "incDFM:
Incremental Deep Feature Modeling for Continual Novelty Detection", ECCV 2022.

Made for tasks with one new class; with several, all of them share the one new subspace, which
is what CONCLAD sets out to solve. It asks for no labels.

The threshold has two readings, and both are methods: mean + 2 std of the validation scores, as
the paper says of all its baselines, and the 85th percentile, which its authors' configuration
has and which is the stronger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from monitor.evaluation.methods.base import (
    GENERIC_NEW,
    Ask,
    FloatArray,
    Observation,
    ScoreArray,
)
from monitor.evaluation.methods.shared_by_baselines import (
    FRE_FLOOR,
    SMALLEST,
    VARIANCE,
    KnownSubspaces,
    mean_plus_stds,
)
from monitor.evaluation.protocol import IntArray
from monitor.novelty.subspace import Subspace

# The share of what lies above T_inner that is taken in per round, and the most rounds, both
# from the authors' configuration.
SHARE_PER_ROUND = 0.15
MOST_ROUNDS = 10
# In the last round the authors take this much of what is still above T_inner: all but the
# share of known samples that lie above an 85th percentile by its definition.
LAST_SHARE = 0.85


def percentile_85(scores: ScoreArray) -> float:
    """T_inner as incDFM's authors configure it."""
    return float(np.percentile(scores, 85))


class IncDFM:
    """S = FRE to the nearest known subspace over FRE to the one new subspace.

    >>> rng = np.random.default_rng(0)
    >>> known, new = rng.normal(0, 1, (60, 8)), rng.normal(9, 1, (30, 8))
    >>> inc = IncDFM("incdfm-p85", percentile_85)
    >>> inc.start(known, ["a"] * 60, seed=0)
    >>> seen = inc.observe(np.concatenate([known[:20], new]), lambda indices: [], budget=0)
    >>> sum(i >= 20 for i in seen.pseudo) > 20
    True
    """

    def __init__(
        self, name: str = "incdfm", threshold: Callable[[ScoreArray], float] = mean_plus_stds
    ) -> None:
        self.name = name
        self._place = threshold
        self._known: KnownSubspaces
        self._rng: np.random.Generator
        self._found: FloatArray
        self._new: Subspace | None = None
        self._floor = 0.0
        self._threshold = 0.0

    def start(self, features: FloatArray, labels: Sequence[str], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._known = KnownSubspaces.of_classes(features, labels, self._rng)

    def observe(self, pool: FloatArray, ask: Ask, budget: int) -> Observation:
        old_pool = self._known.fre(pool)
        old_validation = self._known.fre(self._known.validation)
        self._new = None
        self._floor = FRE_FLOOR * float(np.median(old_validation)) + SMALLEST
        self._threshold = self._place(old_validation)
        taken = np.empty(0, dtype=np.int64)
        scores: ScoreArray = old_pool
        rounds = 0
        for rounds in range(1, MOST_ROUNDS + 1):
            chosen = self._choose(scores, taken, LAST_SHARE if rounds == MOST_ROUNDS else None)
            if not len(chosen):
                break
            taken = np.concatenate([taken, chosen])
            self._new = Subspace.fit(pool[taken], variance=VARIANCE)
            scores = self._ratio(old_pool, pool)
            self._threshold = self._place(self._ratio(old_validation, self._known.validation))
        self._found = pool[taken]
        return Observation(pseudo={int(i): GENERIC_NEW for i in taken}, iterations=rounds)

    def score(self, features: FloatArray) -> ScoreArray:
        return self._ratio(self._known.fre(features), features)

    def threshold(self) -> float | None:
        return self._threshold

    def update(self) -> None:
        if len(self._found):
            self._known = self._known.with_group(self._found, self._rng)

    def _choose(self, scores: ScoreArray, taken: IntArray, share: float | None) -> IntArray:
        """The most certain of the samples above T_inner that were not taken before."""
        above = np.setdiff1d(np.flatnonzero(scores > self._threshold), taken)
        # At least one, where the authors round down and stop early when few are left.
        count = math.ceil((SHARE_PER_ROUND if share is None else share) * len(above))
        best = np.argsort(-scores[above], kind="stable")
        return above[best[:count]]

    def _ratio(self, old: ScoreArray, features: FloatArray) -> ScoreArray:
        if self._new is None:
            return old
        ratio: ScoreArray = old / np.maximum(self._new.fre(features), self._floor)
        return ratio


METHODS: dict[str, Callable[[], IncDFM]] = {
    "incdfm": IncDFM,
    "incdfm-p85": lambda: IncDFM("incdfm-p85", percentile_85),
}
