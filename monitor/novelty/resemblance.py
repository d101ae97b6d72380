"""Which known class a sample resembles most, fair to classes of which little has been seen.

The least FRE does not answer that. A class of five hundred images has a rich subspace, which
reconstructs most things tolerably, strangers too; a class learnt from fifty has a poor one,
which reconstructs even its own next image badly. By FRE alone that image then goes to the rich
class. So two opinions are asked, each in units of how much it tells classes apart:

* the FRE to a class over what strangers, held-out samples of the other classes, have there;
* the distance to the mean of a class, in the space whitened by the spread within all classes,
  which a small class has in common with the large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Floats, Ints
from monitor.novelty.subspace import principal

# Held-out samples that are asked in all: the averages settle long before.
_ASKED = 2000
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Held-out samples, the class of each by position, and the FRE of each to every class."""

    features: Floats
    classes: Ints
    errors: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Resemblance:
    """Turns the errors of a batch and its features into the nearest class of each row.

    >>> held = HeldOut(np.eye(2, 3, dtype="f"), np.arange(2), np.array([[1, 3], [9, 1]], "f"))
    >>> means = [np.array([1, 0, 0], "f"), np.array([0, 1, 0], "f")]
    >>> by = Resemblance.of(means, np.arange(2), held, whitening=0.6)
    >>> by.nearest(np.array([[0.9, 0, 0]], "f"), np.array([[5, 2]], "f")).tolist()
    [0]
    """

    strangers: Floats
    centre: Floats
    directions: Floats
    offsets: Floats
    starts: Ints

    @classmethod
    def of(
        cls, means: Sequence[Floats], starts: Ints, held: HeldOut, whitening: float
    ) -> Resemblance:
        """``means`` of all modes, ``starts`` where the modes of each class begin."""
        count = len(starts)
        strangers = _of_strangers(held, count)
        places = np.stack(means).astype(np.float64)
        centre = places.mean(axis=0)
        places -= centre
        within = _within(held, places, centre, starts)
        directions = _whitened_twice(places, within, whitening)
        offsets = -0.5 * np.einsum("ij,ij->i", directions, places)
        raw = cls(
            strangers,
            centre.astype(np.float32),
            directions.T.astype(np.float32),
            offsets.astype(np.float32),
            starts,
        )
        by_error = max(float((held.errors / strangers).std(axis=1).mean()), _TINY)
        by_place = max(float(raw._likeness(held.features).std(axis=1).mean()), _TINY)
        return cls(
            raw.strangers * np.float32(by_error),
            raw.centre,
            raw.directions / np.float32(by_place),
            raw.offsets / np.float32(by_place),
            starts,
        )

    def nearest(self, features: Floats, errors: Floats) -> Ints:
        """The position of the class that each row resembles most."""
        found: Ints = (errors / self.strangers - self._likeness(features)).argmin(axis=1)
        return found

    def _likeness(self, features: Floats) -> Floats:
        """Minus half the whitened squared distance to each class, up to what all have alike."""
        likeness: Floats = ((features - self.centre) @ self.directions).astype(np.float32)
        likeness += self.offsets
        if len(self.starts) == likeness.shape[1]:
            return likeness
        most: Floats = np.maximum.reduceat(likeness, self.starts, axis=1)
        return most


def a_few(classes: Ints) -> Ints:
    """Positions of as many held-out samples of each class as need to be asked."""
    distinct = np.unique(classes)
    most = max(_ASKED // max(len(distinct), 1), 1)
    return np.concatenate([np.flatnonzero(classes == i)[:most] for i in distinct])


def _of_strangers(held: HeldOut, count: int) -> Floats:
    """For every class the mean error of the others' samples there, each other class alike."""
    present = np.unique(held.classes)
    table = np.stack([held.errors[held.classes == i].mean(axis=0) for i in present])
    is_other = present[:, None] != np.arange(count)
    others = is_other.sum(axis=0)
    sums = np.where(is_other, table, 0.0).sum(axis=0)
    usual = float(table.mean())
    found = np.where(others > 0, sums / np.maximum(others, 1), usual)
    return np.maximum(found, max(usual, 1.0) * _TINY).astype(np.float32)


def _within(held: HeldOut, places: np.ndarray, centre: np.ndarray, starts: Ints) -> Floats:
    """Held-out samples as seen from the nearest mode of their class."""
    within: Floats = (held.features - centre).astype(np.float32)
    ends = [*starts[1:].tolist(), len(places)]
    for position in np.unique(held.classes):
        mine = held.classes == position
        homes = places[starts[position] : ends[position]].astype(np.float32)
        away = ((within[mine][:, None] - homes) ** 2).sum(axis=2)
        within[mine] -= homes[away.argmin(axis=1)]
    return within


def _whitened_twice(places: np.ndarray, within: Floats, whitening: float) -> np.ndarray:
    """C⁻¹ applied to every place, C being the spread within classes, shrunk to a sphere."""
    axes, energies, total = principal(within, np.zeros(within.shape[1]))
    base = whitening * (total or 1.0) / within.shape[1]
    gains = 1 / ((1 - whitening) * energies + base) - 1 / base
    found: np.ndarray = places / base + ((places @ axes.T) * gains) @ axes
    return found
