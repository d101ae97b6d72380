"""What became of every image of a pool, once the pool is over: known, new, shifted or undecided.

The verdict on a single image is given at once, with what the detector knew then. When its pool is
over, the other images of the pool and people's answers have spoken as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.drift.shift_correction import correction_of, score_corrected
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.pseudo_labeller import PoolAnswers
from monitor.novelty.robust.class_posterior import (
    ClassPosterior,
    doubted,
    known_as_new,
    placed_pool,
    pool_posterior,
    reached_by,
)
from monitor.novelty.robust.pool_belief import PlacedPool
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.trigger.measure_pool_novelty import Measure, measure_novelty

Verdict = Literal["known", "new", "shifted", "undecided"]
By = Literal["person", "spread", "score", "pool"]

KNOWN: Verdict = "known"
NEW: Verdict = "new"
SHIFTED: Verdict = "shifted"
UNDECIDED: Verdict = "undecided"

# Keeps quotients finite.
_TINY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SettledVerdicts:
    """Row for row as the pool.

    ``probability`` is that of showing something new. ``classes`` are ids of known classes, and the
    names under which people's answers gave new ones; None where no class is told. ``posterior``
    says how sure each class is; ``ids`` are the known ones. ``near`` has, for every sample that
    people were asked about, the class that its surroundings have.
    """

    verdicts: tuple[Verdict, ...]
    classes: tuple[str | None, ...]
    probability: Floats
    by: tuple[By, ...]
    posterior: ClassPosterior
    ids: tuple[str, ...]
    near: Mapping[int, str]

    def rows(self, verdict: Verdict) -> Ints:
        """The samples with this verdict."""
        return np.flatnonzero(np.array(self.verdicts) == verdict)


def settle_pool(
    detector: Detector,
    pool: Floats,
    answers: Mapping[int, str | None],
    *,
    sources: Sequence[str] = (),
    shifted: Collection[str] = (),
    seed: int = 0,
    measure: Measure = measure_novelty,
) -> SettledVerdicts:
    """Settle a pool that is over.

    ``answers`` has what people said about its samples: a class of the detector (id or name), a new
    name, or None if they could not tell. ``shifted`` are the sources whose known classes are
    shifted.

    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(0, 60), images(9, 60)])
    >>> detector = Detector.fit(known, ["a"] * 60 + ["b"] * 60)
    >>> pool = np.concatenate([images(0, 40), images(-9, 40)])
    >>> said = {0: "a", 1: "a", 40: "ship", 41: "ship", 42: "ship"}
    >>> settled = settle_pool(detector, pool, said)
    >>> len(settled.rows("new")) >= 39, settled.classes[50], settled.by[50]
    (True, 'ship', 'spread')
    """
    placed = placed_pool(detector, pool)
    features = placed.pool
    given = PoolAnswers.none(detector).plus(list(answers), list(answers.values()))
    found = pool_posterior(placed, given)
    names = np.asarray(sources if len(sources) else [""] * len(features), dtype=np.str_)
    explained = _explained(detector, features, names, shifted)
    in_doubt = doubted(detector, found)
    unusual = _Unusual.none(len(features))
    if found.names or not in_doubt.any():
        unusual = _unusual(
            detector, features, names, explained, shifted, partial(measure, seed=seed)
        )
    if found.names:
        # A name that people gave explains what is odd.
        unusual.odd[:] = False
        new = _likelier(found.new, in_doubt, unusual.times)
    elif in_doubt.any():
        new = in_doubt
    else:
        rare = np.full(len(features), _settings(detector).rare)
        new = _likelier(rare, np.zeros(len(features)), unusual.times)
    new = new.astype(np.float32)
    limit = 1.0
    if found.names or in_doubt.any():
        limit = max(
            _expected(np.delete(new, given.asked), _settings(detector)),
            _of_references(placed, given, unusual),
        )
    return _settled(detector, found, given, new, limit, unusual.odd, explained)


def _of_references(placed: PlacedPool, answers: PoolAnswers, unusual: _Unusual) -> float:
    """The probability that few references reach, when nobody has labelled them."""
    known = known_as_new(placed, answers)
    new: np.ndarray = known.doubted
    if answers.new:
        _, mine, theirs = np.intersect1d(known.rows, unusual.references, return_indices=True)
        known = known.taken(mine)
        new = _likelier(known.named, known.doubted, unusual.reference_times[theirs])
    return reached_by(placed.settings.references_new, new)


def _expected(new: Floats, settings: RobustSettings) -> float:
    """The probability above which few known samples are, if probabilities are to be believed.

    >>> sure, torn = np.full(10, 0.999), np.full(10, 0.7)
    >>> pool = np.concatenate([sure, torn, np.zeros(180)]).astype(np.float32)
    >>> [round(_expected(some, RobustSettings()), 2) for some in (pool, pool[:20])]
    [0.7, 0.9]
    """
    above = np.sort(new.astype(np.float64))[::-1]
    count = int((np.cumsum(1 - above) <= settings.false_new * len(above)).sum())
    least = float(above[count - 1]) if count else 1.0
    return min(max(least, settings.decided), settings.certain)


def _settled(
    detector: Detector,
    found: ClassPosterior,
    answers: PoolAnswers,
    new: Floats,
    limit: float,
    odd: Bools,
    explained: Bools,
) -> SettledVerdicts:
    decided = _settings(detector).decided
    ids = [known.id for known in detector.classes]
    columns = [*ids, *ids[: found.shifted], *found.names]
    is_new = np.array([*(not known.confirmed for known in detector.classes)])
    is_new = np.concatenate([is_new, is_new[: found.shifted], np.ones(len(found.names), bool)])
    as_known = np.where(is_new, -1.0, found.probabilities).argmax(axis=1)
    as_new = np.where(is_new, found.probabilities, -1.0).argmax(axis=1)
    moved = as_known >= len(ids)
    spread: By = "spread" if answers.told else "pool"
    told, asked = answers.told, set(answers.asked.tolist())
    verdicts: list[Verdict] = []
    classes: list[str | None] = []
    by: list[By] = []
    probability = new.copy()
    for row in range(len(new)):
        verdict, column, who = KNOWN, as_known[row], spread
        if row in told:
            column, who = int(found.probabilities[row].argmax()), "person"
            verdict = NEW if is_new[column] else KNOWN
            probability[row] = float(verdict == NEW)
        elif row in asked:
            verdict, who = UNDECIDED, "person"
        elif odd[row]:
            verdict, who = UNDECIDED, "score"
        elif new[row] >= limit and is_new.any():
            verdict, column = NEW, as_new[row]
        elif new[row] > 1 - decided:
            verdict, who = UNDECIDED, "spread" if told else "score"
        if verdict == KNOWN and (explained[row] or moved[row]) and who != "person":
            verdict = SHIFTED
        verdicts.append(verdict)
        classes.append(None if verdict == UNDECIDED else columns[column])
        by.append(who)
    near = {row: columns[column] for row, column in found.near.items()}
    return SettledVerdicts(
        tuple(verdicts), tuple(classes), probability, tuple(by), found, tuple(ids), near
    )


def _explained(
    detector: Detector, pool: Floats, sources: np.ndarray, shifted: Collection[str]
) -> Bools:
    """What its source's shift explains: it looks known once the shift is taken back."""
    explained = np.zeros(len(pool), dtype=bool)
    sketch = Sketch.of(detector) if shifted else None
    for source in shifted:
        rows = np.flatnonzero(sources == source)
        if sketch is not None and len(rows):
            found = correction_of(sketch, pool[rows], strength=0.0)
            scores, _ = score_corrected(detector, pool[rows], [found] * len(rows))
            explained[rows] = ~scores.novel
    return explained


