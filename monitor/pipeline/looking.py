"""A closed pool, seen by the detector in use: what is above T_inner, and what shift explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.feed.image_stats import STATS
from monitor.novelty.arrays import Floats
from monitor.novelty.drift import DriftSettings, DriftVerdict, Sketch, observation, observe
from monitor.novelty.drift_split import split
from monitor.novelty.trigger import Tally


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """What is remembered of the sources of a pool: their drift, and when they were seen."""

    states: Mapping[str, Mapping[str, Any]]
    seen_at: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Two answers for each source: how much is unexplained, and are known classes shifted?

    ``tallies`` leaves out what the shift of a source explains. ``explained`` says how much that
    was.
    """

    tallies: dict[str, Tally]
    explained: dict[str, int]
    verdicts: dict[str, DriftVerdict]
    states: dict[str, dict[str, Any]]


def look(
    sketch: Sketch,
    features: Floats,
    sources: np.ndarray,
    stats: Floats,
    past: Past,
    settings: DriftSettings,
) -> Looked:
    """Weigh a pool, source by source.

    While a source's normal look is still being learnt, its part of the pool is judged by itself.
    """
    names = sources.astype(str)
    states: dict[str, dict[str, Any]] = {}
    verdicts: dict[str, DriftVerdict] = {}
    for source in np.unique(names).tolist():
        rows = np.flatnonzero(names == source)
        seen = observation(
            sketch,
            source,
            features[rows],
            at=past.seen_at[source],
            stats=stats[rows] if len(stats) else None,
            names=STATS if len(stats) else (),
        )
        states[source], verdicts[source] = observe(past.states.get(source), seen, settings)
    judged = split(sketch, features, names.tolist())
    shifted = {
        source
        for source, verdict in verdicts.items()
        if (judged.sources[source].shifted if verdict.learning else verdict.shifted)
    }
    found = split(sketch, features, names.tolist(), shifted=shifted)
    return Looked(
        tallies={s: Tally(part.samples, part.left) for s, part in found.sources.items()},
        explained={s: part.explained for s, part in found.sources.items() if part.explained},
        verdicts=verdicts,
        states=states,
    )
