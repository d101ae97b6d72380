"""How far the known classes of a batch have moved, in a few numbers that add up.

A shift moves every known class the same way; a new class is taken for its nearest known ones and
moves only those, each in a direction of its own. So samples are compared with the held-out
samples of the class that they are taken for, in the directions in which classes vary, and their
mean displacement is kept for several groups of classes: what the groups have in common is shift.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.source_state import Displacement
from monitor.novelty.subspace import References, principal

# The origin of classes that a detector was fitted on.
_FOUNDING = "fit"
# Keeps the logarithm of an exact reconstruction finite.
_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Coherence:
    """What the groups have in common.

    ``evidence`` is about standard normal, or less, while nothing moves, whatever the directions
    and counts. ``strength`` is the length of the common displacement, where one is the spread
    within a class; it does not depend on how many samples there were. ``across`` is the
    evidence of pairs of different classes alone: a new class moves both halves of the classes that
    it is taken for, and where few images are seen, there may be no other pairs.
    """

    evidence: float
    strength: float
    across: float


def coherence(
    moved: Displacement,
    baseline: np.ndarray | None = None,
    settings: DriftSettings = DRIFT_DEFAULTS,
) -> Coherence:
    """The median over pairs of groups of the product of their displacements.

    A product of two means with independent noise is zero on average where nothing moved, so no
    noise has to be subtracted; and the median does not care about the few pairs that a new class
    touches.

    >>> still = np.random.default_rng(0).normal(size=(6, 64)) * 10**0.5
    >>> bool(coherence(Displacement(still, np.full(6, 10.0))).evidence < 2)
    True
    >>> coherence(Displacement(still + 10, np.full(6, 10.0))).evidence > 20
    True
    """
    present = np.flatnonzero(moved.counts >= settings.group_least)
    # No pair of groups to compare, or classes that never vary: nothing can be said to move.
    if len(present) < 2 or not moved.sums.shape[1]:
        return Coherence(0.0, 0.0, 0.0)
    means = moved.means if baseline is None else moved.means - baseline
    first, second = np.triu_indices(len(present), k=1)
    products = means[present] @ means[present].T
    counts = moved.counts[present]
    noise = np.sqrt(means.shape[1] / (counts[first] * counts[second]))
    common = products[first, second]
    strength = np.sqrt(max(float(np.median(common)), 0.0) / means.shape[1])
    standard = common / noise
    classes = present // settings.halves
    apart = standard[classes[first] != classes[second]]
    across = float(np.median(apart)) if len(apart) else 0.0
    return Coherence(float(np.median(standard)), float(strength), across)


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """The directions in which known classes vary, and where held-out samples lie in them.

    A function of the detector alone: made once for each version, it takes a tenth of a second
    for a few classes and a second for hundreds. Only the classes that a detector was fitted on
    are looked at, so that discoveries leave the measure, and what was learnt by it, as it was;
    ``key`` names the measure.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(c, 1, size=(60, 40)) for c in (0, 6, 12)]).astype("f")
    >>> sketch = Sketch.of(Detector.fit(x, ["a"] * 60 + ["b"] * 60 + ["c"] * 60))
    >>> shifted = x + np.array([2, -2] * 20, dtype="f")
    >>> still, moved = (coherence(sketch.displacement(f)).strength for f in (x, shifted))
    >>> still < 0.3 < moved
    True
    """

    detector: Detector
    directions: Floats
    means: Floats
    rest: Floats
    key: str
    settings: DriftSettings = DRIFT_DEFAULTS

    @classmethod
    def of(cls, detector: Detector, settings: DriftSettings = DRIFT_DEFAULTS) -> Sketch:
        """From the references of the classes that the detector was fitted on."""
        founders = _founders(detector)
        means = np.stack([c.modes[0].mean for c in detector.classes])
        known = detector.references.taken(
            np.flatnonzero(np.isin(detector.references.classes, founders))
        )
        first = _of_first_modes(detector, known)
        within = (known.features[first] - means[known.classes[first]]).astype(np.float32)
        axes, energies, _ = principal(within, np.zeros(within.shape[1]))
        axes = axes[: settings.directions]
        energies = energies[: settings.directions] / max(len(within), 1)
        # Held-out samples that are all alike have no spread to measure by.
        scale = np.sqrt(energies + settings.shrinkage * energies.mean()) if len(axes) else energies
        directions = np.ascontiguousarray((axes / scale[:, None]).T, dtype=np.float32)
        still = np.zeros((len(means), len(axes)), np.float32)
        bare = cls(detector, directions, means, still, "", settings)
        rows, classes = bare.clearest(detector.reference_fre())
        seen = detector.references.features[rows]
        sums = np.zeros((len(means), len(axes)))
        np.add.at(sums, classes, (seen - means[classes]) @ directions)
        counts = np.bincount(classes, minlength=len(means))
        rest = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        key = _key(detector, founders, settings)
        return cls(detector, directions, means, rest, key, settings)

    def displacement(self, features: Floats) -> Displacement:
        """Of one batch of one source; batches of the same source may be added up."""
        [found] = self.displacements(features, np.zeros(len(features), np.intp), 1)
        return found

    def displacements(self, features: Floats, owners: Ints, count: int) -> list[Displacement]:
        """Of each of ``count`` sources in a batch; ``owners`` has the number of a row's source.

        All of them at once: a batch may show thousands of sources.
        """
        rows, classes = self.clearest(self.detector.fre(features), owners=owners)
        placed = (features[rows] - self.means[classes]) @ self.directions - self.rest[classes]
        # Halves by place in the class's own order: as good as chance, and repeatable.
        groups, parts = self.settings.groups, self.settings.halves
        halves = _places(owners[rows] * len(self.means) + classes) % parts
        width = groups * parts
        cell = owners[rows] * width + (classes % groups) * parts + halves
        sums = np.zeros((count * width, placed.shape[1]))
        np.add.at(sums, cell, placed)
        counts = np.bincount(cell, minlength=len(sums)).astype(float)
        each = zip(sums.reshape(count, width, -1), counts.reshape(count, width), strict=True)
        return [Displacement(*one) for one in each]

    def shift(self, features: Floats) -> Floats:
        """The mean displacement itself, in feature space.

        Classes weigh by the root of their size, between one vote a class and one a sample: small
        classes are noisy, large ones must not decide alone.
        """
        known = self.detector.references.features
        here = self.clearest(self.detector.fre(features))
        there = self.clearest(self.detector.reference_fre())
        moved, weights = [], []
        for i in np.unique(here[1]):
            mine, held = here[0][here[1] == i], there[0][there[1] == i]
            if min(len(mine), len(held)) >= self.settings.group_least:
                moved.append(features[mine].mean(axis=0) - known[held].mean(axis=0))
                weights.append(np.sqrt(len(mine)))
        if not moved:
            return np.zeros(features.shape[1], dtype=np.float32)
        return np.average(np.stack(moved), axis=0, weights=weights).astype(np.float32)

    def clearest(
        self, errors: Floats, share: float | None = None, *, owners: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """Rows that lie most clearly in the founding class they are taken for, by class.

        ``errors`` has the FRE of each row to each class. With ``owners``, the numbers of the
        rows' sources, they are chosen and ordered within each source.
        """
        share = self.settings.clearest if share is None else share
        nearest = errors.argmin(axis=1)
        margin = -errors[:, 0]
        if errors.shape[1] > 1:
            best = np.log(np.maximum(np.partition(errors, 1, axis=1)[:, :2], _TINY))
            margin = best[:, 1] - best[:, 0]
        owned = np.zeros(len(errors), np.intp) if owners is None else owners
        founded = np.flatnonzero(np.isin(nearest, _founders(self.detector)))
        cell = owned[founded] * errors.shape[1] + nearest[founded]
        order = np.lexsort((-margin[founded], cell))
        sizes = np.bincount(cell)
        kept = _places(cell[order]) < np.ceil(share * sizes[cell[order]])
        # Back in the order of the batch, so that no half is clearer than the other.
        chosen = np.sort(order[kept])
        chosen = founded[chosen[np.argsort(cell[chosen], kind="stable")]]
        return chosen, nearest[chosen]


def _places(cells: Ints) -> Ints:
    """The place of each row among those of its cell, where rows of a cell stand together.

    >>> _places(np.array([4, 4, 7, 9, 9, 9])).tolist()
    [0, 1, 0, 0, 1, 2]
    """
    begins = np.ones(len(cells), dtype=bool)
    begins[1:] = cells[1:] != cells[:-1]
    starts = np.flatnonzero(begins)
    places: Ints = np.arange(len(cells)) - np.repeat(starts, np.diff([*starts, len(cells)]))
    return places


def _founders(detector: Detector) -> Ints:
    """Positions of the classes that were fitted; of all, if none of them is left."""
    fitted = [i for i, c in enumerate(detector.classes) if c.origin == _FOUNDING]
    return np.array(fitted or range(len(detector.classes)), dtype=np.intp)


def _of_first_modes(detector: Detector, known: References) -> Ints:
    """Rows of references that lie nearest to the first mode of their class.

    The others are parts of a merged class or shifts that were learnt. With them the unit would
    grow with every shift, and the bound on learning, measured in it, would move along.
    """
    chosen = np.ones(len(known), dtype=bool)
    for i in np.unique(known.classes):
        modes = detector.classes[i].modes
        rows = np.flatnonzero(known.classes == i)
        if len(modes) > 1:
            errors = np.stack([mode.fre(known.features[rows]) for mode in modes])
            chosen[rows] = errors.argmin(axis=0) == 0
    return np.flatnonzero(chosen) if chosen.any() else np.arange(len(known))


def _key(detector: Detector, founders: Ints, settings: DriftSettings) -> str:
    measure = (settings.directions, settings.shrinkage, settings.clearest)
    digest = hashlib.sha256(repr((*measure, settings.groups, settings.halves)).encode())
    for i in founders:
        known = detector.classes[i]
        digest.update(f"{i} {known.id} {len(known.modes)}".encode())
        digest.update(known.modes[0].mean.tobytes())
        digest.update(known.references.tobytes())
    return digest.hexdigest()[:16]
