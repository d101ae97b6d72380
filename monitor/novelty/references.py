"""References: samples of known classes as they look to a detector that has not seen them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Samples of known classes, the class of each, and its cross-fitted errors.

    ``errors`` has the squared FRE of every sample to every class, to its own as a subspace says
    that was fitted without it.
    """

    features: Floats
    classes: Ints
    errors: Floats

    def __len__(self) -> int:
        return len(self.features)

    def taken(self, rows: Ints) -> References:
        """These rows alone."""
        return References(self.features[rows], self.classes[rows], self.errors[rows])

    def some(self, most: int) -> Ints:
        """At most about ``most`` rows, as many of each class, the first ones of each."""
        if len(self) <= most:
            return np.arange(len(self))
        distinct = np.unique(self.classes)
        each = max(most // max(len(distinct), 1), 1)
        return np.concatenate([np.flatnonzero(self.classes == i)[:each] for i in distinct])


@dataclass(frozen=True, slots=True, eq=False)
class JudgedReferences:
    """``rows`` among the references, their scores and the classes that they resemble."""

    rows: Ints
    score: Floats
    nearest: Ints
