"""The preset ``robust``: labels spread over the pool's graph of neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.stats import betabinom

from monitor.novelty.answers import Answers
from monitor.novelty.arrays import Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.drift_answers import shifted_answers, with_looks
from monitor.novelty.graph import PoolGraph, Space
from monitor.novelty.pool_score import KnownOnly, TwoOpinions
from monitor.novelty.rounds import AT_THE_END, Conclusion, PseudoLabel, Step

# How sharply covered and uncovered samples are told apart, per standard deviation of both.
_STEEPNESS = 1.5
# How much more a sample counts among questions with each standard deviation that it looks newer,
# and from where on it makes no more difference.
_CONTRAST, _EXTREME = 2.0, 3.5
# Being covered or not is evidence, never proof: it moves the odds by at most nine to one.
_LEAST_EVIDENCE = 0.1
# How unlikely an excess above T_inner must be to keep the loop asking although nobody has named
# anything new yet. Of 64 pools with a class of one fiftieth, 62 showed it among the first six
# questions.
_SIGNIFICANT = 0.05
# Keeps the logarithm of an FRE of zero finite.
_TINY = 1e-12
# The round from which questions go wherever nobody has looked, if something new is known: a class
# that looks like a known one is found by no other means.
_EVERYWHERE_FROM = 2


class GraphLabeller:
    """Asks where the pool looks new, then where nobody has looked, and lets answers spread."""

    def __init__(self, detector: Detector, pool: Floats, rng: np.random.Generator) -> None:
        self._detector, self._pool, self._rng = detector, pool, rng
        self._settings = detector.settings
        known = detector.references
        self._held = known.classes
        self._space = Space.of(pool, known.features, known.classes, self._settings)
        self._points = self._space.place(np.concatenate([pool, known.features]))
        self._graph = PoolGraph.of(self._points, self._settings.neighbours)
        # The classes as they look in this pool: with a shifted look each, once answers tell of it.
        self._looks = detector
        self._moved_answers = 0
        self._weigh(Answers.none(detector))
        self._above = int(detector.score(pool).novel.sum())
        self._shares: np.ndarray | None = None
        self._names: list[str] = []

    def _weigh(self, answers: Answers) -> None:
        """Per sample, how much it is worth a question, and how likely it is new."""
        errors = np.concatenate([self._looks.fre(self._pool), self._looks.reference_fre()])
        self._nearest, self._s0 = errors.argmin(axis=1), errors.min(axis=1)
        away, unlike, unreached = self._away(), self._unlike(), self._unreached(answers)
        look = _standard(away + unlike + unreached)
        self._novelty: np.ndarray = np.exp(_CONTRAST * np.clip(look, -_EXTREME, _EXTREME))
        level = away + unreached
        self._new = 1 / (1 + np.exp(-_STEEPNESS * (level - _two_groups(level))))

    def _away(self) -> np.ndarray:
        """Per sample, how far its neighbourhood lies from every known class, standardised.

        No label is needed for this. In the space of the graph, a sample of a known class lies in
        the direction of that class's mean; a new class does not, even where its FRE is no
        larger than that of known ones. Averaging over neighbours makes one sample's chance
        direction into a statement about the region it lies in.
        """
        means = [mode.mean for known in self._looks.classes for mode in known.modes]
        directions = _unit(self._space.place(np.stack(means)))
        away = -(_unit(self._points) @ directions.T).max(axis=1)
        return _standard(self._graph.smoothed(away)[: len(self._pool)])

    def _unlike(self) -> np.ndarray:
        """Per sample, how much larger S⁰ is around it than on held-out samples, standardised.

        Held-out samples of the nearest class, that is: classes differ in their spread, and what
        is much for one is common in another.
        """
        logs = np.log(self._s0 + _TINY)
        held = logs[len(self._pool) :]
        usual = np.full(len(self._looks.classes), held.mean())
        for index in np.unique(self._held):
            usual[index] = held[self._held == index].mean()
        return _standard(self._graph.smoothed(logs - usual[self._nearest])[: len(self._pool)])

    def _unreached(self, answers: Answers) -> np.ndarray:
        """Per sample, how few held-out known samples lie in its neighbourhood, standardised.

        Sharper than distance where much of a pool is new; where little is, it says mostly how
        common a known class is. In a shifted pool, nobody held out looks like those in it: there,
        samples that people called known count as much as all that are held out.
        """
        held = np.zeros(len(self._points))
        held[len(self._pool) :] = 1.0
        if self._shifted:
            said = list(answers.known())
            held[said] = len(self._held) / len(said)
        return _standard(-np.log(self._graph.smoothed(held)[: len(self._pool)] + 1e-6))

    def step(self, number: int, answers: Answers, count: int) -> Step:
        t_inner = self._detector.calibration.t_inner
        if number > 0:
            self._propagate(answers)
            if self._quiet(answers):
                return Step(np.empty(0, np.intp), self._above, t_inner, done=True)
        ask = self._choose(number, answers, count)
        return Step(ask, self._above, t_inner, done=ask.size == 0)

    def _quiet(self, answers: Answers) -> bool:
        """Enough answers, none of them new, and no more samples above T_inner than chance has.

        Where most of them have moved with a shift, they went to what is merely shifted: the next
        ones, which know of it, must find nothing new either.
        """
        mostly_moved = 2 * self._moved_answers > len(answers)
        least = self._settings.quiet_labels * (2 if mostly_moved else 1)
        if answers.new_names or len(answers) < least:
            return False
        calibration, n = self._detector.calibration, len(self._pool)
        exceeded = calibration.exceedance * calibration.count
        chance = betabinom.sf(self._above - 1, n, exceeded + 1, calibration.count - exceeded + 1)
        return bool(chance > _SIGNIFICANT)

    def _choose(self, number: int, answers: Answers, count: int) -> Ints:
        free = answers.unasked(len(self._pool))
        candidates = np.flatnonzero(free)
        if self._settings.query == "random" or count >= len(candidates):
            return self._rng.permutation(candidates)[:count]
        if self._settings.query == "top" and number > 0:
            order = np.argsort(-self._new_share(), kind="stable")
            chosen: Ints = order[free[order]][:count]
            return chosen
        everywhere = answers.new_names and number >= _EVERYWHERE_FROM
        weights = np.ones(len(free)) if everywhere else self._novelty
        return self._graph.peaks(weights, count, asked=answers.asked)

    def _new_share(self) -> np.ndarray:
        if self._shares is None:
            return self._novelty
        first = len(self._looks.classes)
        share: np.ndarray = self._shares[: len(self._pool), first:].sum(axis=1)
        return share

    @property
    def _shifted(self) -> bool:
        return self._looks is not self._detector

    def _propagate(self, answers: Answers) -> None:
        """Spread the answers. The columns are what is known, with its looks, and what is new."""
        known = len(self._detector.classes)
        self._names = answers.new_names
        was_shifted, self._looks = self._shifted, self._detector
        moved = self._moved(answers)
        self._moved_answers = len(moved)
        if moved:
            # Being far from what was held out is no evidence any more: the shift is far, too.
            self._shares = self._spread(answers, apart=moved)
            reached = self._shares[: len(self._pool), known : 2 * known]
            self._looks = with_looks(self._detector, self._pool, reached, moved)
            self._weigh(answers)
            return
        if was_shifted:
            self._weigh(answers)
        shares = self._spread(answers)
        if self._names:
            new = np.clip(self._new, _LEAST_EVIDENCE, 1 - _LEAST_EVIDENCE)[:, None]
            weighed = np.concatenate(
                [shares[: len(new), :known] * (1 - new), shares[: len(new), known:] * new], axis=1
            )
            free = np.flatnonzero(answers.unasked(len(new)))
            shares[free] = weighed[free] / weighed[free].sum(axis=1, keepdims=True)
        self._shares = shares

    def _moved(self, answers: Answers) -> dict[int, int]:
        """The samples that people called known and that a shift has moved, with their classes."""
        said = answers.known()
        if not self._settings.mind_shift or len(set(said.values())) < 2:
            return {}
        known = len(self._detector.classes)
        shares = self._spread(answers, apart=said)[: len(self._pool), known : 2 * known]
        rows = shifted_answers(self._detector, self._space, self._pool, shares, said)
        return {row: said[row] for row in rows}

    def _spread(self, answers: Answers, *, apart: Mapping[int, int] | None = None) -> np.ndarray:
        """The share of each class in each node. Samples ``apart`` speak for looks of their own.

        Every class starts with the same mass. Joined to dozens of held-out samples, one answer
        would carry next to nothing, and in a shifted pool the held-out ones reach nobody.
        """
        known = len(self._detector.classes)
        looks = known if apart else 0
        position = {name: known + looks + i for i, name in enumerate(self._names)}
        told = answers.known() | {i: known + place for i, place in (apart or {}).items()}
        told |= {i: position[a] for i, a in answers.told.items() if a in position}
        nodes = np.concatenate(
            [np.fromiter(told, np.intp, len(told)), len(self._pool) + np.arange(len(self._held))]
        )
        classes = np.concatenate([np.fromiter(told.values(), np.intp, len(told)), self._held])
        return self._graph.propagated(
            nodes, classes, known + looks + len(self._names), self._settings.propagation
        )

    def suggestion(self, sample: int) -> str | None:
        if self._shares is None:
            return None
        known, count = len(self._looks.classes), len(self._detector.classes)
        best = int(self._shares[sample].argmax())
        return (
            self._names[best - known]
            if best >= known
            else self._detector.classes[best % count].name
        )

    def conclude(self, answers: Answers) -> Conclusion:
        if not answers.new_names:
            return Conclusion(KnownOnly(self._detector))
        self._propagate(answers)
        assert self._shares is not None
        shares = self._shares[: len(self._pool)]
        best, sure = shares.argmax(axis=1), shares.max(axis=1)
        free = answers.unasked(len(self._pool)) & (sure >= self._settings.confidence)
        first = len(self._looks.classes)
        pseudo: list[PseudoLabel] = []
        groups = []
        for index, (name, named) in enumerate(answers.new().items()):
            members = np.flatnonzero(free & (best == first + index))
            members = members[np.argsort(-sure[members], kind="stable")]
            kept = members[: int(np.ceil(self._settings.keep * len(members)))]
            if not self._settings.pseudo_labels:
                kept = kept[:0]
            pseudo += [PseudoLabel(int(i), name, float(sure[i]), AT_THE_END) for i in kept]
            groups.append(self._pool[np.concatenate([np.asarray(named, np.intp), kept])])
        # Of the known classes, only held-out samples and people's answers teach the score: a new
        # sample mistaken for a known one would teach it the opposite. Shifted looks have nobody
        # held out and must be guessed.
        lessons = np.zeros(shares.shape)
        guessed = answers.unasked(len(shares))
        if self._settings.pseudo_labels:
            unsettled = slice(len(self._detector.classes), None)
            lessons[guessed, unsettled] = shares[guessed, unsettled]
        told = list(answers.told)
        lessons[told] = shares[told]
        known = np.where(guessed, shares[:, :first].sum(axis=1), 0.0)
        score = TwoOpinions.fit(
            self._looks, self._space, groups, (self._pool, self._s0), lessons, known
        )
        return Conclusion(score, tuple(pseudo))


def _two_groups(values: np.ndarray) -> float:
    """The cut that leaves the least spread within its two sides (Otsu's criterion)."""
    ordered = np.sort(values)
    n = len(ordered)
    if n < 2:
        return float(ordered[0])
    below = np.arange(1, n)
    sums = np.cumsum(ordered)[:-1]
    low, high = sums / below, (ordered.sum() - sums) / (n - below)
    best = int(np.argmax(below * (n - below) * (high - low) ** 2))
    return float(ordered[best] + ordered[best + 1]) / 2


def _standard(values: np.ndarray) -> np.ndarray:
    standard: np.ndarray = (values - values.mean()) / (values.std() or 1.0)
    return standard


def _unit(points: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    unit: np.ndarray = points / np.maximum(length, 1e-12)
    return unit
