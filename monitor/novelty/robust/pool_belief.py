"""What the answers so far say about a pool: a function of the pool and the answers alone.

Answers spread over the graph; where answers of "known" agree on a shift, the known classes get
shifted ones beside them; else the views of the pool weigh new against known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from monitor.novelty.detector import Detector
from monitor.novelty.pool_answers import PoolAnswers
from monitor.novelty.robust.pool_views import PlacedPool, PoolViews, pool_views
from monitor.novelty.robust.shift_from_answers import shifted_answers, with_shifted_classes


@dataclass(frozen=True, slots=True, eq=False)
class PoolBelief:
    """One frozen state of an inner loop.

    ``classes`` are the known ones, twice as many where ``moved`` answers tell of a shift: then the
    second half are the same classes, shifted. ``shares`` has a row for each sample of the pool and
    a column for each of these classes and each new name; there is none before the first answer.
    """

    classes: Detector
    moved: int
    names: tuple[str, ...]
    views: PoolViews
    shares: np.ndarray | None

    @property
    def known(self) -> int:
        """How many columns of the shares are known classes."""
        return len(self.classes.classes)

    def name_of(self, sample: int, detector: Detector) -> str | None:
        """The class that this sample is believed to have, if anything has been answered."""
        if self.shares is None:
            return None
        best = int(self.shares[sample].argmax())
        if best >= self.known:
            return self.names[best - self.known]
        return detector.classes[best % len(detector.classes)].name


def unanswered(placed: PlacedPool) -> PoolBelief:
    """Before the first answer."""
    views = pool_views(placed, placed.detector, ())
    return PoolBelief(placed.detector, 0, (), views, None)


def believed(placed: PlacedPool, before: PoolBelief, answers: PoolAnswers) -> PoolBelief:
    """After these answers; ``before`` is :func:`unanswered`, whose views hold without a shift."""
    names = tuple(answers.new_names)
    moved = _moved(placed, answers, names)
    known = len(placed.detector.classes)
    if not moved:
        shares = _spread(placed, answers, names, {})
        if names:
            shares = _weighed(placed, answers, shares, before.views.new)
        return PoolBelief(placed.detector, 0, names, before.views, shares)
    # Being far from references is no evidence any more: the shift is far, too.
    shares = _spread(placed, answers, names, moved)
    classes = with_shifted_classes(
        placed.detector, placed.pool, shares[:, known : 2 * known], moved, placed.settings
    )
    views = pool_views(placed, classes, list(answers.known()))
    return PoolBelief(classes, len(moved), names, views, shares)


def _moved(placed: PlacedPool, answers: PoolAnswers, names: tuple[str, ...]) -> dict[int, int]:
    """The samples that people called known and that a shift has moved, with their classes."""
    said = answers.known()
    if not placed.settings.mind_shift or len(set(said.values())) < 2:
        return {}
    known = len(placed.detector.classes)
    reached = _spread(placed, answers, names, said)[:, known : 2 * known]
    rows = shifted_answers(
        placed.detector, placed.space, placed.pool, reached, said, placed.settings
    )
    return {row: said[row] for row in rows}


def _spread(
    placed: PlacedPool, answers: PoolAnswers, names: tuple[str, ...], apart: Mapping[int, int]
) -> np.ndarray:
    """The share of each class in each sample. Samples ``apart`` speak for shifted classes.

    Every class starts with the same mass. Joined to dozens of references, one answer would carry
    next to nothing, and in a shifted pool the references reach nobody.
    """
    known = len(placed.detector.classes)
    held = placed.detector.references.classes
    first = known + (known if apart else 0)
    position = {name: first + i for i, name in enumerate(names)}
    told = answers.known() | {i: known + place for i, place in apart.items()}
    told |= {i: position[a] for i, a in answers.told.items() if a in position}
    nodes = np.concatenate(
        [np.fromiter(told, np.intp, len(told)), len(placed.pool) + np.arange(len(held))]
    )
    classes = np.concatenate([np.fromiter(told.values(), np.intp, len(told)), held])
    shares = placed.graph.propagated(nodes, classes, first + len(names), placed.settings.graph)
    return shares[: len(placed.pool)]


def _weighed(
    placed: PlacedPool, answers: PoolAnswers, shares: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Shares of what nobody was asked about, moved by how likely each sample is new."""
    known, least = len(placed.detector.classes), placed.settings.least_evidence
    odds = np.clip(new, least, 1 - least)[:, None]
    moved = np.concatenate([shares[:, :known] * (1 - odds), shares[:, known:] * odds], axis=1)
    free = np.flatnonzero(answers.unasked(len(shares)))
    weighed = shares.copy()
    weighed[free] = moved[free] / moved[free].sum(axis=1, keepdims=True)
    return weighed
