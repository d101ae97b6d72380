"""The preset ``robust``: asks where the pool looks new, then where nobody has been asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import betabinom

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.pseudo_labeller import (
    AT_THE_END,
    KnownOnly,
    LoopResult,
    PoolAnswers,
    PseudoLabel,
    Step,
)
from monitor.novelty.robust.class_posterior import (
    ClassPosterior,
    PoolLessons,
    TwoOpinions,
    confirmed_names,
    known_as_new,
    pool_lessons,
    posterior,
    reached_by,
)
from monitor.novelty.robust.pool_belief import PlacedPool, PoolBelief, believed, unanswered
from monitor.novelty.robust.robust_settings import RobustSettings


@dataclass(frozen=True, slots=True, eq=False)
class GraphPseudoLabeller:
    """Chooses questions from what the answers so far say; keeps nothing between two steps."""

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
        """See :func:`question_parts`."""
        return question_parts(budget, self.placed.settings)

    def step(self, number: int, answers: PoolAnswers, count: int) -> Step:
        """Ask ``count`` questions, unless the pool is quiet."""
        placed = self.placed
        doubtful = not all(known.confirmed for known in placed.detector.classes)
        now = believed(placed, self.first, answers) if number or doubtful else self.first
        ask = np.empty(0, np.intp)
        if not (number and self._quiet(now, answers)):
            ask = choose_questions(placed, now, answers, number, count, self.rng)
        names = tuple(now.name_of(int(i), placed.detector) for i in ask)
        t_inner = placed.detector.calibration.t_inner
        return Step(ask, names, placed.above, t_inner, done=ask.size == 0)

    def _quiet(self, now: PoolBelief, answers: PoolAnswers) -> bool:
        """Enough answers, none of them new, and no more samples above T_inner than chance has.

        Where most of them have moved with a shift, they went to what is merely shifted: the next
        ones, which know of it, must find nothing new either.
        """
        settings = self.placed.settings
        mostly_moved = 2 * now.moved > len(answers.asked)
        least = settings.quiet_labels * (settings.quiet_shifted if mostly_moved else 1)
        if answers.new or len(answers.asked) < least:
            return False
        calibration, n = self.placed.detector.calibration, len(self.placed.pool)
        exceeded = calibration.exceedance * calibration.count
        chance = betabinom.sf(
            self.placed.above - 1, n, exceeded + 1, calibration.count - exceeded + 1
        )
        return bool(chance > settings.significant)

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
        return LoopResult(score, pseudo, confirmed_names(placed, now, answers))


def question_parts(budget: int, settings: RobustSettings) -> list[int]:
    """How many questions each part may ask.

    First a third, or what is enough to call a pool quiet, so that one with nothing new stays
    cheap; then up to a half; then the other half, which goes everywhere.

    >>> question_parts(15, RobustSettings()), question_parts(40, RobustSettings())
    ([5, 3, 7], [8, 12, 20])
    """
    if settings.one_shot:
        return [budget]
    until_new = int(np.ceil(settings.ask_where_new * budget))
    first = min(int(np.ceil(settings.ask_first * budget)), settings.quiet_labels, until_new)
    return [part for part in (first, until_new - first, budget - until_new) if part]


def choose_questions(
    placed: PlacedPool,
    now: PoolBelief,
    answers: PoolAnswers,
    number: int,
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """The samples of part ``number``: first to confirm classes, then where it is worth most."""
    settings = placed.settings
    candidates = np.flatnonzero(now.free)
    if settings.query == "random" or count >= len(candidates):
        return rng.permutation(candidates)[:count]
    if settings.query == "top" and now.shares is not None:
        order = np.argsort(-now.shares[:, now.known :].sum(axis=1), kind="stable")
        chosen: Ints = order[now.free[order]][:count]
        return chosen
    everywhere = now.names and number >= settings.everywhere_from
    first = to_confirm(placed, now, answers, int(np.ceil(settings.ask_confirm * count)))
    weights = _worth_everywhere(placed, now) if everywhere else now.views.worth
    asked = np.concatenate([answers.asked, first])
    rest = placed.graph.peaks(weights, count - len(first), asked=asked, dimming=settings.dimming)
    return np.concatenate([first, rest])


def to_confirm(placed: PlacedPool, now: PoolBelief, answers: PoolAnswers, most: int) -> Ints:
    """Samples to ask about, so that classes with too few answers are confirmed or doubted.

    New classes of this pool, and known ones that earlier pools left unconfirmed. Each is asked
    about at its heart, near what was named: places of their own find other classes instead, and
    of a class that is a twentieth of a pool half stayed unconfirmed.
    """
    if now.shares is None or most < 1:
        return np.empty(0, np.intp)
    settings = placed.settings
    chosen: list[int] = []
    named = answers.new
    said = list(answers.known.values())
    wanted = [(now.known + i, len(named[name])) for i, name in enumerate(now.names)]
    wanted += [
        (i, known.human + said.count(i))
        for i, known in enumerate(placed.detector.classes)
        if not known.confirmed
    ]
    asked = answers.asked
    best = now.shares.argmax(axis=1)
    for column, support in wanted:
        missing = min(settings.confirm_answers - support, most - len(chosen))
        weights = np.where(best == column, now.shares[:, column], 0.0)
        weights[asked] = 0.0
        missing = min(missing, int((weights > 0).sum()))
        if missing > 0:
            taken = np.array([*asked, *chosen], np.intp)
            picked = placed.graph.peaks(weights, missing, asked=taken, dimming=0.0)
            chosen += [int(i) for i in picked if weights[i] > 0]
    return np.array(chosen, dtype=np.intp)


def _worth_everywhere(placed: PlacedPool, now: PoolBelief) -> np.ndarray:
    """How much a question about each sample is worth, wherever nobody has been asked.

    Alike, unless answers tell of a shift: references speak for what looks like them, and for
    shifted samples only answers do.
    """
    if not now.moved or now.shares is None:
        return np.ones(len(placed.pool))
    clean = now.shares[:, : len(placed.detector.classes)].sum(axis=1)
    worth: np.ndarray = np.maximum(1 - clean, placed.settings.ask_clean)
    return worth


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
