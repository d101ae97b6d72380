"""What a detector makes of a single sample: its class, and how unlike that class it is.

FRE alone is the weakest of the scores that need no label: long feature vectors have long
residuals, and a rich subspace reconstructs strangers tolerably. Two opinions are asked instead,
each in units of what known samples of the same class have:

* how much of a sample no subspace reconstructs, as a share of its length: log(FRE² / ‖u‖²);
* how far it points away from the nearest class mean, seen from the middle of all class means, in
  the space whitened by the spread within classes: the cosine, with its sign changed.

Both forget how long a sample is, which tells known from new poorly. Only what FRE itself finds far
beyond everything known is novel whatever they say.

A class that was learnt from few samples is not distinguished well from its neighbours: some of its
samples resemble another class more, in which they look unusual. Such a *young* class is asked about
every sample, in units of its own, not widened: what it finds usual without any leniency is usual.

The class that a sample resembles comes from the same products. The least FRE would give it to the
class of which most has been seen, so the FRE to a class is taken over what strangers have there,
and joined by the whitened distance to its mean, which is fair to classes learnt from few samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from monitor.novelty.array_types import Floats, Ints
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.subspace import References

ErrorsBy = Callable[[Callable[[Floats], Floats]], Floats]
"""Squared FRE of some rows to every class, exact where it is least or makes a rank least."""

# Keeps the exponential finite.
_MOST = 60.0
# Keeps logarithms and quotients finite.
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ModeMeans:
    """Means of all modes of all classes: ``starts`` says where those of each class begin."""

    places: Floats
    counts: Ints
    starts: Ints

    def middle(self) -> Floats:
        """Of all means; a single one has no direction seen from itself, so it keeps its own."""
        if len(self.places) == 1:
            return np.zeros(self.places.shape[1], dtype=np.float32)
        middle: Floats = self.places.mean(axis=0, dtype=np.float64).astype(np.float32)
        return middle

    def home(self, references: References) -> Ints:
        """The mode of its own class that each reference lies nearest to."""
        home = self.starts[references.classes].copy()
        ends = [*self.starts[1:].tolist(), len(self.places)]
        for position in np.unique(references.classes):
            first, end = int(self.starts[position]), ends[position]
            if end - first > 1:
                mine = np.flatnonzero(references.classes == position)
                away = references.features[mine][:, None] - self.places[first:end]
                home[mine] = first + (away**2).sum(axis=2).argmin(axis=1)
        return home


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """The middle of the class means, and the inverse of the spread within classes around it."""

    centre: Floats
    axes: Floats
    gains: Floats
    base: float

    @classmethod
    def of(cls, within: Floats, centre: Floats, settings: RobustSettings) -> Whitening:
        """``within`` are samples as seen from their class mean."""
        dimension = within.shape[1]
        axes, energies = _strongest(within, settings.whitening_axes)
        shrinkage = settings.whitening
        count = max(len(within), 1)
        total = float(np.einsum("ij,ij->", within, within, dtype=np.float64))
        # Samples that are all alike have no spread to whiten by: space stays as it is.
        base = shrinkage * (total / count or 1.0) / dimension
        gains = 1 / ((1 - shrinkage) * energies / count + base) - 1 / base
        return cls(centre, axes.astype(np.float32), gains.astype(np.float32), 1 / base)

    def product(self, left: Floats, right: Floats) -> Floats:
        """Whitened inner products of centred rows."""
        inner: Floats = np.float32(self.base) * (left @ right.T)
        inner += ((left @ self.axes) * self.gains) @ (right @ self.axes).T
        return inner

    def squares(self, centred: Floats) -> Floats:
        """Whitened squared length of each centred row."""
        length: Floats = np.float32(self.base) * np.einsum("ij,ij->i", centred, centred)
        length += (centred @ self.axes) ** 2 @ self.gains
        return np.maximum(length, np.float32(_TINY))


@dataclass(frozen=True, slots=True, eq=False)
class Opinions:
    """Everything that a verdict needs apart from the errors; arrays only, so that it can be saved.

    ``location`` and ``scale`` have an entry for each opinion. ``usual`` are the scores of
    references by the class they resemble, then in order; ``borders`` says where each class begins
    in them, ``rows`` which reference each of them is. ``young`` are the positions of the classes
    that are asked about every sample; ``young_location`` and ``young_scale`` have a column for
    each, of what its own references have there.
    """

    centre: Floats
    columns: Floats
    gains: Floats
    base: Floats
    lengths: Floats
    strangers: Floats
    by_place: Floats
    starts: Ints
    location: Floats
    scale: Floats
    usual: Floats
    borders: Ints
    rows: Ints
    # States that were written before young classes were asked have none.
    young: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    young_location: Floats = field(default_factory=lambda: np.empty((3, 0), np.float32))
    young_scale: Floats = field(default_factory=lambda: np.empty((3, 0), np.float32))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All of it, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Opinions:
        """What :meth:`to_arrays` gave."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls) if f.name in arrays})

    @classmethod
    def of(
        cls,
        means: ModeMeans,
        references: References,
        settings: RobustSettings,
        guessed: np.ndarray | None = None,
        young: Ints | None = None,
    ) -> Opinions:
        """From references that are judged without their own help.

        ``guessed`` is the share of the references of each class that no person labelled. They are
        the surest of a pool, so that the class looks tighter than it is: its scale is widened.
        ``young`` are the positions of the classes that are asked about every sample.
        """
        rows = references.some(settings.judged_most)
        some = references.taken(rows)
        home = means.home(some)
        centre = means.middle()
        within = some.features - means.places[home]
        whole = Whitening.of(within, centre, settings)
        strangers = _of_strangers(some, len(means.starts))
        relative = some.errors / strangers
        strangers = strangers * np.float32(max(float(relative.std(axis=1).mean()), _TINY))
        cosines, likeness = _left_out(means, some, home, within, centre, settings)
        by_place = np.float32(max(float(likeness.std(axis=1).mean()), _TINY))
        nearest = (some.errors / strangers - likeness / by_place).argmin(axis=1)
        given = _given(some.features, some.errors, cosines.max(axis=1))
        location, scale = _scales(given, nearest, len(means.starts), settings.own_scale)
        asked = np.empty(0, np.int64) if young is None else young.astype(np.int64)
        everyone = np.arange(len(some)), some.classes
        cosines = _largest(cosines, means.starts)
        own = _given(some.features, some.errors[everyone][:, None], cosines[everyone])
        own_location, own_scale = _scales(own, some.classes, len(means.starts), settings.own_scale)
        if guessed is not None:
            scale *= (1 + settings.guessed_wider * guessed).astype(np.float32)
        score = _score(given, nearest, location, scale, settings.far)
        young_location, young_scale = own_location[:, asked], own_scale[:, asked]
        score = np.minimum(
            score,
            _least_of_young(
                some.features,
                some.errors[:, asked],
                cosines[:, asked],
                young_location,
                young_scale,
                settings.far,
            ),
        )
        order = np.lexsort((score, nearest))
        places = means.places - centre
        spans = np.concatenate([whole.product(places, np.eye(len(centre), dtype=np.float32))])
        return cls(
            centre=centre,
            columns=np.concatenate([spans.T, whole.axes], axis=1).astype(np.float32),
            gains=whole.gains,
            base=np.asarray(whole.base, np.float32),
            lengths=np.sqrt(whole.squares(places)),
            strangers=strangers,
            by_place=np.asarray(by_place, np.float32),
            starts=means.starts.astype(np.int64),
            location=location,
            scale=scale,
            usual=score[order],
            borders=np.searchsorted(nearest[order], np.arange(len(means.starts) + 1)).astype(
                np.int64
            ),
            rows=rows[order].astype(np.int64),
            young=asked,
            young_location=young_location,
            young_scale=young_scale,
        )

    def judge(
        self, features: Floats, errors_by: ErrorsBy, settings: RobustSettings
    ) -> tuple[Floats, Ints]:
        """The score of every row, and the position of the class that it resembles most."""
        centred = features - self.centre
        products = centred @ self.columns
        modes = len(self.lengths)
        inner = products[:, :modes]
        square = self.base * np.einsum("ij,ij->i", centred, centred)
        square += products[:, modes:] ** 2 @ self.gains
        length = np.sqrt(np.maximum(square, np.float32(_TINY)))
        likeness = _largest(inner - 0.5 * self.lengths**2, self.starts) / self.by_place

        def unlike(errors: Floats) -> Floats:
            return errors / self.strangers - likeness

        errors = errors_by(unlike)
        nearest: Ints = unlike(errors).argmin(axis=1)
        cosines = (inner / np.maximum(self.lengths, np.float32(_TINY))).astype(np.float32)
        given = _given(features, errors, cosines.max(axis=1) / length)
        score = _score(given, nearest, self.location, self.scale, settings.far)
        if not len(self.young):
            return score, nearest
        of_young = _least_of_young(
            features,
            errors[:, self.young],
            _largest(cosines, self.starts)[:, self.young] / length[:, None],
            self.young_location,
            self.young_scale,
            settings.far,
        )
        return np.minimum(score, of_young), nearest

    def p_known(self, score: Floats, nearest: Ints, settings: RobustSettings) -> Floats:
        """The share of known samples of the same class that look at least as unusual.

        Conformal: the sample itself is counted, so no sample has a share of zero.
        """
        everyone = np.sort(self.usual)
        found = _at_least(everyone, score)
        for position in np.unique(nearest):
            own = self.usual[self.borders[position] : self.borders[position + 1]]
            if len(own) >= settings.own_distribution:
                mine = nearest == position
                found[mine] = _at_least(own, score[mine])
        return found.astype(np.float32)


