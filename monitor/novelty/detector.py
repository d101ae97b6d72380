"""What is known: an immutable set of classes, their subspaces, and a calibrated T_inner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.errors import (
    ClassTooSmall,
    DuplicateClass,
    FingerprintMismatch,
    MissingLabels,
    UnknownClass,
)
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.robust.single_image_score import ModeMeans, Opinions
from monitor.novelty.subspace import (
    BankScreen,
    JudgedReferences,
    References,
    Subspace,
    SubspaceBank,
    as_features,
)


@dataclass(frozen=True, slots=True, eq=False)
class KnownClass:
    """A class that the detector knows.

    ``id`` never changes and is never given to another class; ``name`` may. A class has one
    subspace for each of its modes (its look by day and by night, or the parts that a merge
    brought together): a sample's FRE to the class is the least over them. ``references`` are
    samples of the class, for calibration and as its memory; ``own`` is the squared FRE of each
    to its own class, by a subspace that was fitted without it; ``said`` is true for those that a
    person labelled. ``held`` counts samples that no mode was fitted on. A class that is not
    ``confirmed`` rests on too few answers: what resembles it is named, and still novel.
    """

    id: str
    name: str
    modes: tuple[Subspace, ...]
    references: Floats
    own: Floats
    said: Bools
    held: int = 0
    origin: str = "fit"
    human: int = 0
    pseudo: int = 0
    confirmed: bool = True

    @property
    def count(self) -> int:
        """Samples behind this class."""
        return sum(mode.count for mode in self.modes) + self.held

    @property
    def components(self) -> int:
        """Directions of all modes."""
        return sum(mode.components for mode in self.modes)

    @classmethod
    def fit(
        cls,
        id: str,
        name: str,
        features: Floats,
        *,
        settings: MethodSettings,
        rng: np.random.Generator,
        origin: str = "fit",
        said: Bools | None = None,
        confirmed: bool = True,
    ) -> KnownClass:
        """Fit a subspace, and say what samples that it has not seen have there.

        ``said`` is true for samples that a person labelled; by default all of them. They come
        first among the references, so that none of them is ever left out for others.
        """
        by_people = np.ones(len(features), dtype=bool) if said is None else said
        order = rng.permutation(len(features))
        order = order[np.argsort(~by_people[order], kind="stable")]
        fitted = _cross_fitted if settings.folds else _held_out
        mode, references, own = fitted(features[order], settings)
        return cls(
            id=id,
            name=name,
            modes=(mode,),
            references=references,
            own=own,
            said=by_people[order][: len(references)],
            held=len(features) - mode.count,
            origin=origin,
            human=int(by_people.sum()) if origin != "fit" else 0,
            pseudo=int((~by_people).sum()),
            confirmed=confirmed,
        )


def _cross_fitted(features: Floats, settings: MethodSettings) -> tuple[Subspace, Floats, Floats]:
    """A subspace of all samples; errors of some, each by a subspace without its fold.

    With fewer than three samples nothing could be said of a fit without one of them.
    """
    whole = Subspace.fit(features, variance=settings.variance)
    count = min(len(features), settings.references_most) if len(features) > 2 else 0
    references = np.ascontiguousarray(features[:count])
    own = np.empty(count, np.float32)
    folds = min(settings.folds, count)
    for fold in range(folds):
        rows = np.arange(fold, count, folds)
        others = np.delete(features, rows, axis=0)
        own[rows] = Subspace.fit(others, variance=settings.variance).fre(references[rows])
    return whole, references, own


def _held_out(features: Floats, settings: MethodSettings) -> tuple[Subspace, Floats, Floats]:
    """A subspace of most samples, and the errors of the rest: the paper's way."""
    held = held_out(len(features), settings)
    mode = Subspace.fit(features[held:], variance=settings.variance)
    references = np.ascontiguousarray(features[: min(held, settings.references_most)])
    return mode, references, mode.fre(references)


