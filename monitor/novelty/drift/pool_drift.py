"""Drift of one closed pool, source by source: the one call that a monitor makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.drift.explained_by_shift import (
    ShiftSplit,
    displacements,
    rows_by_source,
    split_by_shift,
)
from monitor.novelty.drift.settings import DRIFT_DEFAULTS, DriftSettings
from monitor.novelty.drift.sketch import Sketch
from monitor.novelty.drift.source_drift import DriftVerdict, observation, observe


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
    alone = split_by_shift(sketch, features, sources, moved=moved).sources
    shifted = [
        source for source, verdict in verdicts.items() if verdict.shifted or alone[source].shifted
    ]
    split = split_by_shift(sketch, features, sources, shifted=shifted, moved=moved)
    return PoolDrift(after, verdicts, split)
