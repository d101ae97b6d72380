"""A whole pool, looked at before anybody is asked: is something in it that was never seen?

New images lie together; known ones that look unusual by chance do not. So a pool and references
of the known classes become one graph of neighbours, in the main directions of both, and two
things are asked of every neighbourhood: does it look unusual (the score of single images, averaged
over neighbours), and does the feed bring more of it than the references have? Where both are so at
once, something new has come.

How much of that is chance is told by the pool itself. If nothing is new, images of the feed and
references that resemble the same class are alike, and who is which might as well be dealt out
anew. That is done a hundred times; ``strength`` is by how many deviations the truth exceeds what
such deals have, for the pool and for each of its sources.

At last every image gets a score in the light of its pool: unusual, and more common in the feed,
sharpened by a linear discriminant between what seems new and what is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from monitor.novelty.arrays import Bools, Floats, Ints, as_features
from monitor.novelty.detector import Detector, JudgedReferences
from monitor.novelty.graph import PoolGraph
from monitor.novelty.settings import Settings

# References that a pool is put beside at the most.
_BESIDE = 4000
# References of a class that stay, however rare the class is in the pool: fewer would make a
# region of known images look empty of them.
_LEAST_BESIDE = 20
# Images of a source in a pool from which it can be tested by itself.
LEAST_OF_SOURCE = 30
# Added to the mass of either side: a neighbourhood without references is not infinitely new.
_BLUR = 0.01
# How sharply images are divided into seemingly new and known ones for the discriminant, and the
# share of references beyond which they seem new. Its covariance is drawn to a sphere.
_STEEPNESS, _SEEMS_NEW, _SHRINKAGE = 2.0, 0.03, 0.3
# Within these the skewness of a hundred deals is believed.
_LEAST_SKEW, _MOST_SKEW = 0.1, 2.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class PoolLook:
    """What a look at a pool found; rows as in the pool.

    ``strength`` has the evidence that something is new, in standard deviations of chance, by
    source, and under :data:`EVERYWHERE` for the whole pool.
    """

    score: Floats
    p_known: Floats
    novel: Bools
    nearest: Ints
    strength: Mapping[str, float]
    references: int


#: All sources together: something rare may be spread over all of them.
EVERYWHERE = ""


def look(
    detector: Detector, pool: Floats, sources: Sequence[str] = (), *, seed: int = 0
) -> PoolLook:
    """Look at a pool; ``sources`` has the source of each row.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(3, 100), images(9, 100)])
    >>> detector = Detector.fit(known, ["a"] * 100 + ["b"] * 100)
    >>> clean = np.concatenate([images(3, 100), images(9, 100)])
    >>> look(detector, clean).strength[EVERYWHERE] < 3
    True
    >>> look(detector, np.concatenate([clean, images([6, -6] * 6, 20)])).strength[EVERYWHERE] > 3
    True
    """
    features = as_features(pool, dimension=detector.dimension, what="pool")
    settings, rng = detector.settings, np.random.default_rng(seed)
    scored = detector.score(features)
    beside = _beside(detector, scored.nearest, rng)
    everyone = np.concatenate([features, detector.references.features[beside.rows]])
    graph = PoolGraph.of(_main(everyone, settings.components), settings.neighbours)
    nearest = np.concatenate([scored.nearest, beside.nearest])
    both = np.concatenate([scored.score, beside.score])
    own = np.log(np.maximum(both, _TINY)).astype(np.float32)
    smooth = _standard(graph.smoothed(own, settings.smoothing, settings.smoothing_steps))
    came = np.zeros(len(own), dtype=bool)
    came[: len(features)] = True
    deals = _dealt(came, nearest, settings.permutations, rng)
    more = _more(graph, deals, nearest, settings, rng)
    named = np.asarray(sources if len(sources) else [EVERYWHERE] * len(features), dtype=np.str_)
    # Unusual regions count by the square: many that are slightly unusual are no class.
    weight = np.maximum(smooth, 0.0) ** 2
    strength = _strengths(weight[:, None] * np.maximum(more, 0.0), deals, named, rng)
    score = smooth + settings.alone * more[:, 0]
    score = score / max(float(score[~came].std()), _TINY)
    if settings.sharpen:
        score = score + _discriminant(everyone, score, came, nearest, settings, rng)
    return PoolLook(
        score=score[came].astype(np.float32),
        p_known=_p_known(score, came, nearest),
        novel=score[came] > np.quantile(score[~came], 1 - settings.false_novel_pool),
        nearest=scored.nearest,
        strength=strength,
        references=int((~came).sum()),
    )


def _beside(detector: Detector, nearest: Ints, rng: np.random.Generator) -> JudgedReferences:
    """References in about the same mixture of classes as the pool.

    A feed shows its classes in other shares than they were labelled in, and classes that are
    taken for each other would then look like something new. The mixture is estimated from the
    nearest classes of the pool, undoing the confusion that references have.
    """
    usual = detector.judged
    true = detector.references.classes[usual.rows]
    count = len(detector.classes)
    mixture = _mixture(true, usual.nearest, nearest, count)
    have = np.bincount(true, minlength=count)
    most = int(np.argmax(mixture))
    whole = have[most] / max(mixture[most], _TINY)
    wanted = np.minimum(have, np.maximum(np.ceil(mixture * whole), _LEAST_BESIDE))
    wanted = np.ceil(wanted * min(1.0, _BESIDE / max(wanted.sum(), 1))).astype(int)
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(true == i))[: wanted[i]] for i in range(count)]
    )
    return JudgedReferences(usual.rows[chosen], usual.score[chosen], usual.nearest[chosen])


def _mixture(true: Ints, taken: Ints, pool: Ints, count: int) -> np.ndarray:
    """Shares of the classes in a pool whose samples are taken for ``pool``, by EM."""
    confusion = np.full((count, count), 0.5 / count)
    np.add.at(confusion, (true, taken), 1.0)
    confusion /= confusion.sum(axis=1, keepdims=True)
    seen = np.bincount(pool, minlength=count) / max(len(pool), 1)
    share = np.full(count, 1.0 / count)
    for _ in range(100):
        joint = confusion * share[:, None]
        share = (joint / np.maximum(joint.sum(axis=0), _TINY)) @ seen
    return share


def _main(features: Floats, components: int) -> Floats:
    """The main directions of all rows, around their mean."""
    centred = (features - features.mean(axis=0, dtype=np.float64)).astype(np.float32)
    rank = min(components, *centred.shape)
    left, singular, _ = randomized_svd(centred, rank, n_iter=2, random_state=0)
    placed: Floats = (left * singular).astype(np.float32)
    return placed


def _dealt(came: Bools, nearest: Ints, deals: int, rng: np.random.Generator) -> Floats:
    """Who came with the feed: in the first column the truth, then dealt out among equals."""
    dealt = np.empty((len(came), deals + 1), np.float32)
    dealt[:, 0] = came
    for position in np.unique(nearest):
        rows = np.flatnonzero(nearest == position)
        for deal in range(1, deals + 1):
            dealt[rows, deal] = came[rng.permutation(rows)]
    return dealt


def _more(
    graph: PoolGraph, deals: Floats, nearest: Ints, settings: Settings, rng: np.random.Generator
) -> Floats:
    """By how much the feed outnumbers references around each node, in deviations, for each deal.

    Within a class the references weigh as much as the feed's images, whatever their number.
    Nodes are counted by part, so that none is its own evidence.
    """
    weights = np.ones_like(deals)
    for position in np.unique(nearest):
        rows = nearest == position
        feed = deals[rows].sum(axis=0)
        ratio = (feed + 1) / (rows.sum() - feed + 1)
        weights[rows] = np.where(deals[rows] > 0, 1.0, ratio)
    part = rng.permutation(len(deals)) % settings.parts
    more = np.empty_like(deals)
    for number in range(settings.parts):
        counted = weights * (part != number)[:, None]
        feed, known = (
            graph.smoothed(side, settings.smoothing, settings.smoothing_steps)
            for side in (counted * deals, counted * (1 - deals))
        )
        out = part == number
        more[out] = np.log(feed[out] + _BLUR) - np.log(known[out] + _BLUR)
    scale = float(more[:, 1:].std())
    return more / np.float32(max(scale, _TINY))


def _strengths(
    evidence: Floats, deals: Floats, sources: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """The sum of evidence over the feed's images against what deals have, by source."""
    found = {EVERYWHERE: _deviations((evidence * deals).sum(axis=0))}
    names, index, counts = np.unique(sources, return_inverse=True, return_counts=True)
    if len(names) < 2:
        return found
    for position, name in enumerate(names):
        if counts[position] < LEAST_OF_SOURCE:
            continue
        share = counts[position] / len(sources)
        sums = np.empty(deals.shape[1])
        sums[0] = evidence[: len(sources), 0][index == position].sum()
        # In a deal any of the feed's images may have been this source's.
        for deal in range(1, deals.shape[1]):
            rows = np.flatnonzero(deals[:, deal] > 0)
            mine = rng.random(len(rows)) < share
            sums[deal] = evidence[rows[mine], deal].sum()
        found[str(name)] = _deviations(sums)
    return found


