"""What is known: an immutable set of classes, their subspaces, and a calibrated T_inner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from monitor.novelty.arrays import Bools, Floats, Ints, as_features
from monitor.novelty.bank import SubspaceBank
from monitor.novelty.errors import (
    ClassTooSmall,
    DuplicateClass,
    FingerprintMismatch,
    MissingLabels,
    UnknownClass,
)
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.resemblance import HeldOut, Resemblance, a_few
from monitor.novelty.settings import Settings
from monitor.novelty.subspace import Subspace


@dataclass(frozen=True, slots=True, eq=False)
class KnownClass:
    """A class that is no longer news.

    ``id`` never changes and is never given to another class; ``name`` may. A class has one
    subspace for each of its modes (its look by day and by night, or the parts that a merge
    brought together): a sample's FRE to the class is the least over them. ``reserve`` holds
    samples that no subspace was fitted on, for calibration and as memory of the class.
    """

    id: str
    name: str
    modes: tuple[Subspace, ...]
    reserve: Floats
    origin: str = "fit"
    human: int = 0
    pseudo: int = 0

    @property
    def count(self) -> int:
        """Samples behind this class: fitted on and held out."""
        return sum(mode.count for mode in self.modes) + len(self.reserve)

    @property
    def components(self) -> int:
        return sum(mode.components for mode in self.modes)

    @classmethod
    def fit(
        cls,
        id: str,
        name: str,
        features: Floats,
        *,
        settings: Settings,
        rng: np.random.Generator,
        origin: str = "fit",
        human: int = 0,
        pseudo: int = 0,
    ) -> KnownClass:
        """Fit a subspace on most of the samples and hold the rest out."""
        order = rng.permutation(len(features))
        held = held_out(len(features), settings)
        return cls(
            id=id,
            name=name,
            modes=(Subspace.fit(features[order[held:]], variance=settings.variance),),
            reserve=np.ascontiguousarray(features[order[: min(held, settings.reserve_most)]]),
            origin=origin,
            human=human,
            pseudo=pseudo,
        )


def held_out(count: int, settings: Settings) -> int:
    """How many of ``count`` samples of a class are held out; none while it is tiny.

    At least three where they can be spared: a class without any would be unknown to whatever
    compares a pool with what is held out.
    """
    return min(max(round(count * settings.validation), 3), max(count - 3, 0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where T_inner lies and how often held-out known samples exceed it all the same."""

    t_inner: float
    exceedance: float
    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, scores: Floats, settings: Settings) -> Calibration:
        """Mean plus so many standard deviations of the scores of held-out known samples."""
        values = np.asarray(scores, dtype=np.float64)
        mean, std = float(values.mean()), float(values.std())
        t_inner = mean + settings.deviations * std
        return cls(t_inner, float((values > t_inner).mean()), mean, std, len(values))


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One batch, scored: S⁰, S⁰ over T_inner, the verdict, and the nearest known class.

    The nearest class is the one that a sample resembles most, which is not always the one whose
    FRE is least: see :mod:`monitor.novelty.resemblance`.
    """

    score: Floats
    ratio: Floats
    novel: Bools
    nearest: Ints


@dataclass(frozen=True, eq=False)
class Detector:
    """Immutable: every change makes another detector and leaves this one as it was.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(c, 1, size=(40, 6)) for c in (0, 8)]).astype("f")
    >>> detector = Detector.fit(x, ["water"] * 40 + ["forest"] * 40)
    >>> [c.name for c in detector.classes]
    ['forest', 'water']
    >>> detector.score(np.full((1, 6), 50.0)).novel.tolist()
    [True]
    """

    classes: tuple[KnownClass, ...]
    calibration: Calibration
    fingerprint: Fingerprint
    settings: Settings

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: Sequence[str],
        *,
        fingerprint: Fingerprint | None = None,
        settings: Settings | None = None,
        seed: int = 0,
    ) -> Detector:
        """Learn the initial classes from labelled features. Ids follow the sorted names."""
        x = as_features(features)
        names = as_labels(labels, len(x))
        settings = settings or Settings.preset("robust")
        fingerprint = fingerprint or Fingerprint.of_features(x.shape[1])
        if fingerprint.dimension != x.shape[1]:
            raise FingerprintMismatch(
                f"the backbone gives {fingerprint.dimension} features, these are {x.shape[1]}"
            )
        distinct, counts = np.unique(names, return_counts=True)
        small = [f"{n} ({c})" for n, c in zip(distinct, counts, strict=True) if c < settings.least]
        if small:
            raise ClassTooSmall(
                f"too few samples to fit and to hold some out for T_inner: {', '.join(small)}; "
                f"give at least {settings.least} images of each class, or leave the class out "
                "and let it be discovered"
            )
        rng = np.random.default_rng(seed)
        classes = tuple(
            KnownClass.fit(f"c{i}", str(name), x[names == name], settings=settings, rng=rng)
            for i, name in enumerate(distinct, start=1)
        )
        return cls.of(classes, fingerprint=fingerprint, settings=settings)

    @classmethod
    def of(
        cls, classes: Sequence[KnownClass], *, fingerprint: Fingerprint, settings: Settings
    ) -> Detector:
        """A detector of these classes, calibrated on what they hold out."""
        for what in ("id", "name"):
            values = [getattr(c, what) for c in classes]
            twice = sorted({v for v in values if values.count(v) > 1})
            if twice:
                raise DuplicateClass(f"more than one class has the {what} {', '.join(twice)}")
        reserve = [c.reserve for c in classes if len(c.reserve)]
        if not reserve:
            raise ClassTooSmall("no class holds samples out: T_inner cannot be calibrated")
        raw = cls(tuple(classes), Calibration(0.0, 0.0, 0.0, 0.0, 0), fingerprint, settings)
        scores = raw.s0(np.concatenate(reserve))
        return replace(raw, calibration=Calibration.of(scores, settings))

    @cached_property
    def _bank(self) -> SubspaceBank:
        return SubspaceBank([mode for c in self.classes for mode in c.modes])

    @cached_property
    def _first_modes(self) -> Ints:
        return np.cumsum([0] + [len(c.modes) for c in self.classes[:-1]]).astype(np.intp)

    @cached_property
    def _resemblance(self) -> Resemblance:
        features, index = self.reserve()
        asked = a_few(index)
        held = HeldOut(features[asked], index[asked], self._squared_fre(features[asked]))
        means = [mode.mean for c in self.classes for mode in c.modes]
        return Resemblance.of(means, self._first_modes, held, self.settings.whitening)

    def _nearest(self, features: Floats, errors: Floats) -> Ints:
        if self.settings.nearest == "fre" or len(self.classes) == 1:
            least: Ints = errors.argmin(axis=1)
            return least
        return self._resemblance.nearest(features, errors)

    @property
    def dimension(self) -> int:
        return self.fingerprint.dimension

    def fre(self, features: ArrayLike) -> Floats:
        """Error of every row against every class, in the units of the settings."""
        errors = self._squared_fre(features)
        return errors if self.settings.squared else np.sqrt(errors)

    def _squared_fre(self, features: ArrayLike) -> Floats:
        errors = self._bank.fre(features)
        if len(self._first_modes) == len(self._bank):
            return errors
        least: Floats = np.minimum.reduceat(errors, self._first_modes, axis=1)
        return least

    def s0(self, features: ArrayLike) -> Floats:
        """S⁰: the least FRE over the known classes."""
        least: Floats = self.fre(features).min(axis=1)
        return least

    def score(self, features: ArrayLike) -> Scores:
        """Judge a batch. The verdict on a row does not depend on the rows beside it."""
        x = as_features(features, dimension=self.dimension)
        errors = self._squared_fre(x)
        score: Floats = errors.min(axis=1)
        if not self.settings.squared:
            score = np.sqrt(score)
        ratio = (score / np.float32(self.calibration.t_inner)).astype(np.float32)
        return Scores(score, ratio, score > self.calibration.t_inner, self._nearest(x, errors))

    def reserve(self) -> tuple[Floats, Ints]:
        """Held-out samples of all classes and the position of each one's class."""
        index = np.repeat(np.arange(len(self.classes)), [len(c.reserve) for c in self.classes])
        return np.concatenate([c.reserve for c in self.classes]), index

    def find(self, id_or_name: str) -> KnownClass:
        """The class of this id or, failing that, of this name."""
        for key in ("id", "name"):
            for known in self.classes:
                if getattr(known, key) == id_or_name:
                    return known
        raise UnknownClass(
            f"no class {id_or_name!r}; known are {', '.join(c.name for c in self.classes)}"
        )

    def with_classes(self, classes: Sequence[KnownClass]) -> Detector:
        """These classes besides the ones known; no FRE of a class already known changes."""
        return self._of([*self.classes, *classes])

    def without_class(self, id: str) -> Detector:
        """Forget a class: what looks like it will be news again."""
        gone = self.find(id)
        return self._of([c for c in self.classes if c.id != gone.id])

    def merged(self, into: str, others: Sequence[str]) -> Detector:
        """One class out of several; it keeps the id and name of ``into`` and all their modes."""
        target = self.find(into)
        parts = [target, *(self.find(o) for o in others if self.find(o).id != target.id)]
        whole = replace(
            target,
            modes=tuple(mode for part in parts for mode in part.modes),
            reserve=np.concatenate([part.reserve for part in parts]),
            human=sum(part.human for part in parts),
            pseudo=sum(part.pseudo for part in parts),
        )
        gone = {part.id for part in parts[1:]}
        return self._of(
            [whole if c.id == target.id else c for c in self.classes if c.id not in gone]
        )

    def renamed(self, id: str, name: str) -> Detector:
        """The same class under another name."""
        target = self.find(id)
        return self._of([replace(c, name=name) if c.id == target.id else c for c in self.classes])

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """See :mod:`monitor.novelty.state`."""
        from monitor.novelty.state import to_state

        return to_state(self)

    @classmethod
    def from_state(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Detector:
        """See :mod:`monitor.novelty.state`."""
        from monitor.novelty.state import from_state

        return from_state(arrays, meta)

    def _of(self, classes: Sequence[KnownClass]) -> Detector:
        return Detector.of(classes, fingerprint=self.fingerprint, settings=self.settings)


def as_labels(labels: Sequence[str | None], count: int) -> np.ndarray:
    """One non-empty name per row, or an error that says which is missing."""
    names = ["" if label is None else str(label).strip() for label in labels]
    if len(names) != count:
        raise MissingLabels(f"{count} rows of features but {len(names)} labels")
    empty = [i for i, name in enumerate(names) if not name]
    if empty:
        raise MissingLabels(
            f"row {empty[0]} has no label ({len(empty)} such rows in all); label or drop them"
        )
    if not names:
        raise MissingLabels("no labelled rows at all")
    return np.asarray(names)
