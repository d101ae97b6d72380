"""How new a whole pool is, measured before anybody is asked.

New images lie together; known ones that look unusual by chance do not. So a pool and references
of the known classes become one graph of neighbours, in the main directions of both, and two
quantities are measured for every neighbourhood: how unusual it looks (the score of single images,
averaged over neighbours), and how much more of it the feed brings than the references have. Where
both are large at once, something new has come.

How much of that is chance is measured on the pool itself. If nothing is new, images of the feed and
references that resemble the same class are exchangeable, so the labels "feed" and "reference" are
permuted a hundred times; ``strength`` is by how many deviations the true labels exceed the
permuted ones, for the pool and for each of its sources.

Finally every image gets a score in the light of its pool: unusual, and more common in the feed,
sharpened by a linear discriminant between what seems new and what is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.pool_graph import PoolGraph
from monitor.novelty.subspace import JudgedReferences
from monitor.novelty.trigger.trigger_settings import PoolNoveltySettings

# Keeps logarithms and quotients finite.
_TINY = 1e-9
# EM steps of the mixture, far beyond where shares of a few classes settle.
_EM_STEPS = 100
# Pools that are remembered: a closed pool waits for a few others between its two looks.
_REMEMBERED = 8

#: :func:`measure_novelty`, or something that remembers what it found.
Measure = Callable[..., "PoolNovelty"]


@dataclass(frozen=True, slots=True, eq=False)
class PoolNovelty:
    """What was measured of a pool; rows as in the pool.

    ``strength`` has the evidence that something is new, in standard deviations of chance, by
    source, and under :data:`EVERYWHERE` for the whole pool. ``beside`` are the rows of the
    references that it was compared with, ``p_usual`` is their own p_known.
    """

    score: Floats
    p_known: Floats
    novel: Bools
    nearest: Ints
    strength: Mapping[str, float]
    beside: Ints
    p_usual: Floats

    @property
    def references(self) -> int:
        """How many it was compared with."""
        return len(self.beside)


#: All sources together: something rare may be spread over all of them.
EVERYWHERE = ""


def measure_novelty(
    detector: Detector, pool: Floats, sources: Sequence[str] = (), *, seed: int = 0
) -> PoolNovelty:
    """Compare a pool with the references; ``sources`` has the source of each row.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(3, 100), images(9, 100)])
    >>> detector = Detector.fit(known, ["a"] * 100 + ["b"] * 100)
    >>> clean = np.concatenate([images(3, 100), images(9, 100)])
    >>> measure_novelty(detector, clean).strength[EVERYWHERE] < 3
    True
    >>> pool = np.concatenate([clean, images([6, -6] * 6, 20)])
    >>> measure_novelty(detector, pool).strength[EVERYWHERE] > 3
    True
    """
    features = detector.checked(pool, "pool")
    settings, rng = detector.settings.pool, np.random.default_rng(seed)
    scored = detector.score(features)
    beside = _beside(detector, scored.nearest, rng)
    everyone = np.concatenate([features, detector.references.features[beside.rows]])
    graph = PoolGraph.of(_main(everyone, settings.components), detector.settings.graph)
    nearest = np.concatenate([scored.nearest, beside.nearest])
    both = np.concatenate([scored.score, beside.score])
    own = np.log(np.maximum(both, _TINY)).astype(np.float32)
    smooth = _standard(graph.smoothed(own, settings.smoothing, settings.smoothing_steps))
    came = np.zeros(len(own), dtype=bool)
    came[: len(features)] = True
    permuted = _permuted(came, nearest, settings.permutations, rng)
    more = _more(graph, permuted, nearest, settings, rng)
    named = np.asarray(sources if len(sources) else [EVERYWHERE] * len(features), dtype=np.str_)
    # Unusual regions count by the square: many that are slightly unusual are no class.
    weight = np.maximum(smooth, 0.0) ** 2
    strength = _strengths(weight[:, None] * np.maximum(more, 0.0), permuted, named, settings, rng)
    score = smooth + settings.alone * more[:, 0]
    score = score / max(float(score[~came].std()), _TINY)
    if settings.sharpen:
        score = score + _discriminant(everyone, score, came, nearest, settings, rng)
    return PoolNovelty(
        score=score[came].astype(np.float32),
        p_known=_p_known(score, came, ~came, nearest, settings.beside_least),
        novel=score[came] > np.quantile(score[~came], 1 - settings.false_novel),
        nearest=scored.nearest,
        strength=strength,
        beside=beside.rows,
        p_usual=_p_known(score, ~came, ~came, nearest, settings.beside_least),
    )


class MeasuredPools:
    """Measures pools, and remembers the last few: a pool that is inspected is settled soon after.

    >>> rng = np.random.default_rng(0)
    >>> known = np.concatenate([rng.normal(c, 1, (60, 12)) for c in (0, 9)]).astype("f")
    >>> detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    >>> pools = MeasuredPools()
    >>> once, again = (pools.measure(1, detector, known, ["cam"] * 120) for _ in range(2))
    >>> once is again, pools.measure(2, detector, known, ["cam"] * 120) is again
    (True, False)
    """

    def __init__(self) -> None:
        self._found: dict[bytes, PoolNovelty] = {}

    def measure(
        self,
        version: int,
        detector: Detector,
        pool: Floats,
        sources: Sequence[str] = (),
        *,
        seed: int = 0,
    ) -> PoolNovelty:
        """As :func:`measure_novelty`; ``version`` stands for the detector."""
        content = hashlib.blake2b(np.ascontiguousarray(pool).tobytes())
        content.update(repr((version, seed, pool.shape, str(pool.dtype), list(sources))).encode())
        key = content.digest()
        found = self._found.pop(key, None)
        if found is None:
            found = measure_novelty(detector, pool, sources, seed=seed)
        self._found[key] = found
        while len(self._found) > _REMEMBERED:
            del self._found[next(iter(self._found))]
        return found


def _beside(detector: Detector, nearest: Ints, rng: np.random.Generator) -> JudgedReferences:
    """References in about the same mixture of classes as the pool.

    A feed shows its classes in other shares than they were labelled in, and classes that are
    taken for each other would then look like something new. The mixture is estimated from the
    nearest classes of the pool, undoing the confusion that references have.
    """
    usual = detector.judged
    true = detector.references.classes[usual.rows]
    count = len(detector.classes)
    settings = detector.settings.pool
    mixture = _mixture(true, usual.nearest, nearest, count, settings.mixture_prior)
    have = np.bincount(true, minlength=count)
    most = int(np.argmax(mixture))
    whole = have[most] / max(mixture[most], _TINY)
    wanted = np.minimum(have, np.maximum(np.ceil(mixture * whole), settings.beside_least))
    wanted = np.ceil(wanted * min(1.0, settings.beside_most / max(wanted.sum(), 1))).astype(int)
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(true == i))[: wanted[i]] for i in range(count)]
    )
    return JudgedReferences(usual.rows[chosen], usual.score[chosen], usual.nearest[chosen])


def _mixture(true: Ints, taken: Ints, pool: Ints, count: int, prior: float) -> np.ndarray:
    """Shares of the classes in a pool whose samples are taken for ``pool``, by EM."""
    confusion = np.full((count, count), prior / count)
    np.add.at(confusion, (true, taken), 1.0)
    confusion /= confusion.sum(axis=1, keepdims=True)
    seen = np.bincount(pool, minlength=count) / max(len(pool), 1)
    share = np.full(count, 1.0 / count)
    for _ in range(_EM_STEPS):
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


def _permuted(came: Bools, nearest: Ints, count: int, rng: np.random.Generator) -> Floats:
    """Who came with the feed: the truth in the first column, then permuted within classes."""
    permuted = np.empty((len(came), count + 1), np.float32)
    permuted[:, 0] = came
    for position in np.unique(nearest):
        rows = np.flatnonzero(nearest == position)
        for number in range(1, count + 1):
            permuted[rows, number] = came[rng.permutation(rows)]
    return permuted


def _more(
    graph: PoolGraph,
    permuted: Floats,
    nearest: Ints,
    settings: PoolNoveltySettings,
    rng: np.random.Generator,
) -> Floats:
    """By how much the feed outnumbers references around each node, for each permutation.

    In deviations of what permuted labels have.

    Within a class the references weigh as much as the feed's images, whatever their number.
    Nodes are counted by part, so that none is its own evidence.
    """
    weights = np.ones_like(permuted)
    for position in np.unique(nearest):
        rows = nearest == position
        feed = permuted[rows].sum(axis=0)
        ratio = (feed + 1) / (rows.sum() - feed + 1)
        weights[rows] = np.where(permuted[rows] > 0, 1.0, ratio)
    part = rng.permutation(len(permuted)) % settings.parts
    more = np.empty_like(permuted)
    for number in range(settings.parts):
        counted = weights * (part != number)[:, None]
        feed, known = (
            graph.smoothed(side, settings.smoothing, settings.smoothing_steps)
            for side in (counted * permuted, counted * (1 - permuted))
        )
        out = part == number
        more[out] = np.log(feed[out] + settings.blur) - np.log(known[out] + settings.blur)
    scale = float(more[:, 1:].std())
    return more / np.float32(max(scale, _TINY))


def _strengths(
    evidence: Floats,
    permuted: Floats,
    sources: np.ndarray,
    settings: PoolNoveltySettings,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The sum of evidence over the feed's images against what permutations have, by source."""
    found = {EVERYWHERE: _deviations((evidence * permuted).sum(axis=0), settings.skew)}
    names, index, counts = np.unique(sources, return_inverse=True, return_counts=True)
    if len(names) < 2:
        return found
    for position, name in enumerate(names):
        if counts[position] < settings.source_least:
            continue
        share = counts[position] / len(sources)
        sums = np.empty(permuted.shape[1])
        sums[0] = evidence[: len(sources), 0][index == position].sum()
        # In a permutation any of the feed's images may have been this source's.
        for number in range(1, permuted.shape[1]):
            rows = np.flatnonzero(permuted[:, number] > 0)
            mine = rng.random(len(rows)) < share
            sums[number] = evidence[rows[mine], number].sum()
        found[str(name)] = _deviations(sums, settings.skew)
    return found


