"""What labelled images say against their labels: look-alike classes, and single images.

Judged by references, whose error to their own class comes from a fit without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector

TINY = 30
"""Held-out images below which a rate says little: of 29, one more is 3.4%."""

ALIKE_FROM = 0.2
"""Share of two classes' images that are nearer to the other one, from which they look alike."""

DOUBT_BELOW = 0.5
"""An image whose squared error to another class is below this share of that to its own is doubted:
images of a class that is only varied lie far from every other class, too."""

DOUBTS_MOST = 20
"""A list that a person looks through; more means that something else is wrong."""


@dataclass(frozen=True, slots=True)
class LookAlikes:
    """Two classes that the detector cannot well tell apart."""

    names: tuple[str, str]
    swapped: int
    """Images of either that are nearer to the other."""
    of: int

    def __str__(self) -> str:
        return (
            f"{self.names[0]} and {self.names[1]} look alike to this backbone: "
            f"{self.swapped / self.of:.0%} of {self.of} images are nearer to the other class; make "
            "them one class, or choose another backbone"
        )


@dataclass(frozen=True, slots=True)
class DoubtedLabel:
    """A labelled image that looks like one of another class."""

    image_id: str
    label: str
    resembles: str

    def __str__(self) -> str:
        return f"{self.image_id} is labelled {self.label} and looks like {self.resembles}"


def look_alikes(detector: Detector) -> tuple[LookAlikes, ...]:
    """Pairs of classes whose images are often nearer to the other, the worst first."""
    references = detector.references
    if len(detector.classes) < 2 or not len(references):
        return ()
    found = []
    for a in range(len(detector.classes)):
        for b in range(a + 1, len(detector.classes)):
            rows = np.isin(references.classes, (a, b))
            errors = references.errors[rows][:, (a, b)]
            swapped = int(((errors[:, 1] < errors[:, 0]) == (references.classes[rows] == a)).sum())
            if rows.sum() and swapped / rows.sum() >= ALIKE_FROM:
                names = (detector.classes[a].name, detector.classes[b].name)
                found.append(LookAlikes(names, swapped, int(rows.sum())))
    return tuple(sorted(found, key=lambda pair: -pair.swapped / pair.of))


def doubted_labels(
    detector: Detector, features: Floats, image_ids: Sequence[str]
) -> tuple[DoubtedLabel, ...]:
    """Images that lie far from their own class and near another, the most certain first.

    Classes that look alike are left out: there it is the classes that are in doubt.
    """
    references = detector.references
    if len(detector.classes) < 2 or not len(references):
        return ()
    alike = {frozenset(pair.names) for pair in look_alikes(detector)}
    names = [known.name for known in detector.classes]
    rows = np.arange(len(references))
    own = references.errors[rows, references.classes]
    others = references.errors.copy()
    others[rows, references.classes] = np.inf
    nearest = others.argmin(axis=1)
    share = others[rows, nearest] / np.maximum(own, np.finfo(np.float64).tiny)
    # Features are what a reference keeps of its image, so they lead back to its id.
    ids = {
        row.astype(np.float32).tobytes(): one for row, one in zip(features, image_ids, strict=True)
    }
    found: list[DoubtedLabel] = []
    for row in np.argsort(share, kind="stable"):
        if share[row] >= DOUBT_BELOW or len(found) == DOUBTS_MOST:
            break
        label, other = names[references.classes[row]], names[nearest[row]]
        image = ids.get(references.features[row].astype(np.float32).tobytes())
        if image is not None and frozenset((label, other)) not in alike:
            found.append(DoubtedLabel(image, label, other))
    return tuple(found)