@dataclass(frozen=True, slots=True, eq=False)
class _Unusual:
    """How the closed pool changes the odds that each sample is new, and what is odd in it.

    ``references`` are those that were measured beside the pool, with what it makes of their odds.
    """

    times: np.ndarray
    odd: Bools
    references: Ints
    reference_times: np.ndarray

    @classmethod
    def none(cls, count: int) -> _Unusual:
        """Where nothing was measured, no odds change."""
        nobody = np.empty(0, np.intp)
        return cls(np.ones(count), np.zeros(count, dtype=bool), nobody, np.empty(0))


def _unusual(
    detector: Detector,
    pool: Floats,
    sources: np.ndarray,
    explained: Bools,
    shifted: Collection[str],
    measure: Measure,
) -> _Unusual:
    """Measure the pool; images of a shifted source cannot be compared with clean references."""
    found = _Unusual.none(len(pool))
    clean = ~np.isin(sources, list(shifted))
    if clean.any():
        seen = measure(detector, pool[clean], sources[clean].tolist())
        power = _settings(detector).unusual
        found.times[clean] = _density(seen.p_known, power)
        found.odd[clean] = seen.novel
        times = _density(seen.p_usual, power)
        found = replace(found, references=seen.beside, reference_times=times)
    found.odd[~clean] = ~explained[~clean]
    return found


def _density(p_known: Floats, power: float) -> np.ndarray:
    """How much likelier a new sample has this value of p_known than a known one."""
    dense: np.ndarray = power * np.maximum(p_known.astype(np.float64), _TINY) ** (power - 1)
    return dense


def _likelier(named: np.ndarray, in_doubt: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Probabilities of something new, once the odds of what was named are multiplied."""
    raised = named.astype(np.float64) * times
    likely = raised / np.maximum(raised + 1 - named, _TINY)
    found: np.ndarray = likely + in_doubt * (1 - likely) / np.maximum(1 - named, _TINY)
    return found


def _settings(detector: Detector) -> RobustSettings:
    settings = detector.settings
    return settings if isinstance(settings, RobustSettings) else RobustSettings()