def _strongest(rows: Floats, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The strongest directions of centred rows as columns, and their sums of squares.

    Through the smaller of the two square matrices. Unlike a whole basis, the strongest few need
    no mending: their energies are far above rounding.
    """
    # Here rather than above: it takes longer to load than all that only reads a detector.
    from scipy.linalg import eigh

    x = rows.astype(np.float64)
    wide = len(x) < x.shape[1]
    square = x @ x.T if wide else x.T @ x
    size = len(square)
    first = max(0, size - most)
    energies, vectors = eigh(square, subset_by_index=(first, size - 1), check_finite=False)
    kept = energies > max(float(energies[-1]), 0.0) * 1e-9
    energies, vectors = energies[kept], vectors[:, kept]
    return (x.T @ vectors / np.sqrt(energies) if wide else vectors), energies


def _largest(values: Floats, starts: Ints) -> Floats:
    """Of the modes of each class the largest value; ``starts`` says where those of each begin."""
    if len(starts) == values.shape[1]:
        return values
    largest: Floats = np.maximum.reduceat(values, starts, axis=1)
    return largest


def _at_least(ordered: Floats, values: Floats) -> np.ndarray:
    above = len(ordered) - np.searchsorted(ordered, values, side="left")
    share: np.ndarray = (1 + above) / (1 + len(ordered))
    return share


def _given(features: Floats, errors: Floats, cosine: Floats) -> Floats:
    """The opinions, a row each: direction, share that is not reconstructed, and FRE itself."""
    length = np.log(np.maximum(np.einsum("ij,ij->i", features, features), _TINY))
    least = np.log(np.maximum(errors.min(axis=1), _TINY))
    return np.stack([-cosine, least - length, least]).astype(np.float32)


def _score(given: Floats, nearest: Ints, location: Floats, scale: Floats, far: float) -> Floats:
    """The geometric mean of standardised opinions: positive, and one for the usual sample."""
    standard = (given - location[:, nearest]) / scale[:, nearest]
    total = np.maximum(standard[:2].mean(axis=0), standard[2] - far)
    score: Floats = np.exp(np.minimum(total, _MOST)).astype(np.float32)
    return score


def _least_of_young(
    features: Floats, errors: Floats, cosines: Floats, location: Floats, scale: Floats, far: float
) -> Floats:
    """The least score that a young class gives to each row; infinite if there is none.

    Errors and cosines have a column for each young class, as location and scale do.
    """
    least = np.full(len(features), np.inf, np.float32)
    for column in range(errors.shape[1]):
        given = _given(features, errors[:, [column]], cosines[:, column])
        mine = np.full(len(features), column, np.intp)
        least = np.minimum(least, _score(given, mine, location, scale, far))
    return least


def _scales(given: Floats, nearest: Ints, count: int, own_scale: int) -> tuple[Floats, Floats]:
    """Mean and deviation of each opinion by class, drawn to those of all while it is small."""
    mean, variance = given.mean(axis=1), given.var(axis=1)
    location = np.repeat(mean[:, None], count, axis=1).astype(np.float64)
    spread = np.repeat(variance[:, None], count, axis=1).astype(np.float64)
    for position in np.unique(nearest):
        mine = given[:, nearest == position]
        weight = mine.shape[1] / (mine.shape[1] + own_scale)
        location[:, position] += weight * (mine.mean(axis=1) - mean)
        spread[:, position] += weight * (mine.var(axis=1) - variance)
    scale = np.sqrt(np.maximum(spread, _TINY))
    return location.astype(np.float32), scale.astype(np.float32)


def _left_out(
    means: ModeMeans,
    references: References,
    home: Ints,
    within: Floats,
    centre: Floats,
    settings: RobustSettings,
) -> tuple[Floats, Floats]:
    """Cosine and likeness of every reference to every class, none of them helped by itself.

    Each is whitened by the others' folds, and its own class mean is the mean of the others.
    """
    count = len(references)
    folds = min(settings.whitening_folds, count)
    fold = np.arange(count) % folds
    places = means.places - centre
    cosines = np.empty((count, len(places)), np.float32)
    likeness = np.empty_like(cosines)
    for number in range(folds):
        rows = np.flatnonzero(fold == number)
        others = within[fold != number] if folds > 1 else within
        by = Whitening.of(others if len(others) else within, centre, settings)
        centred = references.features[rows] - centre
        square, inner = by.squares(centred), by.product(centred, places)
        lengths = np.repeat(by.squares(places)[None], len(rows), axis=0)
        own = np.arange(len(rows)), home[rows]
        # m − (x − m) / (n − 1) is the mean m of n samples without x.
        step = 1.0 / np.maximum(means.counts[home[rows]] - 1, 1)
        p, length = inner[own], lengths[own]
        inner[own] = p + step * (p - square)
        lengths[own] = length + 2 * step * (length - p) + step**2 * (length - 2 * p + square)
        lengths = np.maximum(lengths, np.float32(_TINY))
        cosines[rows] = inner / np.sqrt(lengths) / np.sqrt(square)[:, None]
        likeness[rows] = inner - 0.5 * lengths
    return cosines, _largest(likeness, means.starts)


def _of_strangers(references: References, count: int) -> Floats:
    """For every class the mean error of the others' samples there, each other class alike."""
    present = np.unique(references.classes)
    table = np.stack([references.errors[references.classes == i].mean(axis=0) for i in present])
    is_other = present[:, None] != np.arange(count)
    others = is_other.sum(axis=0)
    sums = np.where(is_other, table, 0.0).sum(axis=0)
    usual = float(table.mean())
    found = np.where(others > 0, sums / np.maximum(others, 1), usual)
    return np.maximum(found, max(usual, 1.0) * _TINY).astype(np.float32)