def _deviations(sums: np.ndarray) -> float:
    """How far the first lies above the others, in deviations as a normal distribution has them.

    Sums of squares are skewed: what is three deviations above their mean is less rare than three
    deviations of a normal one (Wilson and Hilferty's transform, for Pearson's third type).
    """
    chance = sums[1:]
    scale = max(float(chance.std()), _TINY)
    standard = (sums - chance.mean()) / scale
    skew = float(np.clip(np.mean(standard[1:] ** 3), _LEAST_SKEW, _MOST_SKEW))
    root = np.cbrt(max(float(standard[0]) * skew / 2 + 1, 0.0))
    return float((root - 1 + skew**2 / 36) * 6 / skew)


def _discriminant(
    features: Floats,
    score: np.ndarray,
    came: Bools,
    nearest: Ints,
    settings: Settings,
    rng: np.random.Generator,
) -> np.ndarray:
    """What a line between seemingly new and known images adds, in deviations of references.

    Fitted without the part that it judges.
    """
    placed = _main(features, 2 * settings.components).astype(np.float64)
    placed /= max(float(placed.std()), _TINY)
    limit = np.quantile(score[~came], 1 - _SEEMS_NEW)
    seems = np.where(came, 1 / (1 + np.exp(-_STEEPNESS * (score - limit))), 0.0)
    classes = np.unique(nearest)
    part = rng.permutation(len(score)) % settings.parts
    odds = np.empty(len(score))
    for number in range(settings.parts):
        new = seems * (part != number)
        known = (1 - seems) * (part != number)
        centres = [(new @ placed) / max(new.sum(), _TINY)]
        within = placed - centres[0]
        scatter = (within * new[:, None]).T @ within
        for position in classes:
            mine = known * (nearest == position)
            centre = (mine @ placed) / max(mine.sum(), _TINY)
            centres.append(centre)
            rows = np.flatnonzero(mine)
            within = placed[rows] - centre
            scatter += (within * mine[rows, None]).T @ within
        covariance = scatter / max(new.sum() + known.sum(), _TINY)
        width = len(covariance)
        round_ = _SHRINKAGE * np.trace(covariance) / width * np.eye(width)
        covariance = (1 - _SHRINKAGE) * covariance + round_ + _TINY * np.eye(width)
        means = np.stack(centres)
        lines = np.linalg.solve(covariance, means.T)
        values = placed @ lines - 0.5 * np.einsum("ij,ji->i", means, lines)
        out = part == number
        odds[out] = values[out, 0] - values[out, 1:].max(axis=1)
    known_odds = odds[~came]
    standard: np.ndarray = (odds - known_odds.mean()) / max(float(known_odds.std()), _TINY)
    return standard


def _p_known(score: np.ndarray, came: Bools, nearest: Ints) -> Floats:
    """The share of references of the same class that look at least as new, the image counted."""
    found = np.empty(int(came.sum()), np.float32)
    mine, theirs = nearest[came], nearest[~came]
    new, usual = score[came], score[~came]
    for position in np.unique(mine):
        own = usual[theirs == position]
        ordered = np.sort(own if len(own) >= _LEAST_BESIDE else usual)
        rows = mine == position
        above = len(ordered) - np.searchsorted(ordered, new[rows], side="left")
        found[rows] = (1 + above) / (1 + len(ordered))
    return found


def _standard(values: np.ndarray) -> np.ndarray:
    standard: np.ndarray = (values - values.mean()) / max(float(values.std()), _TINY)
    return standard
