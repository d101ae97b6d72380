"""Features as Parquet, for people who want to look at them elsewhere."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from monitor.backbones.engine import Features
from monitor.config import Config
from monitor.feed.input_contract import RejectedRow, RowIdentity
from monitor.jobs.feature_stream import Part, Piece
from monitor.jobs.from_config import open_engine_of
from monitor.jobs.job_folder import JobFolder
from monitor.jobs.job_plan import FileProblem, planned_pieces
from monitor.jobs.progress import JobProgress, Report, silent
from monitor.jobs.score_batch import rejected_table
from monitor.store.verdict_columns import table


def features_table_schema(dimension: int) -> pa.Schema:
    """Identity, label if there is one, and the feature vector."""
    return pa.schema(
        [
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("source_id", pa.string(), nullable=False),
            pa.field("captured_at", pa.timestamp("us", tz="UTC")),
            pa.field("label", pa.string()),
            pa.field("file", pa.string(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("features", pa.list_(pa.float32(), dimension), nullable=False),
        ]
    )


@dataclass(frozen=True, slots=True)
class EmbeddedFiles:
    """What a run wrote; parts that an earlier run had done are in ``skipped``."""

    out: str
    backbone: str
    precision: str
    dimension: int
    files: int
    images: int
    rejected: int
    rejected_by_reason: dict[str, int]
    problems: tuple[FileProblem, ...]
    skipped: int
    seconds: float
    images_per_second: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def embed(
    config: Config,
    files: Sequence[str | os.PathLike[str]],
    out: str | Path,
    *,
    progress: Report = silent,
) -> EmbeddedFiles:
    """Write the features of every image of some Parquet files to ``out/features/``.

    Rows that cannot be embedded are in ``out/rejected/`` with their reason. Images that occur
    twice are embedded twice: here a row is a row. Resumable, as ``score`` is.
    """
    with open_engine_of(config) as engine:
        fingerprint = engine.fingerprint
        folder = JobFolder.open(out, "features", {"fingerprint": asdict(fingerprint)})
        plan, pieces = planned_pieces(config, files, folder, engine, progress)
        skipped = plan.rows - sum(part.rows for part in plan.open)
        writer = _Writer(folder, fingerprint.dimension)
        began = time.monotonic()
        for piece in pieces:
            writer.take(piece)
            progress(JobProgress("embed", skipped + writer.rows, plan.rows, "images"))
        seconds = time.monotonic() - began
    return EmbeddedFiles(
        out=str(folder.folder),
        backbone=fingerprint.backbone,
        precision=fingerprint.precision,
        dimension=fingerprint.dimension,
        files=plan.files,
        images=writer.rows - writer.reasons.total(),
        rejected=writer.reasons.total(),
        rejected_by_reason=dict(writer.reasons.most_common()),
        problems=(*plan.problems, *writer.problems),
        skipped=skipped,
        seconds=seconds,
        images_per_second=writer.rows / seconds if writer.rows and seconds else None,
    )


class _Writer:
    """Gathers the features of a part and writes them when its last piece has come."""

    def __init__(self, folder: JobFolder, dimension: int) -> None:
        self._folder = folder
        self._dimension = dimension
        self._found: list[RowIdentity] = []
        self._features: list[Features] = []
        self._rejected: list[RejectedRow] = []
        self.rows = 0
        self.reasons: Counter[str] = Counter()
        self.problems: tuple[FileProblem, ...] = ()

    def take(self, piece: Piece) -> None:
        self._found += piece.rows
        self._features.append(piece.features)
        self._rejected += piece.rejected
        self.rows += len(piece.rows) + len(piece.rejected)
        if not piece.last:
            return
        if piece.failed is not None:
            problem = FileProblem.of(piece.part.file.path, piece.failed)
            if problem not in self.problems:
                self.problems = (*self.problems, problem)
            self.rows -= len(self._found) + len(self._rejected)
        else:
            self.reasons.update(str(row.reason) for row in self._rejected)
            rejected = rejected_table(piece.part.file.path, self._rejected)
            self._folder.write(piece.part, self._table(piece.part), rejected)
        self._found, self._features, self._rejected = [], [], []

    def _table(self, part: Part) -> pa.Table:
        rows = self._found
        empty = np.empty((0, self._dimension), np.float32)
        return table(
            features_table_schema(self._dimension),
            {
                "image_id": [row.image_id for row in rows],
                "source_id": [row.source_id for row in rows],
                "captured_at": [row.captured_at for row in rows],
                "label": [row.label for row in rows],
                "file": [part.file.path] * len(rows),
                "row": [row.row for row in rows],
                "features": np.concatenate([empty, *self._features]),
            },
        )
