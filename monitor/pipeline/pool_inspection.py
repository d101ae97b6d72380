"""A pool, seen by the detector in use: what seems new in it, and what shift explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import betabinom

from monitor.images.image_stats import STATS
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Calibration
from monitor.novelty.drift.pool_drift import SourceSplit, observe_pool, rows_by_source
from monitor.novelty.drift.shift_correction import ShiftCorrection, correction_of
from monitor.novelty.drift.source_drift import DriftSettings, DriftVerdict, Sketch
from monitor.novelty.drift.source_state import packed, unpacked
from monitor.novelty.trigger.measure_pool_novelty import Measure, measure_novelty
from monitor.novelty.trigger.trigger_decision import Evidence


@dataclass(frozen=True, slots=True, eq=False)
class SourceHistory:
    """What is remembered of the sources of a pool: their packed drift, and when they were seen."""

    states: Mapping[str, str]
    seen_at: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class PoolInspection:
    """Two answers for each source: does something seem new, and are known classes shifted?

    ``seen`` is what the trigger weighs, once the shift of a source is taken back. ``novel`` has
    of each source how many images the look at the whole pool calls new, ``explained`` how many
    lie above T_inner because of a shift. ``corrections`` has the sources that are to be judged with
    their shift corrected; ``calm`` are those that show none.
    """

    seen: Evidence
    images: dict[str, int]
    novel: dict[str, int]
    explained: dict[str, int]
    verdicts: dict[str, DriftVerdict]
    states: dict[str, str]
    judged: tuple[str, ...]
    """The sources with a verdict of this pool; others showed too little and keep what they had."""
    corrections: dict[str, ShiftCorrection] = field(default_factory=dict)
    calm: tuple[str, ...] = ()


def inspect_pool(
    sketch: Sketch,
    features: Floats,
    sources: np.ndarray,
    stats: Floats,
    past: SourceHistory,
    settings: DriftSettings,
    *,
    seed: int = 0,
    measure: Measure = measure_novelty,
) -> PoolInspection:
    """Weigh a pool, source by source."""
    names = sources.astype(str)
    before = {source: unpacked(state) for source, state in past.states.items()}
    found = observe_pool(
        sketch,
        before,
        features,
        names.tolist(),
        at=past.seen_at,
        stats=stats if len(stats) else None,
        names=STATS if len(stats) else (),
        settings=settings,
    )
    parts = found.split.sources
    shifted = [source for source, part in parts.items() if part.shifted]
    clean = ~np.isin(names, shifted)
    novel = {source: part.left for source, part in parts.items() if part.shifted}
    strength: Mapping[str, float] = {}
    references = 0
    if clean.any():
        # Shift blurs as well as moves, so beside clean references everything shifted looks new;
        # of such a source only what the shift leaves unexplained counts.
        seen = measure(sketch.detector, features[clean], names[clean].tolist(), seed=seed)
        strength, references = seen.strength, seen.references
        rows = rows_by_source(names[clean].tolist())
        novel |= {source: int(seen.novel[mine].sum()) for source, mine in rows.items()}
    calibration = sketch.detector.fre_calibration
    judged = tuple(s for s in found.verdicts if found.states[s]["waiting"] is None)
    return PoolInspection(
        seen=Evidence(
            strength=strength,
            images=int(clean.sum()),
            references=references,
            shifted={s: _left_by_chance(parts[s], calibration) for s in shifted},
        ),
        images={source: part.samples for source, part in parts.items()},
        novel=novel,
        explained={source: part.explained for source, part in parts.items() if part.explained},
        verdicts={s: found.verdicts[s] for s in judged}
        | {s: v for s, v in found.verdicts.items() if v.shifted},
        states={source: packed(state) for source, state in found.states.items()},
        corrections={
            source: correction_of(
                sketch,
                features[names == source],
                strength=parts[source].strength,
                since=before[source]["last"] if source in before else None,
            )
            for source in shifted
            if parts[source].samples >= settings.least_images
        },
        calm=tuple(
            source
            for source, part in parts.items()
            if not part.shifted and part.samples >= settings.least_images
        ),
        judged=judged,
    )


def _left_by_chance(part: SourceSplit, calibration: Calibration) -> float:
    """How likely chance leaves as many images of a shifted source above T_inner."""
    above = calibration.exceedance * calibration.count
    return float(
        betabinom.sf(part.left - 1, part.samples, above + 1, calibration.count - above + 1)
    )
