"""The preset ``paper``: a linear layer routes each sample to a new class, FRE ratios decide.

Sections 2.2.2 and appendix 4.1 of CONCLAD (Rios, Ndiour, Datta, Tickoo and Ahuja, 2024): N_pl is
:class:`LinearLayer`, Sⁱ (equation 2) is :class:`RoutedRatio`, an iteration is
:meth:`LinearPseudoLabeller.step`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Calibration, Detector
from monitor.novelty.paper.adam import Adam
from monitor.novelty.paper.paper_settings import PaperSettings
from monitor.novelty.pseudo_labeller import (
    KnownOnly,
    LoopResult,
    PoolAnswers,
    PseudoLabel,
    Step,
    log_ratio,
)
from monitor.novelty.subspace import Subspace, SubspaceBank


@dataclass(frozen=True, slots=True, eq=False)
class LinearLayer:
    """N_pl: output nodes for the new classes only."""

    weights: Floats
    bias: Floats

    @classmethod
    def fit(
        cls, features: Floats, classes: Ints, count: int, settings: PaperSettings
    ) -> LinearLayer:
        """A few epochs of Adam on small batches, from zero, in a fixed order per seed."""
        generator = torch.Generator().manual_seed(len(features))
        x, y = torch.from_numpy(features), torch.from_numpy(classes)
        weights = torch.zeros(count, x.shape[1], requires_grad=True)
        bias = torch.zeros(count, requires_grad=True)
        adam = Adam([weights, bias], settings.learning_rate)
        for _ in range(settings.epochs):
            order = torch.randperm(len(x), generator=generator)
            for start in range(0, len(x), settings.batch):
                rows = order[start : start + settings.batch]
                scores = torch.nn.functional.linear(x[rows], weights, bias)
                loss = torch.nn.functional.cross_entropy(scores, y[rows])
                adam.step(torch.autograd.grad(loss, [weights, bias]))
        return cls(weights.detach().numpy(), bias.detach().numpy())

    def __call__(self, features: Floats) -> Ints:
        """The new class m that each row is routed to."""
        route: Ints = (features @ self.weights.T + self.bias).argmax(axis=1)
        return route


@dataclass(frozen=True, slots=True, eq=False)
class RoutedRatio:
    """Sⁱ = S⁰ / FRE_m with m = N_pl(u), as its logarithm: the order is the same."""

    detector: Detector
    layer: LinearLayer
    bank: SubspaceBank
    threshold: float

    @classmethod
    def fit(cls, detector: Detector, groups: list[Floats], settings: PaperSettings) -> RoutedRatio:
        """From the samples of each new class; T_inner from what is held out, by the same ratio."""
        classes = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
        layer = LinearLayer.fit(np.concatenate(groups), classes, len(groups), settings)
        bank = SubspaceBank([Subspace.fit(g, variance=settings.variance) for g in groups])
        raw = cls(detector, layer, bank, 0.0)
        # Mean plus two deviations of the ratio itself, then its logarithm.
        held = np.exp(raw(detector.references.features))
        t_inner = Calibration.of(held.astype(np.float32), settings).t_inner
        return cls(detector, layer, bank, float(np.log(t_inner)))

    def __call__(self, features: Floats) -> np.ndarray:
        """log Sⁱ of every row."""
        route = self.layer(features)
        new = np.take_along_axis(self.bank.fre(features), route[:, None], axis=1)[:, 0]
        return log_ratio(self.detector, self.detector.s0(features), new)


class LinearPseudoLabeller:
    """Asks about what is nearest to T_inner, pseudo-labels what is furthest above it."""

    def __init__(
        self,
        detector: Detector,
        pool: Floats,
        settings: PaperSettings,
        rng: np.random.Generator,
    ) -> None:
        self._detector, self._pool, self._rng = detector, pool, rng
        self._settings = settings
        self._pseudo: dict[int, PseudoLabel] = {}
        self._score: RoutedRatio | None = None
        self._names: list[str] = []

    def plan(self, budget: int) -> list[int]:
        """See :func:`iteration_plan`."""
        return iteration_plan(budget, self._settings)

    def step(self, number: int, answers: PoolAnswers, count: int) -> Step:
        """Fit again, ask, and pseudo-label the surest of what lies above T_inner."""
        self._fit(answers)
        score = self._score or KnownOnly(self._detector)
        values = score(self._pool)
        above = values > score.threshold
        free = np.isin(np.arange(len(self._pool)), answers.asked, invert=True)
        ask = self._choose(values, score.threshold, above, free, count)
        if self._score is not None and self._settings.pseudo_labels:
            # What is asked is not also guessed.
            candidates = above & free
            candidates[ask] = False
            candidates[list(self._pseudo)] = False
            self._accept(self._score, values, candidates, number)
        total = int(above.sum())
        names = tuple(self._suggestion(int(i)) for i in ask)
        return Step(ask, names, total, float(score.threshold), done=total == 0)

    def _choose(
        self, values: np.ndarray, t_inner: float, above: np.ndarray, free: np.ndarray, count: int
    ) -> Ints:
        if self._settings.query == "random":
            return self._rng.permutation(np.flatnonzero(free))[:count]
        if self._settings.query == "top":
            order = np.argsort(-values, kind="stable")
        elif self._score is None:
            # Nothing new has a name yet: ambiguity means nothing, so anything above T_inner.
            return self._rng.permutation(np.flatnonzero(above & free))[:count]
        else:
            # The ratio's own distance to T_inner; its logarithm would favour small ratios.
            order = np.argsort(np.abs(np.exp(values) - np.exp(t_inner)), kind="stable")
        chosen: Ints = order[free[order]][:count]
        return chosen

    def _accept(
        self, score: RoutedRatio, values: np.ndarray, candidates: np.ndarray, number: int
    ) -> None:
        """Pseudo-label the surest share alpha of what is above T_inner."""
        rows = np.flatnonzero(candidates)
        rows = rows[np.argsort(-values[rows], kind="stable")]
        rows = rows[: int(np.ceil(self._settings.alpha * len(rows)))]
        for row, route in zip(rows, score.layer(self._pool[rows]), strict=True):
            label = PseudoLabel(int(row), self._names[route], float(values[row]), number)
            self._pseudo[int(row)] = label

    def _fit(self, answers: PoolAnswers) -> None:
        told = answers.new
        if not told:
            return
        # Whatever a person was shown is theirs to name, also when they could not.
        for row in answers.asked:
            self._pseudo.pop(int(row), None)
        self._names = list(told)
        rows = {
            n: [*r, *(p.sample for p in self._pseudo.values() if p.name == n)]
            for n, r in told.items()
        }
        groups = [self._pool[r] for r in rows.values()]
        self._score = RoutedRatio.fit(self._detector, groups, self._settings)

    def _suggestion(self, sample: int) -> str | None:
        if self._score is None:
            return None
        return self._names[int(self._score.layer(self._pool[sample : sample + 1])[0])]

    def conclude(self, answers: PoolAnswers) -> LoopResult:
        """All pseudo-labels that were accepted, and Sⁱ as it is fitted on everything."""
        self._fit(answers)
        if self._score is None:
            return LoopResult(KnownOnly(self._detector))
        return LoopResult(self._score, tuple(self._pseudo.values()))


def iteration_plan(budget: int, settings: PaperSettings) -> list[int]:
    """Questions of each iteration: a share at i = 0, the rest evenly, then none.

    >>> iteration_plan(40, PaperSettings(rounds=4, iterations=6))
    [20, 5, 5, 5, 5, 0, 0]
    """
    first = max(1, int(np.ceil(settings.first_share * budget)))
    rest = np.array_split(np.arange(budget - first), settings.rounds)
    asked = [first, *(len(part) for part in rest if len(part))]
    return asked + [0] * (1 + settings.iterations - len(asked))
