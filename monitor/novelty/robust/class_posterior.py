"""Which class every sample of a pool has after all answers, and how new it is.

Two witnesses: the share of each class that spreading over the graph brings to a sample, and a
linear discriminant between all classes, old and new, which the same shares have taught. Shares know
the neighbourhood of a sample, the discriminant knows what tells classes apart. The final score adds
a ratio of FREs and the discriminant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.pool_graph import PoolSpace
from monitor.novelty.pseudo_labeller import PoolAnswers, log_ratio
from monitor.novelty.robust.pool_belief import PlacedPool, PoolBelief, believed, unanswered
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.subspace import Subspace, SubspaceBank

# Keeps directions of samples without length finite.
_TINY = 1e-12


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


@dataclass(frozen=True, slots=True, eq=False)
class ClassPosterior:
    """A row for each sample of the pool: the probability of every class; rows sum to one.

    The first ``known`` columns are the classes of the detector. Where answers told of a shift, as
    many follow that stand for the same classes, shifted; ``names`` are the new ones, at the end.
    ``near`` has, for every sample that was asked about, the column that its surroundings have.
    """

    probabilities: Floats
    known: int
    shifted: int
    names: tuple[str, ...]
    near: Mapping[int, int]

    @property
    def new(self) -> Floats:
        """The probability that a sample belongs to a class that the detector does not have."""
        share: Floats = self.probabilities[:, self.known + self.shifted :].sum(axis=1)
        return share


def pool_posterior(placed: PlacedPool, answers: PoolAnswers) -> ClassPosterior:
    """The posterior of a pool after all answers, from the beginning."""
    return posterior(placed, believed(placed, unanswered(placed), answers), answers)


def placed_pool(detector: Detector, pool: Floats) -> PlacedPool:
    """A pool beside the references of a detector; in the preset ``paper`` by usual settings."""
    settings = detector.settings
    if not isinstance(settings, RobustSettings):
        settings = RobustSettings()
    return PlacedPool.of(detector, pool, settings)


@dataclass(frozen=True, slots=True, eq=False)
class KnownAsNew:
    """Known samples that take part in a pool as if nobody had labelled them.

    ``rows`` are references of the detector. Each has a probability of being something that was
    ``named`` in the pool, and of a class of the detector that is ``doubted``.
    """

    rows: Ints
    named: Floats
    doubted: Floats

    def taken(self, some: Ints) -> KnownAsNew:
        """Some of them, by position."""
        return KnownAsNew(self.rows[some], self.named[some], self.doubted[some])


def known_as_new(placed: PlacedPool, answers: PoolAnswers) -> KnownAsNew:
    """How new known samples look in a pool, after all answers.

    References that people labelled take turns: one half joins the pool, the other speaks for the
    classes. What as many of them reach as may be mistaken is where new begins.
    """
    detector, size = placed.detector, len(placed.pool)
    said = np.concatenate([known.said & known.confirmed for known in detector.classes])
    nobody = np.empty(0, np.float32)
    rows, named, in_doubt = [np.empty(0, np.intp)], [nobody], [nobody]
    for half in (0, 1):
        held = said & (np.arange(len(said)) % 2 == half)
        if held.any():
            # Placed again: in a space that they had whitened they would look tamer than the pool.
            everyone = np.concatenate([placed.pool, detector.references.features[held]])
            joined = PlacedPool.of(_without(detector, held), everyone, placed.settings)
            found = pool_posterior(joined, answers)
            rows.append(np.flatnonzero(held))
            named.append(found.new[size:])
            in_doubt.append(doubted(detector, found)[size:])
    return KnownAsNew(np.concatenate(rows), np.concatenate(named), np.concatenate(in_doubt))


def reached_by(share: float, known: np.ndarray) -> float:
    """The probability that no more than this share of known samples reaches; 0 if there are none.

    >>> known = np.repeat([0.0, 0.7, 0.99], [95, 3, 2])
    >>> reached_by(0.03, known) > 0.7, 0 < reached_by(0.1, known) < 0.7, reached_by(0.1, known[:0])
    (True, True, 0.0)
    """
    if not len(known):
        return 0.0
    most = float(np.quantile(known, 1 - share, method="higher"))
    return float(np.nextafter(np.float32(most), np.float32(2)))


def doubted(detector: Detector, found: ClassPosterior) -> Floats:
    """The probability that a sample belongs to a class of the detector that is unconfirmed."""
    columns = [i for i, known in enumerate(detector.classes) if not known.confirmed]
    share: Floats = found.probabilities[:, columns].sum(axis=1)
    return share


def _without(detector: Detector, held: np.ndarray) -> Detector:
    """The detector as if these references had never been labelled; verdicts stay as they are."""
    classes, first = [], 0
    for known in detector.classes:
        mine = held[first : first + len(known.references)]
        first += len(mine)
        if mine.any() and not mine.all():
            mode, gone = known.modes[0], known.references[mine]
            modes = known.modes
            if len(modes) == 1 and mode.count > len(gone):
                total = mode.count * mode.mean.astype(np.float64) - gone.sum(axis=0)
                count = mode.count - len(gone)
                modes = (replace(mode, mean=(total / count).astype(np.float32), count=count),)
            known = replace(
                known,
                modes=modes,
                references=known.references[~mine],
                own=known.own[~mine],
                said=known.said[~mine],
            )
        classes.append(known)
    return replace(detector, classes=tuple(classes), saved=detector.opinions)


def posterior(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> ClassPosterior:
    """From what the answers so far say.

    Where they tell of a shift, no reference speaks for shifted samples: there the discriminant is
    taught several times, each time by what it said together with the shares.
    """
    assert now.shares is not None
    count = len(placed.detector.classes)
    found = now.shares
    for _ in range(placed.settings.shift_lessons if now.moved else 1):
        found = _posterior_of(placed, now, answers, found)
    near = nearest_labelled(placed, now, answers)
    return ClassPosterior(found.astype(np.float32), count, now.known - count, now.names, near)


def _posterior_of(
    placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, shares: np.ndarray
) -> np.ndarray:
    """The shares that spreading brought, and a discriminant that was taught by ``shares``."""
    assert now.shares is not None
    settings, count = placed.settings, len(placed.detector.classes)
    lessons = pool_lessons(shares, now, answers, count, pseudo_labels=settings.pseudo_labels)
    taught = lessons.sum(axis=1) > 0
    held = np.eye(lessons.shape[1])[placed.detector.references.classes]
    points = np.concatenate(
        [placed.points[len(placed.pool) :], placed.points[: len(taught)][taught]]
    )
    opinion = SecondOpinion.fit(
        placed.space,
        points.astype(np.float64),
        np.concatenate([held, lessons[taught]]),
        now.classes.classes,
        settings.shrinkage,
    )
    values = placed.pool @ opinion.weights + opinion.bias
    logs = np.log(now.shares + settings.share_floor) + settings.opinion_weight * values
    found: np.ndarray = np.exp(logs - logs.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    told = list(answers.told)
    found[told] = now.shares[told]
    return found


def nearest_labelled(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> dict[int, int]:
    """For every sample that was asked about, the column of the nearest other labelled one.

    What was said about the sample itself does not count, so that an answer can be compared with
    those around it.
    """
    asked = answers.asked
    told = np.fromiter(answers.told, np.intp, len(answers.told))
    if not len(asked):
        return {}
    assert now.shares is not None
    nodes = np.concatenate([told, np.arange(len(placed.pool), len(placed.points))])
    columns = np.concatenate(
        [now.shares[told].argmax(axis=1), placed.detector.references.classes]
    ).astype(np.intp)
    unit = placed.points / np.maximum(np.linalg.norm(placed.points, axis=1, keepdims=True), _TINY)
    likeness = unit[asked] @ unit[nodes].T
    likeness[asked[:, None] == nodes[None]] = -np.inf
    return dict(zip(asked.tolist(), columns[likeness.argmax(axis=1)].tolist(), strict=True))


def pool_lessons(
    shares: np.ndarray,
    now: PoolBelief,
    answers: PoolAnswers,
    known: int,
    *,
    pseudo_labels: bool,
) -> np.ndarray:
    """The shares that a discriminant may learn from.

    Of the known classes, only references and people's answers teach: a new sample mistaken for a
    known one would teach the opposite. Shifted classes have no references and must be guessed.
    """
    lessons = np.zeros(shares.shape)
    if pseudo_labels:
        lessons[now.free, known:] = shares[now.free, known:]
    told = list(answers.told)
    lessons[told] = shares[told]
    return lessons
