"""How new a sample is once new classes have names: the score at the end of an inner loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.stats import norm

from monitor.novelty.arrays import Floats
from monitor.novelty.bank import SubspaceBank
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.graph import Space
from monitor.novelty.subspace import Subspace

# A floor under FRE, as a share of T_inner: a sample that a tiny class reproduces exactly must
# not score infinity.
_FLOOR = 1e-6
# From which share of known classes on a sample of the pool stands for what is known.
_SURE = 0.9
# Shrinkage of the covariance that the second opinion shares between classes.
_SHRINKAGE = 0.1


class PoolScore(Protocol):
    """Higher is newer; above ``threshold`` a sample is called new."""

    @property
    def threshold(self) -> float: ...

    def __call__(self, features: Floats) -> np.ndarray: ...


@dataclass(frozen=True, slots=True, eq=False)
class KnownOnly:
    """S⁰: all there is while nothing new has been named."""

    detector: Detector

    @property
    def threshold(self) -> float:
        return self.detector.fre_calibration.t_inner

    def __call__(self, features: Floats) -> np.ndarray:
        return self.detector.s0(features)


def log_ratio(detector: Detector, bank: SubspaceBank, features: Floats) -> np.ndarray:
    """log of S⁰ over the FRE of the nearest new class."""
    return log_over(detector, detector.s0(features), bank.fre(features).min(axis=1))


def log_over(detector: Detector, known: np.ndarray, new: np.ndarray) -> np.ndarray:
    """log of FRE to what is known over squared FRE to what is new, both floored."""
    floor = _FLOOR * max(detector.fre_calibration.t_inner, 1e-30)
    new = new if detector.settings.squared else np.sqrt(new)
    ratio: np.ndarray = np.log(np.maximum(known, floor)) - np.log(np.maximum(new, floor))
    return ratio


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
        cls, space: Space, points: Floats, shares: np.ndarray, known: Sequence[KnownClass]
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
        covariance = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * (even or 1.0) * np.eye(width)
        directions = np.linalg.solve(covariance, means.T)
        bias = -0.5 * np.einsum("ij,ji->i", means, directions)
        weights = space.matrix @ directions
        return cls(
            weights.astype(np.float32),
            (bias - space.offset @ weights).astype(np.float32),
            len(known),
        )

    def __call__(self, features: Floats) -> np.ndarray:
        values = features @ self.weights + self.bias
        odds: np.ndarray = values[:, self.known :].max(axis=1) - values[:, : self.known].max(axis=1)
        return odds


@dataclass(frozen=True, slots=True)
class Standard:
    """Mean and spread on known samples, to bring two scores to one scale."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: np.ndarray) -> Standard:
        return cls(float(values.mean()), float(values.std()) or 1.0)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        standard: np.ndarray = (values - self.mean) / self.std
        return standard


@dataclass(frozen=True, slots=True, eq=False)
class TwoOpinions:
    """The log ratio of FREs and the discriminant's log-odds, each standardised, added up."""

    detector: Detector
    bank: SubspaceBank
    opinion: SecondOpinion
    scales: tuple[Standard, Standard]
    threshold: float

    @classmethod
    def fit(
        cls,
        detector: Detector,
        space: Space,
        groups: Sequence[Floats],
        scored: tuple[Floats, np.ndarray],
        lessons: np.ndarray,
        known: np.ndarray,
    ) -> TwoOpinions:
        """From the samples of each new class, and the share of each class in the pool's samples.

        ``scored`` is the pool, and S⁰ of it and of what is held out, which takes long to find out.
        ``lessons`` are shares that may be learnt from; ``known`` is how surely a sample, not
        learnt from, belongs to what is known. Scales and T_inner come from held-out samples,
        whom the discriminant has seen, so from two half-fits, each judged on the other half; and
        from the known part of the pool, since a few held-out samples, by which the space itself
        was whitened, look tamer than what is still to come.
        """
        (pool, s0), settings = scored, detector.settings
        bank = SubspaceBank([Subspace.fit(g, variance=settings.variance) for g in groups])
        reserve, held = detector.references.features, detector.references.classes
        taught = lessons.sum(axis=1) > 0
        placed = space.place(np.concatenate([reserve, pool[taught]])).astype(np.float64)
        shares = np.concatenate([np.eye(lessons.shape[1])[held], lessons[taught]])

        def opinion(rows: np.ndarray) -> SecondOpinion:
            chosen = np.concatenate([rows, np.ones(len(placed) - len(rows), dtype=bool)])
            return SecondOpinion.fit(space, placed[chosen], shares[chosen], detector.classes)

        everyone = np.ones(len(reserve), dtype=bool)
        even = np.arange(len(reserve)) % 2 == 0
        whole = opinion(everyone)
        odds = np.concatenate([np.empty(len(reserve)), whole(pool)])
        for half in (even, ~even):
            other = opinion(~half if (~half).any() else everyone)
            odds[: len(reserve)][half] = other(reserve[half])
        new = bank.fre(np.concatenate([reserve, pool])).min(axis=1)
        ratio = log_over(detector, np.roll(s0, len(reserve)), new)
        judged = np.concatenate([everyone, known >= _SURE])
        scales = (Standard.of(ratio[judged]), Standard.of(odds[judged]))
        total = scales[0](ratio[judged]) + scales[1](odds[judged])
        # The quantile at which a normal distribution has so many deviations. Computed as such they
        # are stretched by a few samples of a class learnt with errors, and new ones slip under.
        t_inner = float(np.quantile(total, norm.cdf(settings.deviations)))
        return cls(detector, bank, whole, scales, t_inner)

    def __call__(self, features: Floats) -> np.ndarray:
        ratio = self.scales[0](log_ratio(self.detector, self.bank, features))
        total: np.ndarray = ratio + self.scales[1](self.opinion(features))
        return total
