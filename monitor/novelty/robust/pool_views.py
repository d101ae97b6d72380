"""Where a pool looks new before anything has a name: three views of every sample.

Pure functions of a placed pool, the known classes, and the samples that people called known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.pool_graph import PoolGraph, PoolSpace
from monitor.novelty.robust.settings import RobustSettings

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
        known = detector.references
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
