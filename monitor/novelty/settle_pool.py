"""What became of every image of a pool, once the pool is over: known, new, shifted or undecided.

The verdict on a single image is given at once, with what the detector knew then. When its pool is
over, the other images of the pool and people's answers have spoken as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.novelty.arrays import Bools, Floats, Ints
from monitor.novelty.detector import Detector
from monitor.novelty.drift.shift_correction import correction_of, score_corrected
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.labeller import PoolAnswers
from monitor.novelty.robust.class_posterior import ClassPosterior, pool_posterior
from monitor.novelty.robust.settings import RobustSettings
from monitor.novelty.trigger.pool_novelty import measure_novelty

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
    features = detector.checked(pool, "pool")
    given = PoolAnswers.none(detector).plus(list(answers), list(answers.values()))
    found = pool_posterior(detector, features, given)
    names = np.asarray(sources if len(sources) else [""] * len(features), dtype=np.str_)
    explained = _explained(detector, features, names, shifted)
    unconfirmed = [i for i, known in enumerate(detector.classes) if not known.confirmed]
    new: np.ndarray = found.new + found.probabilities[:, unconfirmed].sum(axis=1)
    odd = np.zeros(len(features), dtype=bool)
    if found.names or not unconfirmed:
        times, odd = _unusual(detector, features, names, explained, shifted, seed)
        if found.names:
            # A name that people gave explains what is odd.
            odd[:] = False
            named = _likelier(found.new, times)
            new = named + (new - found.new) * (1 - named) / np.maximum(1 - found.new, _TINY)
        else:
            new = _likelier(np.full(len(features), _settings(detector).rare), times)
    return _settled(detector, found, given, new.astype(np.float32), odd, explained)


def _settled(
    detector: Detector,
    found: ClassPosterior,
    answers: PoolAnswers,
    new: Floats,
    odd: Bools,
    explained: Bools,
) -> SettledVerdicts:
    settings = _settings(detector)
    decided, limit = settings.decided, _limit(new[answers.unasked(len(new))], settings)
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


def _limit(new: Floats, settings: RobustSettings) -> float:
    """The probability from which samples are settled as new: few known ones are expected above it.

    >>> sure, torn = np.full(10, 0.999), np.full(10, 0.7)
    >>> pool = np.concatenate([sure, torn, np.zeros(180)]).astype(np.float32)
    >>> round(_limit(pool, RobustSettings()), 2), round(_limit(pool[:20], RobustSettings()), 2)
    (0.7, 0.9)
    """
    above = np.sort(new.astype(np.float64))[::-1]
    count = int((np.cumsum(1 - above) <= settings.false_new * len(above)).sum())
    least = float(above[count - 1]) if count else 1.0
    return min(max(least, settings.decided), settings.certain)


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


def _unusual(
    detector: Detector,
    pool: Floats,
    sources: np.ndarray,
    explained: Bools,
    shifted: Collection[str],
    seed: int,
) -> tuple[np.ndarray, Bools]:
    """How the closed pool changes the odds that each sample is new, and what is odd in it.

    Images of a shifted source cannot be compared with clean references: their odds stay.
    """
    settings = _settings(detector)
    times = np.ones(len(pool))
    odd = np.zeros(len(pool), dtype=bool)
    clean = ~np.isin(sources, list(shifted))
    if clean.any():
        seen = measure_novelty(detector, pool[clean], sources[clean].tolist(), seed=seed)
        p_known = np.maximum(seen.p_known.astype(np.float64), _TINY)
        times[clean] = settings.unusual * p_known ** (settings.unusual - 1)
        odd[clean] = seen.novel
    odd[~clean] = ~explained[~clean]
    return times, odd


def _likelier(probability: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Probabilities whose odds are multiplied."""
    raised = probability.astype(np.float64) * times
    found: np.ndarray = raised / np.maximum(raised + 1 - probability, _TINY)
    return found


def _settings(detector: Detector) -> RobustSettings:
    settings = detector.settings
    return settings if isinstance(settings, RobustSettings) else RobustSettings()
