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


#: The two measures of what seems new. A class that no subspace reconstructs shows in the first
#: with few held-out samples; one that a rich subspace reconstructs shows in the second alone.
ABOVE, STRANGE = "above T_inner", "strange"


@dataclass(frozen=True, slots=True)
class Counted:
    """Samples of each source that seem new by one measure, and how many would by chance.

    ``chance`` is the share of known samples, as ``references`` held-out ones tell.
    """

    tallies: dict[str, Tally]
    chance: float
    references: int


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Two answers for each source: how much seems new, and are known classes shifted?

    ``counted`` is how much seems new, once the shift of a source is taken back, by each measure:
    what lies above T_inner, and what looks strange beside held-out samples. ``explained`` is
    what lies above T_inner and shift explains.
    """

    counted: dict[str, Counted]
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
    calibration = sketch.detector.calibration
    above = {source: Tally(part.samples, part.left) for source, part in parts.items()}
    oddities = {
        # Shift blurs as well as moves, so beside clean samples everything shifted is strange;
        # of such a source only what it leaves unexplained counts.
        source: above[source]
        if part.shifted
        else Tally(part.samples, round(float(odd.samples[names == source].sum())))
        for source, part in parts.items()
    }
    return Looked(
        counted={
            ABOVE: Counted(above, calibration.exceedance, calibration.count),
            STRANGE: Counted(oddities, odd.chance, odd.references),
        },
        explained={source: part.explained for source, part in parts.items() if part.explained},
        verdicts=dict(found.verdicts),
        states=dict(found.states),
    )
