"""What of a pool is explained by shift, and what is left to be news.

For each shifted source the common displacement of its known classes is taken back and the pool
is scored again. What no longer lies above T_inner was a known class seen through a dirty lens;
what still does is the business of the trigger. The corrected features are also the better ones
to ask about: with them, first questions go to what is new and not to what is merely dark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.novelty.arrays import Bools, Floats, Ints, as_features
from monitor.novelty.drift.sketch import Displacement, Sketch, coherence


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
    """A pool with its shift taken back. Row for row as the features that were given."""

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
    pool = as_features(features, dimension=sketch.detector.dimension, what="pool")
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
            found.evidence >= settings.alone_evidence and found.strength >= settings.alone_strength
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
