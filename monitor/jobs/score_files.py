"""Verdicts for a bounded set of files, on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits

from monitor.config import Config
from monitor.feed.input_contract import RejectedRow, RowIdentity
from monitor.images.image_identity import image_key
from monitor.images.reject_reasons import Reason, Rejected
from monitor.jobs.feature_stream import Part, Piece
from monitor.jobs.from_config import (
    as_fitted,
    current_version,
    load_detector,
    open_engine_of,
    open_existing_store,
)
from monitor.jobs.job_folder import JobFolder
from monitor.jobs.job_plan import FileProblem, planned_pieces
from monitor.jobs.job_tally import VerdictTally
from monitor.jobs.progress import JobProgress, Report, silent
from monitor.jobs.score_batch import (
    CopiedRow,
    ShiftCorrections,
    read_corrections,
    rejected_table,
    verdict_table,
    with_copies,
)
from monitor.jobs.taken_images import TakenImages
from monitor.novelty.detector import Detector
from monitor.store.verdict_columns import KNOWN, NOVEL, VERDICTS

# The engine gives a few dozen images at a time; scored so many together, each costs a fifth.
_SCORED_AT_ONCE = 256
_CAME_BEFORE = Rejected(Reason.DUPLICATE, "the same source and image id came before")


@dataclass(frozen=True, slots=True)
class Scored:
    """What a run found; earlier runs into the same folder over the same files are counted in."""

    out: str
    detector_version: int
    t_inner: float
    exceedance: float
    files: int
    images: int
    """Rows of the readable files, each of which has a verdict or a reason."""
    known: int
    novel: int
    rejected: int
    duplicates: int
    reused: int
    """Images that reused the features of another frame of their source."""
    rejected_by_reason: dict[str, int]
    sources: dict[str, dict[str, int]]
    problems: tuple[FileProblem, ...]
    skipped: int
    """Rows that an earlier run had done."""
    seconds: float
    images_per_second: float | None
    """Of the rows that this run did itself, the loading of the backbone not counted."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def score(
    config: Config,
    files: Sequence[str | os.PathLike[str]],
    out: str | Path,
    *,
    progress: Report = silent,
) -> Scored:
    """Score every image of some Parquet files (paths, folders, patterns) into ``out``.

    ``out/verdicts/`` gets a row for each image, ``out/rejected/`` one for each row that has no
    verdict, with its reason. Memory stays flat however many images there are. A run that was
    interrupted goes on where it stopped; a folder of another detector is refused. The first row
    of a source and image id counts, later ones are rejected as duplicates.
    """
    with open_existing_store(config) as store:
        version = current_version(store)
        with store.reading() as tx:
            corrections = read_corrections(tx)
        with open_engine_of(as_fitted(config, store)) as engine:
            detector = load_detector(store, version, engine.fingerprint)
            owner = {
                "detector_version": version.number,
                "detector_sha256": version.sha256,
                "fingerprint": engine.fingerprint.digest(),
                "shift_revision": corrections.revision,
            }
            folder = JobFolder.open(out, "verdicts", owner)
            reuse = config.feed.reuse_unchanged
            plan, pieces = planned_pieces(config, files, folder, engine, progress, reuse)
            began = time.monotonic()
            tally = VerdictTally()
            for name in plan.finished:
                tally.add_verdicts(folder.read(name, ["source_id", "verdict", "same_as"]))
                tally.add_rejected(folder.read_rejected(name))
            skipped = tally.rows
            writer = _Writer(folder, detector, version.number, corrections, tally)
            # The engine has every core. A product of two threads would wait for one of its cores
            # at each step and take twenty times as long as on a single thread.
            with threadpool_limits(1, "blas"):
                for piece in pieces:
                    writer.take(piece)
                    progress(JobProgress("score", skipped + writer.rows, plan.rows, "images"))
            seconds = time.monotonic() - began
    return Scored(
        out=str(folder.folder),
        detector_version=version.number,
        t_inner=detector.calibration.t_inner,
        exceedance=detector.calibration.exceedance,
        files=plan.files,
        images=tally.rows,
        known=tally.verdicts[KNOWN],
        novel=tally.verdicts[NOVEL],
        rejected=tally.rejected.total(),
        duplicates=tally.duplicates,
        reused=tally.reused,
        rejected_by_reason=dict(tally.rejected.most_common()),
        sources=tally.sources(),
        problems=(*plan.problems, *writer.problems),
        skipped=skipped,
        seconds=seconds,
        images_per_second=writer.rows / seconds if writer.rows and seconds else None,
    )


