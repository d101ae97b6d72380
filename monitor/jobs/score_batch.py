"""An embedded batch to a scored one: one way for `conclad score` and for `conclad run`.

Rows of a source that is shifted are judged with its correction, which the store keeps. Separate
from the embedding, so that a scorer does not load the framework of a backbone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.input_contract import RejectedRow, RowIdentity
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.drift.shift_correction import ShiftCorrection, score_corrected
from monitor.store import ScoredBatch, Transaction
from monitor.store.note_and_counter_names import (
    REUSE_CHANGE,
    REUSE_CHECKS,
    SHIFT_REVISION,
    SHIFTS,
)
from monitor.store.records import Count
from monitor.store.verdict_columns import KNOWN, NOVEL, REJECTED, VERDICTS, features_schema, table


@dataclass(frozen=True, slots=True, eq=False)
class ShiftCorrections:
    """The corrections in use by source. Every change of any of them has a revision of its own."""

    revision: int = 0
    by_source: Mapping[str, ShiftCorrection] = field(default_factory=dict)


#: Where no source is shifted.
UNCORRECTED = ShiftCorrections()


def corrections_revision(tx: Transaction) -> int:
    """The revision in use, without reading the corrections themselves."""
    return int(tx.notes.get(*SHIFT_REVISION, 0))


def read_corrections(tx: Transaction) -> ShiftCorrections:
    kept = tx.notes.all(SHIFTS)
    return ShiftCorrections(
        corrections_revision(tx), {s: ShiftCorrection.from_json(c) for s, c in kept.items()}
    )


def verdict_table(
    file: str,
    rows: Sequence[RowIdentity],
    features: Floats,
    detector: Detector,
    version: int,
    corrections: Mapping[str, ShiftCorrection] = UNCORRECTED.by_source,
) -> pa.Table:
    """The verdicts of some rows of a file, scored against every known class at once.

    Rows of sources with a correction are judged with the shift of the source corrected.
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


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """A row whose image shows what another row of the batch shows, which was embedded."""

    row: RowIdentity
    of: int
    """The place of that row among the embedded ones."""


def with_copies(verdicts: pa.Table, copies: Sequence[CopiedRow]) -> pa.Table:
    """The verdicts of embedded rows and of their copies, in the order of the file.

    A copy has the verdict of the image that it shows, and says so.
    """
    if not copies:
        return verdicts
    copied = verdicts.take(pa.array([copy.of for copy in copies], pa.int64()))
    own: dict[str, list[Any]] = {
        "image_id": [copy.row.image_id for copy in copies],
        "captured_at": [copy.row.captured_at for copy in copies],
        "same_as": copied.column("image_id").to_pylist(),
        "row": [copy.row.row for copy in copies],
    }
    for name, values in own.items():
        at = VERDICTS.get_field_index(name)
        copied = copied.set_column(at, VERDICTS.field(name), pa.array(values, VERDICTS.types[at]))
    return pa.concat_tables([verdicts, copied]).sort_by("row")


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


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedBatch:
    """What became of each row of a batch; ``rows``, ``features`` and ``stats`` go together."""

    planned: PlannedBatch
    rows: tuple[RowIdentity, ...]
    features: Floats
    stats: Floats
    """How each image was taken, in the figures of :mod:`monitor.images.image_stats`."""
    rejected: tuple[RejectedRow, ...]
    copies: tuple[CopiedRow, ...] = ()
    """Rows without features of their own: they have the verdict of another, and join no pool."""
    checked: tuple[tuple[int, int], ...] = ()
    """Rows that could have been copies and were embedded to see what that costs, and of which."""


def _reuse_counts(batch: EmbeddedBatch, verdicts: pa.Table) -> list[Count]:
    """By source: images that could have been copies, and by how much their scores differ."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    ratios = verdicts.column("score_ratio").to_numpy()
    for one, other in batch.checked:
        source = batch.rows[one].source_id
        found[REUSE_CHECKS, source] += 1
        found[REUSE_CHANGE, source] += abs(float(ratios[one]) - float(ratios[other]))
    return [Count(name, source, "", value) for (name, source), value in found.items()]


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
        verdicts=with_copies(verdicts, batch.copies),
        rejected=rejected_table(file, batch.rejected),
        features=pool_sample_table(verdicts, batch.rows, batch.features, batch.stats),
        exceedance=detector.calibration.exceedance,
        shift_revision=corrections.revision,
        counts=_reuse_counts(batch, verdicts),
    )
