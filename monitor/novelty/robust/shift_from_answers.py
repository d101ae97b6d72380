"""What answers of "known" teach about shift, within one inner loop.

A person who calls a strange sample known says where its class has gone. Such answers spread over
the pool by themselves, apart from the held-out samples of their classes; where the samples that
they reach lie away from their classes in one common direction, the pool is shifted, and every
class gets a shifted class beside it. One answer about one class thus serves all of them, and
questions and scores no longer take the shift for something new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.pool_graph import PoolSpace
from monitor.novelty.robust.settings import RobustSettings


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
