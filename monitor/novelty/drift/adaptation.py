"""Learn a shift that people have called known: each class gets a second mode, within bounds.

What was fitted at first is never moved. A shift becomes a further mode of its class, fitted on
samples of the shifted source that lie clearly in the class once the shift is taken
back. How far a mode may lie from the first one is bounded, so that a drift that creeps on for a
year cannot carry a class away step by step: each step is measured from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector, KnownClass, held_out
from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.pool_drift import wider
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.pool_graph import PoolGraph, PoolSpace
from monitor.novelty.subspace import Subspace, principal


def looks_usual(
    detector: Detector, features: Floats, settings: DriftSettings = DRIFT_DEFAULTS
) -> bool:
    """Whether images of a source whose shift was learnt are novel about as often as others."""
    rate = detector.calibration.exceedance
    return bool(detector.score(features).novel.mean() <= settings.learnt_ratio * rate)


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
    seed: int = 0,
) -> Adaptation:
    """From the features of a shifted source, and what people said about some of them.

    ``known`` maps rows to the position of the class that a person named; ``new`` are rows that
    a person called new. ``sketch`` brings the detector and the settings.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 40)).astype("f")
    >>> x = np.concatenate([images(m, 80) for m in (0, 9, 18)])
    >>> before = Detector.fit(x, ["a"] * 80 + ["b"] * 80 + ["c"] * 80)
    >>> dirty = x + np.array([2, -2] * 20, dtype="f")
    >>> sketch = Sketch.of(before, DriftSettings(furthest=5.0))
    >>> found = adapt(sketch, dirty, {0: 0, 100: 1, 200: 2})
    >>> [(c.name, len(k.modes)) for c, k in zip(found.adapted, found.detector.classes)]
    [('a', 2), ('b', 2), ('c', 2)]
    >>> [bool(d.score(dirty).novel.mean() > 0.5) for d in (before, found.detector)]
    [True, False]
    """
    detector, settings = sketch.detector, sketch.settings
    pool = detector.checked(features, "shifted samples")
    shift = sketch.shift(pool)
    nearest, believed = _taken_back(sketch, pool - shift, alone=not new)
    if known and np.mean([nearest[row] == c for row, c in known.items()]) < settings.agreement:
        nearest, believed = _by_neighbours(detector, pool, known, new)
    believed = np.setdiff1d(believed, np.array([*known, *new], dtype=np.intp))
    rng = np.random.default_rng(seed)
    classes: list[KnownClass] = []
    adapted: list[AdaptedClass] = []
    refused: dict[str, str] = {}
    for position, known_class in enumerate(detector.classes):
        told = np.array([row for row, c in known.items() if c == position], dtype=np.intp)
        members = np.concatenate([told, believed[nearest[believed] == position]])
        mode, held = _mode(known_class, pool, rng.permutation(members), shift, sketch)
        distance = _distance(sketch.directions, known_class, mode)
        if not members.size:
            classes.append(known_class)
            refused[known_class.id] = "no sample of it was seen in the shifted source"
        elif distance > settings.furthest:
            classes.append(known_class)
            refused[known_class.id] = (
                f"it would lie {distance:.2f} from its first mode; {settings.furthest:g} is allowed"
            )
        else:
            modes = (*_kept(known_class, settings), mode)
            learnt = _with_mode(known_class, mode, pool[held], sketch)
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
    """The class of every sample once the shift is corrected, and the rows that are believed."""
    settings = sketch.settings
    believed = settings.believed_alone if alone else settings.believed_beside_new
    errors = sketch.detector.fre(corrected)
    limit = sketch.detector.fre_calibration.t_inner * wider(sketch, corrected)
    rows, _ = sketch.clearest(errors, believed)
    return errors.argmin(axis=1), rows[errors.min(axis=1)[rows] <= limit]


def _by_neighbours(
    detector: Detector, pool: Floats, known: Mapping[int, int], new: tuple[int, ...]
) -> tuple[Ints, Ints]:
    """The same from the answers alone, which spread over the pool's graph of neighbours.

    Noise takes images of every class to one place, where no common shift brings them back from.
    The surer half is believed, and nothing that is nearer to what people called new.
    """
    settings, count = detector.settings.graph, len(detector.classes)
    references = detector.references
    space = PoolSpace.of(pool, references.features, references.classes, settings)
    graph = PoolGraph.of(space.place(pool), settings)
    told = {**known, **dict.fromkeys(new, count)}
    nodes, classes = np.array(list(told), np.intp), np.array(list(told.values()), np.intp)
    shares = graph.propagated(nodes, classes, count + bool(new), settings)
    nearest = shares.argmax(axis=1)
    sure = shares.max(axis=1)
    rows = np.flatnonzero((nearest < count) & (sure >= np.median(sure)))
    return nearest, rows


def adapted(detector: Detector, settings: DriftSettings = DRIFT_DEFAULTS) -> dict[str, float]:
    """By class id, how far its furthest mode lies from what was fitted, as a share of the bound.

    Only classes that have learnt a shift are named; at 1 a class follows no further. It is a
    function of the detector alone, so that a roll-back takes it back as well.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(m, 1, size=(80, 40)) for m in (0, 9, 18)]).astype("f")
    >>> before = Detector.fit(x, ["a"] * 80 + ["b"] * 80 + ["c"] * 80)
    >>> dirty = x + np.array([2, -2] * 20, dtype="f")
    >>> loose = DriftSettings(furthest=5.0)
    >>> after = adapt(Sketch.of(before, loose), dirty, {0: 0, 100: 1, 200: 2}).detector
    >>> adapted(before), [0 < share < 1 for share in adapted(after, loose).values()]
    ({}, [True, True, True])
    """
    moved = [known for known in detector.classes if _learnt_modes(known)]
    if not moved:
        return {}
    directions = Sketch.of(detector, settings).directions
    return {
        known.id: max(_distance(directions, known, mode) for mode in _learnt_modes(known))
        / settings.furthest
        for known in moved
    }


def _mode(
    known: KnownClass, pool: Floats, members: Ints, shift: Floats, sketch: Sketch
) -> tuple[Subspace, Ints]:
    """The shifted mode of a class, and the samples that were held out from it.

    Its mean is drawn from the common shift to the samples' own mean as they become many. It
    keeps every direction of the first mode, in which the class goes on to vary, and takes on
    as many further ones as bring held-out samples back to the error that they had before.
    """
    first, settings = known.modes[0], sketch.settings
    most_kept = sketch.detector.settings.references_most
    held = members[: held_out(len(members), sketch.detector.settings)]
    fitted = members[len(held) :]
    own = len(fitted) / (len(fitted) + settings.own_mean)
    mean: Floats = first.mean + shift
    if len(fitted):
        mean = ((1 - own) * mean + own * pool[fitted].mean(axis=0)).astype(np.float32)
    bare = replace(first, mean=mean, count=len(fitted))
    if len(fitted) < settings.own_least or not len(known.references) or not len(held):
        return bare, held[:most_kept]
    goal = float(known.own.mean())
    further = _further(bare, pool[fitted])
    most = min(len(further), int(settings.further_share * len(fitted)), settings.further_most)
    residual = _residual(bare, pool[held])
    energy = np.einsum("ij,ij->i", residual, residual).mean()
    saved = np.cumsum(((residual @ further[:most].T) ** 2).mean(axis=0))
    enough = int(np.searchsorted(saved, energy - goal)) + 1 if energy > goal else 0
    basis = np.concatenate([first.basis, further[: min(enough, most)]])
    return replace(bare, basis=np.ascontiguousarray(basis)), held[:most_kept]


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


def _with_mode(known: KnownClass, mode: Subspace, held: Floats, sketch: Sketch) -> KnownClass:
    """References of what was fitted, which come first, and of the latest shifts."""
    most = sketch.detector.settings.references_most
    references = np.concatenate([known.references, held])
    own = np.concatenate([known.own, mode.fre(held)])
    excess = max(0, len(references) - (1 + sketch.settings.modes_most) * most)
    kept = np.r_[: min(most, len(references)), min(most, len(references)) + excess : len(own)]
    said = np.concatenate([known.said, np.zeros(len(held), dtype=bool)])
    return replace(
        known,
        references=references[kept],
        own=own[kept],
        said=said[kept],
        held=known.held + len(held),
    )


def _kept(known: KnownClass, settings: DriftSettings) -> list[Subspace]:
    """The modes that stay beside a further one: all but the oldest learnt ones."""
    learnt = [id(mode) for mode in _learnt_modes(known)]
    gone = learnt[: max(0, len(learnt) - (settings.modes_most - 1))]
    return [mode for mode in known.modes if id(mode) not in gone]


def _learnt_modes(known: KnownClass) -> list[Subspace]:
    """The modes that were learnt from shifts; the parts of a merged class are none of them.

    A learnt mode begins with the directions of the first mode, number for number.
    """
    first, *later = known.modes
    count = first.components
    return [mode for mode in later if np.array_equal(mode.basis[:count], first.basis)]