class _Writer:
    """Turns pieces into verdicts and writes a part when its last piece has come."""

    def __init__(
        self,
        folder: JobFolder,
        detector: Detector,
        version: int,
        corrections: ShiftCorrections,
        tally: VerdictTally,
    ) -> None:
        self._folder = folder
        self._detector = detector
        self._version = version
        self._corrections = corrections.by_source
        self._tally = tally
        self._seen = TakenImages(_keys(folder))
        self._waiting: list[Piece] = []
        self._repeated: list[int] = []
        self._verdicts: list[pa.Table] = []
        self._rejected: list[RejectedRow] = []
        self._taken: set[bytes] = set()
        self._rows = 0
        self._problems: dict[str, FileProblem] = {}

    @property
    def rows(self) -> int:
        """Rows dealt with so far."""
        return self._rows

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        return tuple(self._problems.values())

    def take(self, piece: Piece) -> None:
        rows = sorted((*piece.rows, *(copy.row for copy in piece.copies)), key=lambda one: one.row)
        fresh = self._are_first(rows)
        repeated = [row for row, first in zip(rows, fresh, strict=True) if not first]
        self._waiting.append(piece)
        self._repeated += [row.row for row in repeated]
        self._rejected += piece.rejected
        self._rejected += [row.rejected(_CAME_BEFORE) for row in repeated]
        self._rows += len(rows) + len(piece.rejected)
        if piece.last or sum(len(one.rows) for one in self._waiting) >= _SCORED_AT_ONCE:
            self._score(piece.part)
        if piece.last:
            self._finish(piece)

    def _are_first(self, rows: Sequence[RowIdentity]) -> list[bool]:
        keys = [image_key(row.source_id, row.image_id) for row in rows]
        seen = self._seen.among(keys)
        fresh = []
        for key in keys:
            fresh.append(key not in seen and key not in self._taken)
            self._taken.add(key)
        return fresh

    def _score(self, part: Part) -> None:
        """Give everything that waits its verdict."""
        waiting, self._waiting = [one for one in self._waiting if one.rows], []
        repeated, self._repeated = self._repeated, []
        if not waiting:
            return
        verdicts = verdict_table(
            part.file.path,
            [row for one in waiting for row in one.rows],
            np.concatenate([one.features for one in waiting]),
            self._detector,
            self._version,
            self._corrections,
        )
        before = accumulate((len(one.rows) for one in waiting), initial=0)
        copies = [
            CopiedRow(copy.row, n + copy.of)
            for one, n in zip(waiting, before, strict=False)
            for copy in one.copies
        ]
        verdicts = with_copies(verdicts, copies)
        if repeated:
            again = pc.is_in(verdicts.column("row"), pa.array(repeated, pa.int64()))
            verdicts = verdicts.filter(pc.invert(again))
        self._verdicts.append(verdicts)

    def _finish(self, piece: Piece) -> None:
        verdicts, rejected, taken = self._verdicts, self._rejected, self._taken
        self._verdicts, self._rejected, self._taken = [], [], set()
        if piece.failed is not None:
            # Its rows got no verdict, so their keys are free for another file.
            path = piece.part.file.path
            self._problems.setdefault(path, FileProblem.of(path, piece.failed))
            return
        found = pa.concat_tables([VERDICTS.empty_table(), *verdicts]).combine_chunks()
        refused = rejected_table(piece.part.file.path, rejected)
        self._folder.write(piece.part, found, refused)
        self._seen.add(taken)
        self._tally.add_verdicts(found)
        self._tally.add_rejected(refused)


def _keys(folder: JobFolder) -> Iterator[bytes]:
    for name in folder.done():
        found = folder.read(name, ["source_id", "image_id"])
        columns = (found.column("source_id").to_pylist(), found.column("image_id").to_pylist())
        yield from (image_key(source, image) for source, image in zip(*columns, strict=True))
