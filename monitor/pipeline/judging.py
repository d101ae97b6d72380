"""Features to verdicts: the work of a scorer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.novelty.detector import Detector
from monitor.pipeline.embedded import EmbeddedBatch
from monitor.store.files import KNOWN, NOVEL, REJECTED, VERDICTS, features_schema, table
from monitor.store.rows import Count

#: Upper ends of the histogram of score over T_inner: narrow around 1, where verdicts turn.
BUCKETS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
LABELS = (*(f"{bucket:g}" for bucket in BUCKETS), "+Inf")


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A batch with its verdicts, ready to be committed."""

    version: int
    verdicts: pa.Table
    rejected: pa.Table
    features: pa.Table
    """The rows of ``verdicts`` with what a pool needs to be asked about."""


def judge(batch: EmbeddedBatch, detector: Detector, version: int) -> Judged:
    """Score a batch against every known class at once."""
    scores = detector.score(batch.features)
    names = np.asarray([known.name for known in detector.classes], dtype=object)
    file = batch.spec.file.path
    shared = {
        "image_id": [place.image_id for place in batch.places],
        "source_id": [place.source_id for place in batch.places],
        "captured_at": [place.captured_at for place in batch.places],
        "score": scores.score,
        "score_ratio": scores.ratio,
        "nearest_class": names[scores.nearest].tolist(),
        "file": [file] * len(batch.places),
        "row": [place.row for place in batch.places],
    }
    return Judged(
        version=version,
        verdicts=table(
            VERDICTS,
            {
                **shared,
                "p_known": scores.p_known,
                "verdict": np.where(scores.novel, NOVEL, KNOWN).tolist(),
                "detector_version": np.full(len(batch.places), version, np.int32),
            },
        ),
        rejected=table(
            REJECTED,
            {
                "image_id": [row.image_id for row in batch.rejected],
                "source_id": [row.source_id for row in batch.rejected],
                "file": [file] * len(batch.rejected),
                "row": [row.row for row in batch.rejected],
                "reason": [str(row.reason) for row in batch.rejected],
                "detail": [row.detail for row in batch.rejected],
            },
        ),
        features=table(
            features_schema(detector.dimension),
            {**shared, "features": batch.features, "stats": batch.stats},
        ),
    )


def score_counts(verdicts: pa.Table, exceedance: float) -> Iterator[Count]:
    """How the scores of some verdicts lie, by source: against T_inner, and against chance."""
    sources = verdicts.column("source_id").combine_chunks().dictionary_encode()
    names = sources.dictionary.to_pylist()
    index = sources.indices.to_numpy(zero_copy_only=False)
    ratio = verdicts.column("score_ratio").to_numpy()
    novel = pc.equal(verdicts.column("verdict"), NOVEL).to_numpy()
    buckets = np.searchsorted(BUCKETS, ratio, side="left")
    for position, source in enumerate(names):
        mine = index == position
        yield Count("above", source, "", float(novel[mine].sum()))
        yield Count("expected_above", source, "", exceedance * float(mine.sum()))
        yield Count("score_ratio_sum", source, "", float(ratio[mine].sum(dtype=np.float64)))
        filled = np.bincount(buckets[mine], minlength=len(LABELS))
        yield from (
            Count("score_ratio", source, LABELS[i], float(filled[i]))
            for i in np.flatnonzero(filled)
        )
