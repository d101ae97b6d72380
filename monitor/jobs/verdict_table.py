"""The tables that scoring gives: one way for `conclad score` and for `conclad run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from monitor.feed.row_parsing import RejectedRow, RowIdentity
from monitor.jobs.shift_corrections import UNCORRECTED
from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.shift_correction import ShiftCorrection, score_corrected
from monitor.store.output_files import KNOWN, NOVEL, REJECTED, VERDICTS, features_schema, table


def verdict_table(
    file: str,
    rows: Sequence[RowIdentity],
    features: Floats,
    detector: Detector,
    version: int,
    corrections: Mapping[str, ShiftCorrection] = UNCORRECTED.by_source,
) -> pa.Table:
    """The verdicts of some rows of a file, scored against every known class at once.

    Rows of sources with a correction are judged with the shift of the source taken back.
    """
    applied = [_applied(row, corrections) for row in rows]
    scores, corrected = score_corrected(detector, features, applied)
    ids = np.asarray([known.id for known in detector.classes], dtype=object)
    names = np.asarray([known.name for known in detector.classes], dtype=object)
    return table(
        VERDICTS,
        {
            "image_id": [row.image_id for row in rows],
            "source_id": [row.source_id for row in rows],
            "captured_at": [row.captured_at for row in rows],
            "score": scores.score,
            "score_ratio": scores.ratio,
            "p_known": scores.p_known,
            "verdict": np.where(scores.novel, NOVEL, KNOWN).tolist(),
            "nearest_class": ids[scores.nearest].tolist(),
            "nearest_class_name": names[scores.nearest].tolist(),
            "shift_corrected": [
                one.strength if one is not None and used else None
                for one, used in zip(applied, corrected, strict=True)
            ],
            "detector_version": np.full(len(rows), version, np.int32),
            "file": [file] * len(rows),
            "row": [row.row for row in rows],
        },
    )


def _applied(
    row: RowIdentity, corrections: Mapping[str, ShiftCorrection]
) -> ShiftCorrection | None:
    """The correction of the row's source, unless the image was taken before the shift began."""
    found = corrections.get(row.source_id)
    if found is None or found.since is None or row.captured_at is None:
        return found
    return found if row.captured_at.timestamp() > found.since else None


def rejected_table(file: str, rejected: Iterable[RejectedRow]) -> pa.Table:
    """The rows of a file that have no verdict, in its order."""
    rows = sorted(rejected, key=lambda row: row.row)
    return table(
        REJECTED,
        {
            "image_id": [row.image_id for row in rows],
            "source_id": [row.source_id for row in rows],
            "file": [file] * len(rows),
            "row": [row.row for row in rows],
            "reason": [str(row.reason) for row in rows],
            "detail": [row.detail for row in rows],
        },
    )


def pool_sample_table(
    verdicts: pa.Table, rows: Sequence[RowIdentity], features: Floats, stats: Floats
) -> pa.Table:
    """The rows of ``verdicts`` with what a pool needs to be inspected and asked about."""
    schema = features_schema(features.shape[1])
    shared = {name: verdicts.column(name) for name in schema.names if name in verdicts.schema.names}
    digests = [row.digest for row in rows]
    own = {"image_digest": digests, "features": features, "stats": stats}
    return table(schema, {**shared, **own})
