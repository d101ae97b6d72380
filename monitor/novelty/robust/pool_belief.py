"""What the answers so far say about a pool: pure functions of the pool and the answers.

Before the first answer, three views say where the pool looks new. Answers spread over the graph;
where answers of "known" agree on a shift, the known classes get shifted ones beside them; else the
views weigh new against known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monitor.novelty.array_types import Bools, Floats
from monitor.novelty.detector import Detector
from monitor.novelty.pool_graph import PoolGraph, PoolSpace
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.robust_settings import RobustSettings

# Keeps the logarithm of an FRE of zero finite.
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPool:
    """A pool and the references in one space and one graph: what no answer changes.

    In ``points`` and ``graph`` the samples of the pool come first, then the references. ``above``
    counts the samples that the verdict calls novel.
    """

    detector: Detector
    settings: RobustSettings
    pool: Floats
    space: PoolSpace
    points: Floats
    graph: PoolGraph
    above: int

    @classmethod
    def of(cls, detector: Detector, pool: Floats, settings: RobustSettings) -> PlacedPool:
        """Place a pool beside the references of a detector."""
        pool, known = detector.checked(pool, "pool"), detector.references
        space = PoolSpace.of(pool, known.features, known.classes, settings.graph)
        points = space.place(np.concatenate([pool, known.features]))
        graph = PoolGraph.of(points, settings.graph)
        above = int(detector.score(pool).novel.sum())
        return cls(detector, settings, pool, space, points, graph, above)

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """Values of all nodes, averaged over neighbourhoods; those of the pool."""
        smooth = self.graph.smoothed(values, self.settings.smoothing, self.settings.smoothing_steps)
        return smooth[: len(self.pool)]


@dataclass(frozen=True, slots=True, eq=False)
class PoolViews:
    """Per sample of the pool how much it is worth a question, and how likely it is new.

    ``s0`` has S⁰ of the pool and then of the references.
    """

    s0: np.ndarray
    worth: np.ndarray
    new: np.ndarray


def pool_views(placed: PlacedPool, classes: Detector, called_known: Sequence[int]) -> PoolViews:
    """View a pool from ``classes``: the known ones, with shifted ones beside them if there are any.

    ``called_known`` are the samples that people called known, where a shift has moved classes.
    """
    settings = placed.settings
    errors = np.concatenate([classes.fre(placed.pool), classes.reference_fre()])
    nearest, s0 = errors.argmin(axis=1), errors.min(axis=1)
    views: dict[str, Callable[[], np.ndarray]] = {
        "direction": lambda: _direction(placed, classes),
        "residual": lambda: _residual(placed, classes, nearest, s0),
        "reach": lambda: _reach(placed, called_known),
    }
    seen = {name: view() for name, view in views.items() if name in settings.views}
    nothing = np.zeros(len(placed.pool))
    look = _standard(sum(seen.values(), start=nothing))
    clipped = np.clip(look, -settings.extreme, settings.extreme)
    # Without S⁰: it is small for a new class that lies near a known one.
    level = sum((seen[name] for name in ("direction", "reach") if name in seen), start=nothing)
    new = 1 / (1 + np.exp(-settings.steepness * (level - _two_groups(level))))
    return PoolViews(s0, np.exp(settings.contrast * clipped), new)


def _direction(placed: PlacedPool, classes: Detector) -> np.ndarray:
    """Per sample, how far its neighbourhood lies from every known class, standardised.

    No label is needed for this. In the space of the graph, a sample of a known class lies in
    the direction of that class's mean; a new class does not, even where its FRE is no
    larger than that of known ones. Averaging over neighbours makes one sample's chance
    direction into a statement about the region it lies in.
    """
    means = [mode.mean for known in classes.classes for mode in known.modes]
    directions = _unit(placed.space.place(np.stack(means)))
    away = -(_unit(placed.points) @ directions.T).max(axis=1)
    return _standard(placed.smoothed(away))


def _residual(
    placed: PlacedPool, classes: Detector, nearest: np.ndarray, s0: np.ndarray
) -> np.ndarray:
    """Per sample, how much larger S⁰ is around it than on references, standardised.

    References of the nearest class, that is: classes differ in their spread, and what is much
    for one is common in another.
    """
    logs = np.log(s0 + _TINY)
    held, held_classes = logs[len(placed.pool) :], placed.detector.references.classes
    usual = np.full(len(classes.classes), held.mean())
    for index in np.unique(held_classes):
        usual[index] = held[held_classes == index].mean()
    return _standard(placed.smoothed(logs - usual[nearest]))


def _reach(placed: PlacedPool, called_known: Sequence[int]) -> np.ndarray:
    """Per sample, how few references lie in its neighbourhood, standardised.

    Sharper than distance where much of a pool is new; where little is, it says mostly how
    common a known class is. In a shifted pool no reference looks like those in it: there,
    samples that people called known count as much as all references.
    """
    held = np.zeros(len(placed.points))
    held[len(placed.pool) :] = 1.0
    if called_known:
        said = list(called_known)
        held[said] = (len(held) - len(placed.pool)) / len(said)
    return _standard(-np.log(placed.smoothed(held) + placed.settings.reach_floor))


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


# -- what answers of "known" teach about shift ---------------------------------------------
#
# A person who calls a strange sample known says where its class has gone. Such answers spread over
# the pool by themselves, apart from the held-out samples of their classes; where the samples that
# they reach lie away from their classes in one common direction, the pool is shifted, and every
# class gets a shifted class beside it. One answer about one class thus serves all of them, and
# questions and scores no longer take the shift for something new.


def shifted_answers(
    detector: Detector,
    space: PoolSpace,
    pool: Floats,
    shares: np.ndarray,
    said: Mapping[int, int],
    settings: RobustSettings,
) -> tuple[int, ...]:
    """Of the samples that people called known, those that have moved; empty without a shift.

    ``said`` has the class of each such sample. ``shares`` says how much of each sample of the
    pool belongs to each known class by these answers alone.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 40)).astype("f")
    >>> known = np.concatenate([images(9 * c, 60) for c in range(4)])
    >>> detector = Detector.fit(known, np.repeat(list("abcd"), 60).tolist())
    >>> settings = RobustSettings()
    >>> space = PoolSpace.of(known, known, np.repeat(range(4), 60), settings.graph)
    >>> shares, said = np.repeat(np.eye(4), 60, axis=0), {60 * c: c for c in range(4)}
    >>> shifted_answers(detector, space, known, shares, said, settings)
    ()
    >>> dirty = known + np.array([3, -3] * 20, dtype="f")
    >>> shifted_answers(detector, space, dirty, shares, said, settings)
    (0, 60, 120, 180)
    """
    answered = np.unique(list(said.values())).astype(np.intp)
    if len(answered) < 2:
        return ()
    homes = space.place(_first_means(detector))
    mass = np.maximum(shares[:, answered].sum(axis=0), 1e-12)
    moved = (shares[:, answered].T @ space.place(pool)) / mass[:, None] - homes[answered]
    if not _agree(moved, settings):
        return ()
    common = np.average(moved, axis=0, weights=mass)
    rows = np.fromiter(said, np.intp, len(said))
    away = space.place(pool[rows]) - homes[np.fromiter(said.values(), np.intp, len(said))]
    # Nearer to where the shift leads than to where the class was.
    return tuple(int(row) for row in rows[away @ common > common @ common / 2])


def with_shifted_classes(
    detector: Detector,
    pool: Floats,
    shares: np.ndarray,
    told: Mapping[int, int],
    settings: RobustSettings,
) -> Detector:
    """The detector with a shifted class beside every class, in the same order.

    ``told`` are the shifted samples and their classes, ``shares`` how much of each sample they
    have reached. For use within the pool: the shifted classes are guesses, no version to publish.
    """
    answered = np.unique(list(told.values())).astype(np.intp)
    mass = np.zeros(len(detector.classes))
    mass[answered] = shares[:, answered].sum(axis=0)
    first = _first_means(detector)
    moved = (shares.T @ pool) / np.maximum(mass, 1e-12)[:, None] - first
    common = np.average(moved[answered], axis=0, weights=mass[answered])
    # A class that nobody named moves with the others.
    own = np.where(mass > 0, mass / (mass + settings.shift_own), 0.0)[:, None]
    means = (first + np.where(own > 0, own * moved, 0.0) + (1 - own) * common).astype(np.float32)
    shifted = [
        replace(
            known,
            id=f"{known.id}'",
            name=f"{known.name}'",
            modes=(replace(known.modes[0], mean=mean, count=settings.shift_own),),
            references=known.references[:0],
            own=known.own[:0],
            said=known.said[:0],
        )
        for known, mean in zip(detector.classes, means, strict=True)
    ]
    return detector.with_classes(shifted)


def _first_means(detector: Detector) -> Floats:
    return np.stack([known.modes[0].mean for known in detector.classes])


def _agree(moved: np.ndarray, settings: RobustSettings) -> bool:
    """Whether displacements point the same way rather than apart."""
    unit = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
    first, second = np.triu_indices(len(unit), k=1)
    cosine = float(np.einsum("ij,ij->i", unit[first], unit[second]).mean())
    return cosine > (settings.shift_agreement if len(unit) > settings.shift_few else 0.0)


# -- what is believed after some answers ---------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PoolBelief:
    """One frozen state of an inner loop.

    ``classes`` are the known ones, twice as many where ``moved`` answers tell of a shift: then the
    second half are the same classes, shifted. ``shares`` has a row for each sample of the pool and
    a column for each of these classes and each new name; there is none before the first answer.
    The first ``known`` of the columns are known classes. ``free`` is True for each sample that
    nobody was asked about.
    """

    classes: Detector
    known: int
    moved: int
    names: tuple[str, ...]
    views: PoolViews
    shares: np.ndarray | None
    free: Bools

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
    known, free = len(placed.detector.classes), np.ones(len(placed.pool), dtype=bool)
    return PoolBelief(placed.detector, known, 0, (), views, None, free)


def believed(placed: PlacedPool, before: PoolBelief, answers: PoolAnswers) -> PoolBelief:
    """After these answers; ``before`` is :func:`unanswered`, whose views hold without a shift."""
    names = tuple(answers.new)
    moved = _moved(placed, answers, names)
    known = len(placed.detector.classes)
    free = np.isin(np.arange(len(placed.pool)), answers.asked, invert=True)
    if not moved:
        shares = _spread(placed, answers, names, {})
        if names:
            shares = _weighed(placed, free, shares, before.views.new)
        return PoolBelief(placed.detector, known, 0, names, before.views, shares, free)
    # Being far from references is no evidence any more: the shift is far, too.
    shares = _spread(placed, answers, names, moved)
    classes = with_shifted_classes(
        placed.detector, placed.pool, shares[:, known : 2 * known], moved, placed.settings
    )
    views = pool_views(placed, classes, list(answers.known))
    return PoolBelief(classes, 2 * known, len(moved), names, views, shares, free)


def _moved(placed: PlacedPool, answers: PoolAnswers, names: tuple[str, ...]) -> dict[int, int]:
    """The samples that people called known and that a shift has moved, with their classes."""
    said = answers.known
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
    told = answers.known | {i: known + place for i, place in apart.items()}
    told |= {i: position[a] for i, a in answers.told.items() if a in position}
    nodes = np.concatenate(
        [np.fromiter(told, np.intp, len(told)), len(placed.pool) + np.arange(len(held))]
    )
    classes = np.concatenate([np.fromiter(told.values(), np.intp, len(told)), held])
    shares = placed.graph.propagated(nodes, classes, first + len(names), placed.settings.graph)
    return shares[: len(placed.pool)]


def _weighed(placed: PlacedPool, unasked: Bools, shares: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Shares of what nobody was asked about, moved by how likely each sample is new."""
    known, least = len(placed.detector.classes), placed.settings.least_evidence
    odds = np.clip(new, least, 1 - least)[:, None]
    moved = np.concatenate([shares[:, :known] * (1 - odds), shares[:, known:] * odds], axis=1)
    free = np.flatnonzero(unasked)
    weighed = shares.copy()
    weighed[free] = moved[free] / moved[free].sum(axis=1, keepdims=True)
    return weighed
