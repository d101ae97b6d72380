"""A closed pool, seen by the detector in use: what is above T_inner, and what shift explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.feed.image_stats import STATS
from monitor.novelty.arrays import Floats
from monitor.novelty.drift import DriftSettings, DriftVerdict, Sketch
from monitor.novelty.drift_pool import watch
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
    """Weigh a pool, source by source."""
    found = watch(
        sketch,
        past.states,
        features,
        sources.astype(str).tolist(),
        at=past.seen_at,
        stats=stats if len(stats) else None,
        names=STATS if len(stats) else (),
        settings=settings,
    )
    parts = found.split.sources
    return Looked(
        tallies={source: Tally(part.samples, part.left) for source, part in parts.items()},
        explained={source: part.explained for source, part in parts.items() if part.explained},
        verdicts=dict(found.verdicts),
        states=dict(found.states),
    )
