"""The preset ``robust``: answers spread over a graph of the pool and become pseudo-labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.confirmed_classes import confirmed_names
from monitor.novelty.detector import Detector
from monitor.novelty.pseudo_labeller import (
    AT_THE_END,
    KnownOnly,
    LoopResult,
    PoolAnswers,
    PseudoLabel,
    Step,
)
from monitor.novelty.robust.choose_questions import choose_questions, is_quiet, question_parts
from monitor.novelty.robust.class_posterior import (
    ClassPosterior,
    PoolLessons,
    TwoOpinions,
    known_as_new,
    pool_lessons,
    posterior,
    reached_by,
)
from monitor.novelty.robust.pool_belief import PlacedPool, PoolBelief, believed, unanswered
from monitor.novelty.robust.robust_settings import RobustSettings


@dataclass(frozen=True, slots=True, eq=False)
class GraphPseudoLabeller:
    """Takes each step from what the answers so far say; keeps nothing between two steps."""

    placed: PlacedPool
    first: PoolBelief
    rng: np.random.Generator

    @classmethod
    def of(
        cls, detector: Detector, pool: Floats, settings: RobustSettings, rng: np.random.Generator
    ) -> GraphPseudoLabeller:
        """For one pool."""
        placed = PlacedPool.of(detector, pool, settings)
        return cls(placed, unanswered(placed), rng)

    def plan(self, budget: int) -> list[int]:
        """How many questions each round may ask."""
        return question_parts(budget, self.placed.settings)

    def step(self, number: int, answers: PoolAnswers, count: int) -> Step:
        """Ask ``count`` questions, unless the pool is quiet."""
        placed = self.placed
        doubtful = not all(known.confirmed for known in placed.detector.classes)
        now = believed(placed, self.first, answers) if number or doubtful else self.first
        ask = np.empty(0, np.intp)
        if not (number and is_quiet(placed, now, answers)):
            ask = choose_questions(placed, now, answers, number, count, self.rng)
        names = tuple(now.name_of(int(i), placed.detector) for i in ask)
        t_inner = placed.detector.calibration.t_inner
        return Step(ask, names, placed.above, t_inner, done=ask.size == 0)

    def conclude(self, answers: PoolAnswers) -> LoopResult:
        """Pseudo-labels of the surest samples, and the final score."""
        placed, settings = self.placed, self.placed.settings
        if not answers.new:
            return LoopResult(KnownOnly(placed.detector))
        now = believed(placed, self.first, answers)
        assert now.shares is not None
        count = len(placed.detector.classes)
        found = posterior(placed, now, answers)
        shares = found.probabilities if now.moved else now.shares
        lessons = pool_lessons(shares, now, answers, count, pseudo_labels=settings.pseudo_labels)
        known = np.where(now.free, now.shares[:, : now.known].sum(axis=1), 0.0)
        groups = [
            placed.pool[[*named, *rows]]
            for named, rows in zip(answers.new.values(), _surest(now, settings), strict=True)
        ]
        taught = PoolLessons(placed.pool, now.views.s0, groups, lessons, known)
        score = TwoOpinions.fit(now.classes, placed.space, taught, settings)
        pseudo: tuple[PseudoLabel, ...] = ()
        if settings.pseudo_labels:
            usual = known_as_new(placed, answers)
            limit = reached_by(settings.references_taught, usual.named)
            pseudo = _pseudo_labels(found, now.free, settings, limit)
        return LoopResult(score, pseudo, confirmed_names(now, answers, found.near, settings))


def _surest(now: PoolBelief, settings: RobustSettings) -> list[Ints]:
    """For each new class the samples with the largest shares, which teach the final score."""
    assert now.shares is not None
    if not settings.pseudo_labels:
        return [np.empty(0, np.intp) for _ in now.names]
    best, share = now.shares.argmax(axis=1), now.shares.max(axis=1)
    free = now.free & (share >= settings.confidence)
    found = []
    for index in range(len(now.names)):
        members = np.flatnonzero(free & (best == now.known + index))
        members = members[np.argsort(-share[members], kind="stable")]
        found.append(members[: int(np.ceil(settings.keep * len(members)))])
    return found


def _pseudo_labels(
    found: ClassPosterior, free: Bools, settings: RobustSettings, limit: float
) -> tuple[PseudoLabel, ...]:
    """The samples that belong to each new class, by name, the surest first.

    What known samples reach as often does not teach a new class.
    """
    best, sure = found.probabilities.argmax(axis=1), found.probabilities.max(axis=1)
    taught = free & (sure >= settings.sure_member) & (found.new >= limit)
    first = found.known + found.shifted
    pseudo: list[PseudoLabel] = []
    for index, name in enumerate(found.names):
        members = np.flatnonzero(taught & (best == first + index))
        members = members[np.argsort(-sure[members], kind="stable")]
        pseudo += [PseudoLabel(int(i), name, float(sure[i]), AT_THE_END) for i in members]
    return tuple(pseudo)
