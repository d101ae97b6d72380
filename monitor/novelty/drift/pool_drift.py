"""Drift of one closed pool, source by source, and what of the pool shift explains.

For each shifted source the common displacement of its known classes is taken back and the pool is
scored again. An image that is then no longer above T_inner is of a known class; what still is goes
to the trigger. Questions are also chosen with the corrected features: they go to what is new and
not to what is merely dark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.novelty.array_types import Bools, Floats, Ints
from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.sketch import Sketch, coherence
from monitor.novelty.drift.source_drift import DriftVerdict, observation, observe
from monitor.novelty.drift.source_state import Displacement


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """One source in one pool: how many lay above T_inner, and how many of them shift explains."""

    shifted: bool
    strength: float
    samples: int
    above: int
    explained: int

    @property
    def left(self) -> int:
        """Above T_inner and not explained: what a trigger should count."""
        return self.above - self.explained


@dataclass(frozen=True, slots=True, eq=False)
class ShiftSplit:
    """A pool with its shift corrected. Row for row as the features that were given."""

    corrected: Floats
    above: Bools
    explained: Bools
    sources: Mapping[str, SourceSplit]

    @property
    def share(self) -> float:
        """Of what lies above T_inner, the share that shift explains."""
        return float(self.explained.sum() / max(int(self.above.sum()), 1))


def split_by_shift(
    sketch: Sketch,
    features: Floats,
    sources: Sequence[str],
    *,
    shifted: Collection[str] | None = None,
    moved: Mapping[str, Displacement] | None = None,
) -> ShiftSplit:
    """Tell what shift explains; ``shifted`` names the sources whose verdict says so.

    Without it, each source's part of the pool is judged by itself. ``moved`` has the displacement
    of each source, where it is known already.

    >>> from monitor.novelty.detector import Detector
    >>> rng = np.random.default_rng(0)
    >>> def images(mean, n): return rng.normal(mean, 1, size=(n, 12)).astype("f")
    >>> known = np.concatenate([images(m, 80) for m in (0, 9, 18)])
    >>> sketch = Sketch.of(Detector.fit(known, ["a"] * 80 + ["b"] * 80 + ["c"] * 80))
    >>> dirt = np.array([3, -3] * 6, dtype="f")
    >>> found = split_by_shift(sketch, known + dirt, ["cam"] * 240)
    >>> found.sources["cam"].shifted, found.share > 0.9
    (True, True)
    """
    pool = sketch.detector.checked(features, "pool")
    parts, settings = rows_by_source(sources), sketch.settings
    moved = displacements(sketch, pool, parts) if moved is None else moved
    t_inner = sketch.detector.fre_calibration.t_inner
    above = sketch.detector.s0(pool) > t_inner
    explained = np.zeros(len(pool), dtype=bool)
    corrected = np.array(pool)
    by_source: dict[str, SourceSplit] = {}
    for source, rows in parts.items():
        found = coherence(moved[source], settings=settings)
        is_shifted = (
            min(found.evidence, found.across) >= settings.alone_evidence
            and found.strength >= settings.alone_strength
            if shifted is None
            else source in shifted
        )
        if is_shifted:
            corrected[rows] = pool[rows] - sketch.shift(pool[rows])
            limit = t_inner * wider(sketch, corrected[rows])
            explained[rows] = above[rows] & (sketch.detector.s0(corrected[rows]) <= limit)
        by_source[source] = SourceSplit(
            is_shifted,
            round(found.strength, 4),
            len(rows),
            int(above[rows].sum()),
            int(explained[rows].sum()),
        )
    return ShiftSplit(corrected, above, explained, by_source)


def rows_by_source(sources: Sequence[str]) -> dict[str, Ints]:
    """The rows of each source, in their order; sources by name.

    >>> {source: rows.tolist() for source, rows in rows_by_source(["b", "a", "b"]).items()}
    {'a': [1], 'b': [0, 2]}
    """
    names, index = np.unique(np.asarray(sources, dtype=np.str_), return_inverse=True)
    cuts = np.cumsum(np.bincount(index, minlength=len(names)))[:-1]
    rows = np.split(np.argsort(index, kind="stable"), cuts)
    return dict(zip(names.tolist(), rows, strict=True)) if len(names) else {}


def displacements(
    sketch: Sketch, pool: Floats, parts: Mapping[str, Ints]
) -> dict[str, Displacement]:
    """The displacement of each source of a pool."""
    owners = np.empty(len(pool), np.intp)
    for number, rows in enumerate(parts.values()):
        owners[rows] = number
    return dict(zip(parts, sketch.displacements(pool, owners, len(parts)), strict=True))


def wider(sketch: Sketch, features: Floats) -> float:
    """By what factor FRE has grown where samples lie clearly in a class; never below one."""
    errors = sketch.detector.fre(features), sketch.detector.reference_fre()
    here, there = (
        np.log(np.maximum(found.min(axis=1)[sketch.clearest(found)[0]], 1e-30)) for found in errors
    )
    if not len(here) or not len(there):
        return 1.0
    return float(
        np.clip(np.exp(np.median(here) - np.median(there)), 1.0, sketch.settings.wider_most)
    )


@dataclass(frozen=True, slots=True, eq=False)
class PoolDrift:
    """The states to keep by source, a verdict on each, and what shift explains of the pool."""

    states: Mapping[str, dict[str, Any]]
    verdicts: Mapping[str, DriftVerdict]
    split: ShiftSplit

    @property
    def shifted(self) -> tuple[str, ...]:
        """The sources whose known classes are shifted."""
        return tuple(source for source, verdict in self.verdicts.items() if verdict.shifted)


def observe_pool(
    sketch: Sketch,
    states: Mapping[str, Mapping[str, Any]],
    features: Floats,
    sources: Sequence[str],
    *,
    at: float | Mapping[str, float],
    stats: np.ndarray | None = None,
    names: tuple[str, ...] = (),
    settings: DriftSettings = DRIFT_DEFAULTS,
) -> PoolDrift:
    """Observe every source of a pool, then take back the shift of those that are shifted.

    ``stats`` has a row for each image, as the features have; ``at`` is when the pool, or each of
    its sources, was captured, in POSIX seconds. Sources that the pool does not show keep their
    state. A shift so strong that this pool alone shows it is taken back before its alarm is
    raised, which takes a pool or two, and also while the normal look is still being learnt.

    >>> from monitor.novelty.detector import Detector
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(c, 1, size=(60, 8)) for c in (0, 6, 12)]).astype("f")
    >>> sketch = Sketch.of(Detector.fit(x, ["a"] * 60 + ["b"] * 60 + ["c"] * 60))
    >>> found = observe_pool(sketch, {}, x, ["cam"] * 180, at=0.0)
    >>> found.verdicts["cam"].learning, found.shifted
    (19, ())
    """
    parts = rows_by_source(sources)
    moved = displacements(sketch, features, parts)
    after = {source: dict(state) for source, state in states.items()}
    verdicts: dict[str, DriftVerdict] = {}
    for source, rows in parts.items():
        seen = observation(
            sketch,
            source,
            features[rows],
            at=at if isinstance(at, float) else at[source],
            stats=None if stats is None else stats[rows],
            names=names,
            moved=moved[source],
        )
        after[source], verdicts[source] = observe(states.get(source), seen, settings)
    split = split_by_shift(sketch, features, sources, moved=moved)
    alone = {source for source, part in split.sources.items() if part.shifted}
    shifted = alone | {source for source, verdict in verdicts.items() if verdict.shifted}
    if shifted != alone:
        split = split_by_shift(sketch, features, sources, shifted=shifted, moved=moved)
    return PoolDrift(after, verdicts, split)
