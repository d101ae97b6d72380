"""Which samples of a pool look strange beside held-out known ones: what the trigger counts.

A new class need not have a large FRE: a rich subspace of a known class may reconstruct it well
enough to stay below T_inner. In the space of the inner loop, whitened by the spread within known
classes, it points in a direction of its own all the same. So a sample counts as strange here if
it points away from its nearest class more than held-out samples of that class do.

Whoever is used to measure must not be measured by it. The held-out samples are halved: one half
whitens the space, the other says what is usual in it, and then they change places. A share
:data:`LEVEL` of known samples is strange by chance, which is what the trigger bets against.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.graph import Space

#: The share of known samples that count as strange by chance.
LEVEL = 0.1
# With fewer held-out samples than this in a class, its spread is taken from all classes.
_FEW = 4
# With fewer in all, halves of them can whiten nothing: FRE must do.
_LEAST = 20
_TINY = 1e-9
# Samples that the space is fitted on; more make it no better.
_FITTED = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Strange:
    """Per sample 0, one half or 1; how many held-out samples it rests on; what chance has."""

    samples: np.ndarray
    references: int
    chance: float


def strange(detector: Detector, pool: Floats, *, seed: int = 0) -> Strange:
    """How strange each sample of a pool is.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(0, 200), images(9, 200)])
    >>> detector = Detector.fit(known, ["a"] * 200 + ["b"] * 200)
    >>> found = strange(detector, np.concatenate([images(0, 80), images([9, -9] * 6, 40)]))
    >>> bool(found.samples[:80].mean() < 0.3), bool(found.samples[80:].mean() > 0.9)
    (True, True)
    """
    reserve, held = detector.reserve()
    if len(reserve) < _LEAST:
        calibration = detector.calibration
        above = detector.score(pool).novel.astype(float)
        return Strange(above, calibration.count, calibration.exceedance)
    first = _half(held)
    fitted = np.random.default_rng(seed).permutation(len(pool))[:_FITTED]
    halves = [
        _beside(detector, pool, fitted, reserve[a], held[a], reserve[~a]) for a in (first, ~first)
    ]
    return Strange(np.mean(halves, axis=0), len(reserve), LEVEL)


def _half(held: Ints) -> np.ndarray:
    """Every second held-out sample of each class."""
    chosen = np.zeros(len(held), dtype=bool)
    for position in np.unique(held):
        chosen[np.flatnonzero(held == position)[::2]] = True
    return chosen


def _beside(
    detector: Detector,
    pool: Floats,
    fitted: Ints,
    whitens: Floats,
    whitens_classes: Ints,
    beside: Floats,
) -> np.ndarray:
    """Which samples are stranger than all but a tenth of those they are put beside."""
    # The main directions come from both, or those who chose them would look closer.
    space = Space.of(
        np.concatenate([pool[fitted], beside]), whitens, whitens_classes, detector.settings
    )
    modes = [mode.mean for known in detector.classes for mode in known.modes]
    points = _unit(space.place(np.concatenate([pool, beside])))
    likeness = points @ _unit(space.place(np.stack(modes))).T
    nearest, away = likeness.argmax(axis=1), -likeness.max(axis=1)
    usual, usual_mode = away[len(pool) :], nearest[len(pool) :]
    level = np.full(len(modes), usual.mean())
    spread = np.full(len(modes), usual.std())
    known = (usual - usual.mean()) / max(float(usual.std()), _TINY)
    for mode in range(len(modes)):
        mine = usual_mode == mode
        if mine.sum() >= _FEW:
            level[mode], spread[mode] = usual[mine].mean(), usual[mine].std()
            known[mine] = _left_out(usual[mine])
    standard = (away[: len(pool)] - level[nearest[: len(pool)]]) / np.maximum(
        spread[nearest[: len(pool)]], _TINY
    )
    found: np.ndarray = (standard > _limit(known)).astype(float)
    return found


def _left_out(values: np.ndarray) -> np.ndarray:
    """Each value by the mean and deviation of the others: it must not vouch for itself."""
    count = len(values) - 1
    means = (values.sum() - values) / count
    squares = ((values**2).sum() - values**2) / count
    standard: np.ndarray = (values - means) / np.sqrt(np.maximum(squares - means**2, _TINY**2))
    return standard


def _limit(known: np.ndarray) -> float:
    """What the next known sample exceeds with a probability of at most :data:`LEVEL`."""
    rank = int(np.ceil((len(known) + 1) * (1 - LEVEL)))
    return float(np.sort(known)[min(rank, len(known)) - 1])


def _unit(points: Floats) -> Floats:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    unit: Floats = points / np.maximum(length, 1e-12)
    return unit
