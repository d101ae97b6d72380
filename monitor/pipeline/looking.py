"""A closed pool, seen by the detector in use: what looks strange, and what shift explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.feed.image_stats import STATS
from monitor.novelty.arrays import Floats
from monitor.novelty.drift import DriftSettings, DriftVerdict, Sketch
from monitor.novelty.drift_pool import watch
from monitor.novelty.strangeness import strange
from monitor.novelty.trigger import Tally


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """What is remembered of the sources of a pool: their drift, and when they were seen."""

    states: Mapping[str, Mapping[str, Any]]
    seen_at: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Two answers for each source: how much looks strange, and are known classes shifted?

    ``tallies`` counts what is strange once the shift of a source has been taken back, and
    ``chance`` what share of known samples would be, as ``references`` held-out ones say.
    ``above`` and ``explained`` are about T_inner: what lies above it and shift does not explain,
    and what shift does.
    """

    tallies: dict[str, Tally]
    chance: float
    references: int
    above: int
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
    names = sources.astype(str)
    found = watch(
        sketch,
        past.states,
        features,
        names.tolist(),
        at=past.seen_at,
        stats=stats if len(stats) else None,
        names=STATS if len(stats) else (),
        settings=settings,
    )
    parts = found.split.sources
    odd = strange(sketch.detector, found.split.corrected)
    return Looked(
        tallies={
            # Shift blurs as well as moves, so beside clean samples everything shifted is
            # strange; of such a source only what it leaves unexplained counts.
            source: Tally(
                part.samples,
                part.left if part.shifted else round(float(odd.samples[names == source].sum())),
            )
            for source, part in parts.items()
        },
        chance=odd.chance,
        references=odd.references,
        above=sum(part.left for part in parts.values()),
        explained={source: part.explained for source, part in parts.items() if part.explained},
        verdicts=dict(found.verdicts),
        states=dict(found.states),
    )
