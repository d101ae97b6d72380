"""Which class every sample of a pool has, in the light of all answers about the pool.

Two witnesses: the share of each class that spreading over the graph brings to a sample, and a
linear discriminant between all classes, old and new, which the same shares have taught. Shares know
the neighbourhood of a sample, the discriminant knows what tells classes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.pool_answers import PoolAnswers
from monitor.novelty.robust.final_score import SecondOpinion
from monitor.novelty.robust.pool_belief import PoolBelief, believed, unanswered
from monitor.novelty.robust.pool_views import PlacedPool
from monitor.novelty.robust.settings import RobustSettings

# Keeps directions of samples without length finite.
_TINY = 1e-12


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


def pool_posterior(detector: Detector, pool: Floats, answers: PoolAnswers) -> ClassPosterior:
    """For a detector of either preset; that of the paper is asked with the usual settings."""
    settings = detector.settings
    if not isinstance(settings, RobustSettings):
        settings = RobustSettings()
    placed = PlacedPool.of(detector, pool, settings)
    return posterior(placed, believed(placed, unanswered(placed), answers), answers)


def posterior(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers) -> ClassPosterior:
    """From what the answers so far say."""
    assert now.shares is not None
    settings, count = placed.settings, len(placed.detector.classes)
    lessons = pool_lessons(now, answers, count, pseudo_labels=settings.pseudo_labels)
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
    found = np.exp(logs - logs.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    told = list(answers.told)
    found[told] = now.shares[told]
    near = nearest_labelled(placed, now, answers)
    return ClassPosterior(found.astype(np.float32), count, now.known - count, now.names, near)


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
    now: PoolBelief, answers: PoolAnswers, known: int, *, pseudo_labels: bool
) -> np.ndarray:
    """The shares that a discriminant may learn from.

    Of the known classes, only references and people's answers teach: a new sample mistaken for a
    known one would teach the opposite. Shifted classes have no references and must be guessed.
    """
    assert now.shares is not None
    lessons = np.zeros(now.shares.shape)
    if pseudo_labels:
        guessed = answers.unasked(len(now.shares))
        lessons[guessed, known:] = now.shares[guessed, known:]
    told = list(answers.told)
    lessons[told] = now.shares[told]
    return lessons
