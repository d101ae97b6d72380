"""Learn a shift that people have called known: each class gets a second mode, within bounds.

What was fitted at first is never moved. A shifted look becomes a further mode of its class,
fitted on samples of the shifted source that lie clearly in the class once the shift is taken
back. How far a mode may lie from the first one is bounded, so that a drift that creeps on for a
year cannot carry a class away step by step: each step is measured from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from monitor.novelty.arrays import Floats, Ints, as_features
from monitor.novelty.detector import Detector, KnownClass, held_out
from monitor.novelty.drift_sketch import Sketch
from monitor.novelty.drift_split import wider
from monitor.novelty.graph import PoolGraph, Space
from monitor.novelty.subspace import Subspace, principal

# How far a mode may lie from the first one. Corruptions of severity 3 moved classes of EuroSAT by
# 0.3 to 0.7; the nearest other class lies 0.5 to 0.7 away. What has moved further than its
# neighbours are apart is a camera to be cleaned, not a look to be learnt.
FURTHEST = 0.8
# Samples from which a class's own shifted subspace is fitted; with fewer, the first one moves
# with the common shift and keeps its directions.
_LEAST_OWN = 20
# So many samples weigh as much as the common shift when a mode's mean is placed.
_OWN_MEAN = 20
# Directions that a mode may take on: more would reconstruct anything. And for each so many
# samples: held-out ones decide how many are needed, so these may be nearly used up.
_FURTHER_MOST, _FURTHER_SHARE = 64, 0.9
# Looks of a class at most, beside what it was fitted with: the three latest.
_LOOKS_MOST = 3
# Of the samples that are taken for a class, the share that is believed: all that fit it where
# nobody found anything new, the clearer half where new samples may be among them.
_BELIEVED_ALONE, _BELIEVED_BESIDE_NEW = 1.0, 0.5
# Answers that must agree with the class that a corrected sample is taken for. Where fewer do, the
# shift has mixed the classes up, and only what lies near an answer is believed.
_AGREEMENT = 0.5


@dataclass(frozen=True, slots=True)
class AdaptedClass:
    """A class with a new mode: from how many samples, and how far from the first mode."""

    id: str
    name: str
    samples: int
    distance: float


@dataclass(frozen=True, slots=True, eq=False)
class Adaptation:
    """The detector that knows the shift, what changed in it, and what was refused and why.

    ``detector`` is the one that was given when nothing could be adapted.
    """

    detector: Detector
    adapted: tuple[AdaptedClass, ...]
    refused: Mapping[str, str]


def adapt(
    sketch: Sketch,
    features: Floats,
    known: Mapping[int, int],
    *,
    new: tuple[int, ...] = (),
    furthest: float = FURTHEST,
    seed: int = 0,
) -> Adaptation:
    """From the features of a shifted source, and what people said about some of them.

    ``known`` maps rows to the position of the class that a person named; ``new`` are rows that
    a person called new. ``furthest`` bounds the distance of a mode from the first mode of its
    class, where one is the spread within a class.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 40)).astype("f")
    >>> x = np.concatenate([images(m, 80) for m in (0, 9, 18)])
    >>> before = Detector.fit(x, ["a"] * 80 + ["b"] * 80 + ["c"] * 80)
    >>> dirty = x + np.array([2, -2] * 20, dtype="f")
    >>> found = adapt(Sketch.of(before), dirty, {0: 0, 100: 1, 200: 2}, furthest=5.0)
    >>> [(c.name, len(k.modes)) for c, k in zip(found.adapted, found.detector.classes)]
    [('a', 2), ('b', 2), ('c', 2)]
    >>> [bool(d.score(dirty).novel.mean() > 0.5) for d in (before, found.detector)]
    [True, False]
    """
    detector = sketch.detector
    pool = as_features(features, dimension=detector.dimension, what="shifted samples")
    shift = sketch.shift(pool)
    nearest, believed = _taken_back(sketch, pool - shift, alone=not new)
    if known and np.mean([nearest[row] == c for row, c in known.items()]) < _AGREEMENT:
        nearest, believed = _by_neighbours(detector, pool, known, new)
    believed = np.setdiff1d(believed, np.array([*known, *new], dtype=np.intp))
    rng = np.random.default_rng(seed)
    classes: list[KnownClass] = []
    adapted: list[AdaptedClass] = []
    refused: dict[str, str] = {}
    for position, known_class in enumerate(detector.classes):
        told = np.array([row for row, c in known.items() if c == position], dtype=np.intp)
        members = np.concatenate([told, believed[nearest[believed] == position]])
        mode, held = _mode(known_class, pool, rng.permutation(members), shift, detector)
        distance = _distance(sketch.directions, known_class, mode)
        if not members.size:
            classes.append(known_class)
            refused[known_class.id] = "no sample of it was seen in the shifted source"
        elif distance > furthest:
            classes.append(known_class)
            refused[known_class.id] = (
                f"it would lie {distance:.2f} from its first look, and {furthest:g} is allowed"
            )
        else:
            modes = (*_kept(known_class), mode)
            learnt = _with_look(known_class, mode, pool[held], detector.settings.references_most)
            human = known_class.human + len(told)
            classes.append(replace(learnt, modes=modes, human=human))
            adapted.append(
                AdaptedClass(known_class.id, known_class.name, len(members), round(distance, 4))
            )
    if not adapted:
        return Adaptation(detector, (), refused)
    whole = Detector.of(classes, fingerprint=detector.fingerprint, settings=detector.settings)
    return Adaptation(whole, tuple(adapted), refused)


def _taken_back(sketch: Sketch, corrected: Floats, *, alone: bool) -> tuple[Ints, Ints]:
    """The class of every sample once the shift is taken back, and the rows that are believed."""
    errors = sketch.detector.fre(corrected)
    limit = sketch.detector.fre_calibration.t_inner * wider(sketch, corrected)
    rows, _ = sketch.clearest(errors, _BELIEVED_ALONE if alone else _BELIEVED_BESIDE_NEW)
    return errors.argmin(axis=1), rows[errors.min(axis=1)[rows] <= limit]


def _by_neighbours(
    detector: Detector, pool: Floats, known: Mapping[int, int], new: tuple[int, ...]
) -> tuple[Ints, Ints]:
    """The same from the answers alone, which spread over the pool's graph of neighbours.

    Noise takes images of every class to one place, where no common shift brings them back from.
    The surer half is believed, and nothing that is nearer to what people called new.
    """
    settings, count = detector.settings, len(detector.classes)
    references = detector.references
    space = Space.of(pool, references.features, references.classes, settings)
    graph = PoolGraph.of(space.place(pool), settings.neighbours)
    told = {**known, **dict.fromkeys(new, count)}
    nodes, classes = np.array(list(told), np.intp), np.array(list(told.values()), np.intp)
    shares = graph.propagated(nodes, classes, count + bool(new), settings.propagation)
    nearest = shares.argmax(axis=1)
    sure = shares.max(axis=1)
    rows = np.flatnonzero((nearest < count) & (sure >= np.median(sure)))
    return nearest, rows


def adapted(detector: Detector, *, furthest: float = FURTHEST) -> dict[str, float]:
    """By class id, how far its furthest look lies from what was fitted, as a share of the bound.

    Only classes that have learnt a shift are named; at 1 a class follows no further. It is a
    function of the detector alone, so that a roll-back takes it back as well.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(m, 1, size=(80, 40)) for m in (0, 9, 18)]).astype("f")
    >>> before = Detector.fit(x, ["a"] * 80 + ["b"] * 80 + ["c"] * 80)
    >>> dirty = x + np.array([2, -2] * 20, dtype="f")
    >>> after = adapt(Sketch.of(before), dirty, {0: 0, 100: 1, 200: 2}, furthest=5.0).detector
    >>> adapted(before), [0 < share < 1 for share in adapted(after, furthest=5.0).values()]
    ({}, [True, True, True])
    """
    moved = [known for known in detector.classes if _looks(known)]
    if not moved:
        return {}
    directions = Sketch.of(detector).directions
    return {
        known.id: max(_distance(directions, known, look) for look in _looks(known)) / furthest
        for known in moved
    }


def _mode(
    known: KnownClass, pool: Floats, members: Ints, shift: Floats, detector: Detector
) -> tuple[Subspace, Ints]:
    """The shifted look of a class, and the samples that were held out from it.

    Its mean is drawn from the common shift to the samples' own mean as they become many. It
    keeps every direction of the first mode, in which the class goes on to vary, and takes on
    as many further ones as bring held-out samples back to the error that they had before.
    """
    first = known.modes[0]
    held = members[: held_out(len(members), detector.settings)]
    fitted = members[len(held) :]
    own = len(fitted) / (len(fitted) + _OWN_MEAN)
    mean: Floats = first.mean + shift
    if len(fitted):
        mean = ((1 - own) * mean + own * pool[fitted].mean(axis=0)).astype(np.float32)
    bare = replace(first, mean=mean, count=len(fitted))
    if len(fitted) < _LEAST_OWN or not len(known.references):
        return bare, held[: detector.settings.references_most]
    goal = float(known.own.mean())
    further = _further(bare, pool[fitted])
    most = min(len(further), int(_FURTHER_SHARE * len(fitted)), _FURTHER_MOST)
    residual = _residual(bare, pool[held])
    energy = np.einsum("ij,ij->i", residual, residual).mean()
    saved = np.cumsum(((residual @ further[:most].T) ** 2).mean(axis=0))
    enough = int(np.searchsorted(saved, energy - goal)) + 1 if energy > goal else 0
    basis = np.concatenate([first.basis, further[: min(enough, most)]])
    kept = held[: detector.settings.references_most]
    return replace(bare, basis=np.ascontiguousarray(basis)), kept


def _residual(subspace: Subspace, features: Floats) -> Floats:
    centred = features - subspace.mean
    left: Floats = (centred - (centred @ subspace.basis.T) @ subspace.basis).astype(np.float32)
    return left


def _further(subspace: Subspace, features: Floats) -> Floats:
    """Directions outside of a subspace in which samples vary, the strongest first."""
    directions, _, _ = principal(_residual(subspace, features), np.zeros(features.shape[1]))
    return directions.astype(np.float32)


def _distance(directions: Floats, known: KnownClass, mode: Subspace) -> float:
    """From the first mode, in the units of a drift's strength."""
    away = (mode.mean - known.modes[0].mean) @ directions
    return float(np.sqrt(np.mean(away**2))) if away.size else 0.0


def _with_look(known: KnownClass, mode: Subspace, held: Floats, most: int) -> KnownClass:
    """References of what was fitted, which come first, and of the latest looks."""
    references = np.concatenate([known.references, held])
    own = np.concatenate([known.own, mode.fre(held)])
    excess = max(0, len(references) - (1 + _LOOKS_MOST) * most)
    kept = np.r_[: min(most, len(references)), min(most, len(references)) + excess : len(own)]
    return replace(known, references=references[kept], own=own[kept], held=known.held + len(held))


def _kept(known: KnownClass) -> list[Subspace]:
    """The modes that stay beside a further look: all but the oldest looks."""
    looks = [id(mode) for mode in _looks(known)]
    gone = looks[: max(0, len(looks) - (_LOOKS_MOST - 1))]
    return [mode for mode in known.modes if id(mode) not in gone]


def _looks(known: KnownClass) -> list[Subspace]:
    """The modes that were learnt from shifts; the parts of a merged class are none of them.

    A look begins with the directions of the first mode, number for number.
    """
    first, *later = known.modes
    count = first.components
    return [mode for mode in later if np.array_equal(mode.basis[:count], first.basis)]
