"""The preset ``paper``: a linear layer routes each sample to a new class, FRE ratios decide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from monitor.novelty.answers import Answers
from monitor.novelty.arrays import Floats, Ints
from monitor.novelty.bank import SubspaceBank
from monitor.novelty.detector import Calibration, Detector
from monitor.novelty.pool_score import KnownOnly, log_over
from monitor.novelty.rounds import Conclusion, PseudoLabel, Step
from monitor.novelty.settings import Settings
from monitor.novelty.subspace import Subspace


@dataclass(frozen=True, slots=True, eq=False)
class LinearLayer:
    """N_pl: output nodes for the new classes only."""

    weights: Floats
    bias: Floats

    @classmethod
    def fit(cls, features: Floats, classes: Ints, count: int, settings: Settings) -> LinearLayer:
        """A few epochs of Adam on small batches, from zero, in a fixed order per seed."""
        generator = torch.Generator().manual_seed(len(features))
        x, y = torch.from_numpy(features), torch.from_numpy(classes)
        layer = torch.nn.Linear(x.shape[1], count)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        adam = torch.optim.Adam(layer.parameters(), lr=settings.learning_rate)
        for _ in range(settings.epochs):
            order = torch.randperm(len(x), generator=generator)
            for start in range(0, len(x), settings.batch):
                rows = order[start : start + settings.batch]
                adam.zero_grad()
                loss = torch.nn.functional.cross_entropy(layer(x[rows]), y[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
        return cls(layer.weight.detach().numpy(), layer.bias.detach().numpy())

    def __call__(self, features: Floats) -> Ints:
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
    def fit(cls, detector: Detector, groups: list[Floats]) -> RoutedRatio:
        classes = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
        settings = detector.settings
        layer = LinearLayer.fit(np.concatenate(groups), classes, len(groups), settings)
        bank = SubspaceBank([Subspace.fit(g, variance=settings.variance) for g in groups])
        raw = cls(detector, layer, bank, 0.0)
        # Mean plus two deviations of the ratio itself, then its logarithm.
        held = np.exp(raw(detector.references.features))
        t_inner = Calibration.of(held.astype(np.float32), settings).t_inner
        return cls(detector, layer, bank, float(np.log(t_inner)))

    def __call__(self, features: Floats) -> np.ndarray:
        route = self.layer(features)
        new = np.take_along_axis(self.bank.fre(features), route[:, None], axis=1)[:, 0]
        return log_over(self.detector, self.detector.s0(features), new)


class LinearLabeller:
    """Asks about what is nearest to T_inner, pseudo-labels what is furthest above it."""

    def __init__(self, detector: Detector, pool: Floats, rng: np.random.Generator) -> None:
        self._detector, self._pool, self._rng = detector, pool, rng
        self._settings = detector.settings
        self._pseudo: dict[int, PseudoLabel] = {}
        self._score: RoutedRatio | None = None
        self._names: list[str] = []

    def step(self, number: int, answers: Answers, count: int) -> Step:
        self._fit(answers)
        score = self._score or KnownOnly(self._detector)
        values = score(self._pool)
        above = values > score.threshold
        free = answers.unasked(len(self._pool))
        ask = self._choose(values, score.threshold, above, free, count)
        if self._score is not None and self._settings.pseudo_labels:
            # What is asked is not also guessed.
            candidates = above & free
            candidates[ask] = False
            candidates[list(self._pseudo)] = False
            self._accept(self._score, values, candidates, number)
        total = int(above.sum())
        return Step(ask, total, float(score.threshold), done=total == 0)

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

    def _fit(self, answers: Answers) -> None:
        told = answers.new()
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
        self._score = RoutedRatio.fit(self._detector, [self._pool[r] for r in rows.values()])

    def suggestion(self, sample: int) -> str | None:
        if self._score is None:
            return None
        return self._names[int(self._score.layer(self._pool[sample : sample + 1])[0])]

    def conclude(self, answers: Answers) -> Conclusion:
        self._fit(answers)
        if self._score is None:
            return Conclusion(KnownOnly(self._detector))
        return Conclusion(self._score, tuple(self._pseudo.values()))
