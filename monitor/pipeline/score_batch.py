"""An embedded batch to a scored one: the work of a scorer.

Separate from the embedding, so that a scorer does not load the framework of a backbone.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.row_parsing import RejectedRow, RowIdentity
from monitor.jobs.shift_corrections import UNCORRECTED, ShiftCorrections
from monitor.jobs.verdict_table import pool_sample_table, rejected_table, verdict_table
from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.store import ScoredBatch


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedBatch:
    """What became of each row of a batch; ``rows``, ``features`` and ``stats`` go together."""

    planned: PlannedBatch
    rows: tuple[RowIdentity, ...]
    features: Floats
    stats: Floats
    """How each image was taken, in the figures of :mod:`monitor.images.image_stats`."""
    rejected: tuple[RejectedRow, ...]


def score_batch(
    batch_id: int,
    batch: EmbeddedBatch,
    detector: Detector,
    version: int,
    corrections: ShiftCorrections = UNCORRECTED,
) -> ScoredBatch:
    """Every row of a batch with its verdict or its reason."""
    file = batch.planned.file.path
    verdicts = verdict_table(
        file, batch.rows, batch.features, detector, version, corrections.by_source
    )
    return ScoredBatch(
        batch_id=batch_id,
        detector_version=version,
        verdicts=verdicts,
        rejected=rejected_table(file, batch.rejected),
        features=pool_sample_table(verdicts, batch.rows, batch.features, batch.stats),
        exceedance=detector.calibration.exceedance,
        shift_revision=corrections.revision,
    )