def _deviations(sums: np.ndarray, believed: tuple[float, float]) -> float:
    """How far the first lies above the others, in deviations as a normal distribution has them.

    Sums of squares are skewed: what is three deviations above their mean is less rare than three
    deviations of a normal one (Wilson and Hilferty's transform, for Pearson's third type).
    """
    chance = sums[1:]
    scale = max(float(chance.std()), _TINY)
    standard = (sums - chance.mean()) / scale
    skew = float(np.clip(np.mean(standard[1:] ** 3), *believed))
    root = np.cbrt(max(float(standard[0]) * skew / 2 + 1, 0.0))
    return float((root - 1 + skew**2 / 36) * 6 / skew)


def _discriminant(
    features: Floats,
    score: np.ndarray,
    came: Bools,
    nearest: Ints,
    settings: PoolNoveltySettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """What a line between seemingly new and known images adds, in deviations of references.

    Fitted without the part that it judges.
    """
    placed = _main(features, settings.sharpen_components).astype(np.float64)
    placed /= max(float(placed.std()), _TINY)
    limit = np.quantile(score[~came], 1 - settings.seems_new)
    seems = np.where(came, 1 / (1 + np.exp(-settings.sharpen_steepness * (score - limit))), 0.0)
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
        shrinkage = settings.sharpen_shrinkage
        sphere = shrinkage * np.trace(covariance) / width * np.eye(width)
        covariance = (1 - shrinkage) * covariance + sphere + _TINY * np.eye(width)
        means = np.stack(centres)
        lines = np.linalg.solve(covariance, means.T)
        values = placed @ lines - 0.5 * np.einsum("ij,ji->i", means, lines)
        out = part == number
        odds[out] = values[out, 0] - values[out, 1:].max(axis=1)
    known_odds = odds[~came]
    standard: np.ndarray = (odds - known_odds.mean()) / max(float(known_odds.std()), _TINY)
    return standard


def _p_known(score: np.ndarray, of: Bools, usual: Bools, nearest: Ints, least: int) -> Floats:
    """The share of references of the same class that look at least as new, the image counted.

    A reference is counted once, as itself.
    """
    found = np.empty(int(of.sum()), np.float32)
    mine, theirs = nearest[of], nearest[usual]
    once = int(not (of & usual).any())
    for position in np.unique(mine):
        own = score[usual][theirs == position]
        ordered = np.sort(own if len(own) >= least else score[usual])
        rows = mine == position
        above = len(ordered) - np.searchsorted(ordered, score[of][rows], side="left")
        found[rows] = (once + above) / (once + len(ordered))
    return found


def _standard(values: np.ndarray) -> np.ndarray:
    standard: np.ndarray = (values - values.mean()) / max(float(values.std()), _TINY)
    return standard
