"""The score at the end of an inner loop: a ratio of FREs and a linear discriminant, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.pool_graph import PoolSpace
from monitor.novelty.pool_score import log_ratio
from monitor.novelty.robust.settings import RobustSettings
from monitor.novelty.subspace import Subspace
from monitor.novelty.subspace_bank import SubspaceBank


@dataclass(frozen=True, slots=True, eq=False)
class SecondOpinion:
    """A linear discriminant over known and new classes: log-odds that a sample is new.

    FRE knows each class by itself; this knows what tells them apart. Classes share one
    covariance, so that a class with three samples has as stable a boundary as a large one.
    """

    weights: Floats
    bias: Floats
    known: int

    @classmethod
    def fit(
        cls,
        space: PoolSpace,
        points: np.ndarray,
        shares: np.ndarray,
        known: Sequence[KnownClass],
        shrinkage: float,
    ) -> SecondOpinion:
        """From points in ``space`` and the share that each class has in each, known ones first.

        A share below one lets a doubtful sample teach a little. The known classes bring the means
        that they were fitted with, which rest on many more samples than are held out.
        """
        sums, sizes = shares.T @ points, shares.sum(axis=0)
        counts = np.zeros(len(sizes))
        centres = np.zeros_like(sums)
        for index, one in enumerate(known):
            counts[index] = sum(mode.count for mode in one.modes)
            total = sum(mode.count * mode.mean.astype(np.float64) for mode in one.modes)
            centres[index] = space.place((total / counts[index])[None])[0]
        means = (sums + counts[:, None] * centres) / (sizes + counts)[:, None]
        weighed = points * shares.sum(axis=1)[:, None]
        across = means.T @ sums
        scatter = weighed.T @ points - across - across.T + (means.T * sizes) @ means
        covariance = scatter / sizes.sum()
        width = len(covariance)
        even = np.trace(covariance) / width
        covariance = (1 - shrinkage) * covariance + shrinkage * (even or 1.0) * np.eye(width)
        directions = np.linalg.solve(covariance, means.T)
        bias = -0.5 * np.einsum("ij,ji->i", means, directions)
        weights = space.matrix @ directions
        return cls(
            weights.astype(np.float32),
            (bias - space.offset @ weights).astype(np.float32),
            len(known),
        )

    def __call__(self, features: Floats) -> np.ndarray:
        """The log-odds of new against known, for every row."""
        values = features @ self.weights + self.bias
        odds: np.ndarray = values[:, self.known :].max(axis=1) - values[:, : self.known].max(axis=1)
        return odds


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Mean and spread on known samples, to bring two scores to one scale."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: np.ndarray) -> Standardisation:
        """From the values of known samples."""
        return cls(float(values.mean()), float(values.std()) or 1.0)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """In deviations from the mean."""
        standard: np.ndarray = (values - self.mean) / self.std
        return standard


@dataclass(frozen=True, slots=True, eq=False)
class PoolLessons:
    """What the answers and their spreading say about each sample of a pool.

    ``groups`` are the samples of each new class. ``shares`` may be learnt from, a column for each
    class. ``known`` is how surely a sample that is not learnt from belongs to what is known.
    ``s0`` is S⁰ of the pool and then of the references, which takes long to compute.
    """

    pool: Floats
    s0: np.ndarray
    groups: Sequence[Floats]
    shares: np.ndarray
    known: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class TwoOpinions:
    """The log ratio of FREs and the discriminant's log-odds, each standardised, added up."""

    detector: Detector
    bank: SubspaceBank
    opinion: SecondOpinion | None
    scales: tuple[Standardisation, Standardisation]
    threshold: float

    @classmethod
    def fit(
        cls, detector: Detector, space: PoolSpace, lessons: PoolLessons, settings: RobustSettings
    ) -> TwoOpinions:
        """Fit both opinions and place T_inner.

        Scales and T_inner come from references, which the discriminant has seen, so from two
        half-fits, each judged on the other half; and from the known part of the pool, since
        references, by which the space itself was whitened, look tamer than what is still to come.
        """
        pool, reserve = lessons.pool, detector.references.features
        bank = SubspaceBank([Subspace.fit(g, variance=settings.variance) for g in lessons.groups])
        new = bank.fre(np.concatenate([reserve, pool])).min(axis=1)
        ratio = log_ratio(detector, np.roll(lessons.s0, len(reserve)), new)
        whole, odds = None, np.zeros(len(ratio))
        if settings.second_opinion:
            whole, odds = _cross_fitted(detector, space, lessons, settings)
        judged = np.concatenate([np.ones(len(reserve), dtype=bool), lessons.known >= settings.sure])
        scales = (Standardisation.of(ratio[judged]), Standardisation.of(odds[judged]))
        total = scales[0](ratio[judged]) + scales[1](odds[judged])
        # The quantile at which a normal distribution has so many deviations. Computed as such they
        # are stretched by a few samples of a class learnt with errors, and new ones slip under.
        t_inner = float(np.quantile(total, norm.cdf(settings.deviations)))
        return cls(detector, bank, whole, scales, t_inner)

    def __call__(self, features: Floats) -> np.ndarray:
        """Higher is newer."""
        known, new = self.detector.s0(features), self.bank.fre(features).min(axis=1)
        total = self.scales[0](log_ratio(self.detector, known, new))
        if self.opinion is not None:
            total = total + self.scales[1](self.opinion(features))
        return total


def _cross_fitted(
    detector: Detector, space: PoolSpace, lessons: PoolLessons, settings: RobustSettings
) -> tuple[SecondOpinion, np.ndarray]:
    """The discriminant, and its odds for references (by the half-fit without them) and pool."""
    reserve, held = detector.references.features, detector.references.classes
    taught = lessons.shares.sum(axis=1) > 0
    placed = space.place(np.concatenate([reserve, lessons.pool[taught]])).astype(np.float64)
    shares = np.concatenate([np.eye(lessons.shares.shape[1])[held], lessons.shares[taught]])

    def opinion(rows: np.ndarray) -> SecondOpinion:
        chosen = np.concatenate([rows, np.ones(len(placed) - len(rows), dtype=bool)])
        return SecondOpinion.fit(
            space, placed[chosen], shares[chosen], detector.classes, settings.shrinkage
        )

    everyone = np.ones(len(reserve), dtype=bool)
    even = np.arange(len(reserve)) % 2 == 0
    whole = opinion(everyone)
    odds = np.concatenate([np.empty(len(reserve)), whole(lessons.pool)])
    for half in (even, ~even):
        other = opinion(~half if (~half).any() else everyone)
        odds[: len(reserve)][half] = other(reserve[half])
    return whole, odds