def held_out(count: int, settings: MethodSettings) -> int:
    """How many of ``count`` samples of a class are held out; none while it is tiny."""
    least = settings.validation_least
    return min(max(round(count * settings.validation), least), max(count - least, 0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where T_inner lies, and how often known samples exceed it all the same.

    Known samples as they look to a detector that has not seen them.
    """

    t_inner: float
    exceedance: float
    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, scores: Floats, settings: MethodSettings) -> Calibration:
        """Mean plus so many standard deviations of the scores of known samples."""
        values = np.asarray(scores, dtype=np.float64)
        return cls._at(float(values.mean()) + settings.deviations * float(values.std()), values)

    @classmethod
    def at_rate(cls, scores: Floats, rate: float) -> Calibration:
        """What the next known sample exceeds with a probability of at most ``rate``."""
        values = np.asarray(scores, dtype=np.float64)
        rank = int(np.ceil((len(values) + 1) * (1 - rate)))
        return cls._at(float(np.sort(values)[min(rank, len(values)) - 1]), values)

    @classmethod
    def _at(cls, t_inner: float, values: np.ndarray) -> Calibration:
        above = float((values > t_inner).mean())
        return cls(t_inner, above, float(values.mean()), float(values.std()), len(values))


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One batch, scored: the score, the score over T_inner, the verdict, the nearest class.

    The nearest class is the one that a sample resembles most, which is not always the one whose
    FRE is least: see :mod:`monitor.novelty.robust.single_image_score`. ``p_known`` is the share of
    known samples of that class that look at least as unusual.
    """

    score: Floats
    ratio: Floats
    novel: Bools
    nearest: Ints
    p_known: Floats


@dataclass(frozen=True, eq=False)
class Detector:
    """Immutable: every change makes another detector and leaves this one as it was.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(c, 1, size=(40, 20)) for c in (0, 8)]).astype("f")
    >>> detector = Detector.fit(x, ["water"] * 40 + ["forest"] * 40)
    >>> [c.name for c in detector.classes]
    ['forest', 'water']
    >>> detector.score(np.full((1, 20), 50.0)).novel.tolist()
    [True]
    """

    classes: tuple[KnownClass, ...]
    fre_calibration: Calibration
    fingerprint: Fingerprint
    settings: MethodSettings
    saved: Opinions | None = None

    @classmethod
    def fit(
        cls,
        features: ArrayLike,
        labels: Sequence[str],
        *,
        fingerprint: Fingerprint | None = None,
        settings: MethodSettings | None = None,
        seed: int = 0,
    ) -> Detector:
        """Learn the initial classes from labelled features. Ids follow the sorted names."""
        x = as_features(features)
        names = as_labels(labels, len(x))
        settings = settings or RobustSettings()
        fingerprint = fingerprint or Fingerprint.of_features(x.shape[1])
        if fingerprint.dimension != x.shape[1]:
            raise FingerprintMismatch(
                f"the backbone gives {fingerprint.dimension} features, these are {x.shape[1]}"
            )
        distinct, counts = np.unique(names, return_counts=True)
        small = [f"{n} ({c})" for n, c in zip(distinct, counts, strict=True) if c < settings.least]
        if small:
            raise ClassTooSmall(
                f"too few samples to fit and to calibrate T_inner on: {', '.join(small)}; "
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
        cls, classes: Sequence[KnownClass], *, fingerprint: Fingerprint, settings: MethodSettings
    ) -> Detector:
        """A detector of these classes, calibrated on their references."""
        for what in ("id", "name"):
            values = [getattr(c, what) for c in classes]
            twice = sorted({v for v in values if values.count(v) > 1})
            if twice:
                raise DuplicateClass(f"more than one class has the {what} {', '.join(twice)}")
        if not any(len(c.references) for c in classes):
            raise ClassTooSmall("no class has samples to spare: T_inner cannot be calibrated")
        raw = cls(tuple(classes), Calibration(0.0, 0.0, 0.0, 0.0, 0), fingerprint, settings)
        scores = raw.reference_fre().min(axis=1)
        return replace(raw, fre_calibration=Calibration.of(scores, settings))

    @cached_property
    def _bank(self) -> SubspaceBank:
        return SubspaceBank([mode for c in self.classes for mode in c.modes])

    @cached_property
    def _first_modes(self) -> Ints:
        return np.cumsum([0] + [len(c.modes) for c in self.classes[:-1]]).astype(np.intp)

    @cached_property
    def references(self) -> References:
        """Samples of all classes, with errors that none of them has made smaller."""
        counts = [len(c.references) for c in self.classes]
        index = np.repeat(np.arange(len(self.classes)), counts)
        features = np.concatenate([c.references for c in self.classes])
        errors = self._squared_fre(features)
        errors[np.arange(len(index)), index] = np.concatenate([c.own for c in self.classes])
        return References(features, index, errors)

    def reference_fre(self) -> Floats:
        """Error of every reference against every class, in the units of the settings."""
        errors = self.references.errors
        return errors if self.settings.squared else np.sqrt(errors)

    @cached_property
    def opinions(self) -> Opinions | None:
        """What a verdict rests on in addition to FRE; None where FRE alone decides."""
        settings = self.settings
        if not isinstance(settings, RobustSettings) or not settings.opinions:
            return None
        if self.saved is not None:
            return self.saved
        modes = [mode for c in self.classes for mode in c.modes]
        means = ModeMeans(
            np.stack([mode.mean for mode in modes]),
            np.array([mode.count for mode in modes], dtype=np.intp),
            self._first_modes,
        )
        guessed = np.array([1 - c.said.mean() if len(c.said) else 0.0 for c in self.classes])
        return Opinions.of(means, self.references, settings, guessed, self._young)

    @cached_property
    def _young(self) -> Ints:
        """Classes that are asked about every sample, because little separates them yet.

        Unconfirmed ones are not: what resembles them is to stay novel.
        """
        settings = self.settings
        most = settings.mature if isinstance(settings, RobustSettings) else 0
        return np.array(
            [
                index
                for index, known in enumerate(self.classes)
                if known.origin != "fit" and known.confirmed and known.count < most
            ],
            dtype=np.intp,
        )

    @cached_property
    def calibration(self) -> Calibration:
        """Of the verdict; :attr:`fre_calibration` is that of S⁰, the least FRE."""
        settings = self.settings
        if self.opinions is None or not isinstance(settings, RobustSettings):
            return self.fre_calibration
        return Calibration.at_rate(self.opinions.usual, settings.false_novel)

    @property
    def dimension(self) -> int:
        """Of the features."""
        return self.fingerprint.dimension

    def checked(self, features: ArrayLike, what: str = "features") -> Floats:
        """A finite matrix of the detector's width, or an error that names the offending row."""
        return as_features(features, dimension=self.dimension, what=what)

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

    @cached_property
    def _screen(self) -> BankScreen | None:
        modes = [mode for c in self.classes for mode in c.modes]
        return BankScreen(modes) if BankScreen.pays(modes) else None

    def fre_of_contenders(
        self, x: Floats, rank: Callable[[Floats], Floats] | None = None
    ) -> Floats:
        """Squared FRE of every row to every class that can be the nearest.

        Exact wherever a class may have the least error of a row, or the least ``rank``, which
        grows with the error, and for every young class. Where many classes are known, the others
        have a lower bound of it that rules them out (see
        :class:`~monitor.novelty.subspace.BankScreen`).
        """
        if self._screen is None:
            return self._squared_fre(x)
        lower, upper = self._screen.bounds(x)
        if len(self._first_modes) < lower.shape[1]:
            lower = np.minimum.reduceat(lower, self._first_modes, axis=1)
            upper = np.minimum.reduceat(upper, self._first_modes, axis=1)
        ranks: list[Callable[[Floats], Floats]] = [np.asarray, *([rank] if rank else [])]
        # The likeliest of each row first: what is exact rules out more than a bound does.
        exact = np.zeros(lower.shape, dtype=bool)
        for of in ranks:
            exact[np.arange(len(x)), of(upper).argmin(axis=1)] = True
        exact[:, self._young] = True
        self._fill_exactly(x, lower, exact)
        possible = np.zeros_like(exact)
        for of in ranks:
            value = of(lower)
            possible |= value <= np.where(exact, value, np.inf).min(axis=1, keepdims=True)
        self._fill_exactly(x, lower, possible & ~exact)
        return lower

    def _fill_exactly(self, x: Floats, errors: Floats, chosen: Bools) -> None:
        """Compute the chosen entries of ``errors``, in place."""
        classes, rows = np.nonzero(chosen.T)
        found = np.empty(len(rows), dtype=np.float32)
        first = 0
        for end in (np.flatnonzero(np.diff(classes, append=-1)) + 1).tolist():
            some = x[rows[first:end]]
            modes = self.classes[classes[first]].modes
            found[first:end] = modes[0].squared_fre_by_lengths(some)
            for mode in modes[1:]:
                error = mode.squared_fre_by_lengths(some)
                found[first:end] = np.minimum(found[first:end], error)
            first = end
        errors[rows, classes] = found

    def s0(self, features: ArrayLike) -> Floats:
        """S⁰: the least FRE over the known classes."""
        least: Floats = self.fre(features).min(axis=1)
        return least

    def score(self, features: ArrayLike, *, ease: Floats | None = None) -> Scores:
        """Judge a batch. The verdict on a row does not depend on the rows beside it.

        ``ease`` multiplies the score of each row, where known samples are expected to look more
        unusual than they did: see :mod:`monitor.novelty.drift.shift_correction`.
        """
        x = self.checked(features)
        settings = self.settings
        errors_by = partial(self.fre_of_contenders, x)
        if self.opinions is None or not isinstance(settings, RobustSettings):
            errors = errors_by(None)
            nearest: Ints = errors.argmin(axis=1)
            least = errors.min(axis=1)
            score: Floats = least if settings.squared else np.sqrt(least)
            score = score if ease is None else score * ease
            p_known = self._p_known(score)
        else:
            score, nearest = self.opinions.judge(x, errors_by, settings)
            score = score if ease is None else score * ease
            p_known = self.opinions.p_known(score, nearest, settings)
        t_inner = self.calibration.t_inner
        ratio = (score / np.float32(t_inner)).astype(np.float32)
        novel = (score > t_inner) | ~self._confirmed[nearest]
        return Scores(score, ratio, novel, nearest, p_known)

    @cached_property
    def _confirmed(self) -> Bools:
        return np.array([c.confirmed for c in self.classes], dtype=bool)

    @cached_property
    def judged(self) -> JudgedReferences:
        """References as the verdict judges them, each without its own help."""
        if self.opinions is None:
            errors = self.reference_fre()
            return JudgedReferences(
                np.arange(len(errors)), errors.min(axis=1), errors.argmin(axis=1)
            )
        by_class = np.diff(self.opinions.borders)
        nearest = np.repeat(np.arange(len(by_class)), by_class)
        return JudgedReferences(self.opinions.rows, self.opinions.usual, nearest)

    def _p_known(self, score: Floats) -> Floats:
        """By FRE alone, of all classes together: the paper has one T_inner for all."""
        usual = np.sort(self.judged.score)
        above = len(usual) - np.searchsorted(usual, score, side="left")
        return ((1 + above) / (1 + len(usual))).astype(np.float32)

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
        """These classes in addition to the known ones; no FRE of a class already known changes."""
        return self._of([*self.classes, *classes])

    def with_known(self, classes: Sequence[KnownClass]) -> Detector:
        """These classes in place of the ones known."""
        return self._of(classes)

    def without_class(self, id: str) -> Detector:
        """Forget a class: what looks like it will look new again."""
        gone = self.find(id)
        return self._of([c for c in self.classes if c.id != gone.id])

    def merged(self, into: str, others: Sequence[str]) -> Detector:
        """One class out of several; it keeps the id and name of ``into`` and all their modes."""
        target = self.find(into)
        parts = [target, *(self.find(o) for o in others if self.find(o).id != target.id)]
        whole = replace(
            target,
            modes=tuple(mode for part in parts for mode in part.modes),
            references=np.concatenate([part.references for part in parts]),
            own=np.concatenate([part.own for part in parts]),
            said=np.concatenate([part.said for part in parts]),
            confirmed=any(part.confirmed for part in parts),
            held=sum(part.held for part in parts),
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
