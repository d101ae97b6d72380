"""Verdicts for a bounded set of files, on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from monitor.config import Config
from monitor.feed.duplicates import Identities, sample_key
from monitor.feed.engine import Features
from monitor.feed.reasons import Reason
from monitor.feed.rows import RejectedRow
from monitor.jobs.outputs import JobFolder, rejected_table
from monitor.jobs.parts import (
    current_version,
    load_detector,
    open_engine_of,
    open_existing_store,
)
from monitor.jobs.plan import Problem
from monitor.jobs.progress import Progress, Report, silent
from monitor.jobs.stream import Part, Piece, Place
from monitor.jobs.tally import Tally
from monitor.jobs.work import planned_pieces
from monitor.novelty.detector import Detector
from monitor.store.files import KNOWN, NOVEL, VERDICTS, table

# The engine gives a few dozen images at a time; judged so many together, each costs a fifth.
_JUDGED_AT_ONCE = 256


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
    rejected_by_reason: dict[str, int]
    sources: dict[str, dict[str, int]]
    problems: tuple[Problem, ...]
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
        with open_engine_of(config) as engine:
            detector = load_detector(store, version, engine.fingerprint)
            owner = {
                "detector_version": version.number,
                "detector_sha256": version.sha256,
                "fingerprint": engine.fingerprint.digest(),
            }
            folder = JobFolder.open(out, "verdicts", owner)
            plan, pieces = planned_pieces(config, files, folder, engine, progress)
            began = time.monotonic()
            tally = Tally()
            for name in plan.finished:
                tally.add_verdicts(folder.read(name, ["source_id", "verdict"]))
                tally.add_rejected(folder.read_rejected(name))
            skipped = tally.rows
            writer = _Writer(folder, detector, version.number, tally)
            # The engine has every core. A product of two threads would wait for one of its cores
            # at each step and take twenty times as long as on a single thread.
            with threadpool_limits(1, "blas"):
                for piece in pieces:
                    writer.take(piece)
                    progress(Progress("score", skipped + writer.rows, plan.rows, "images"))
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
        rejected_by_reason=dict(tally.rejected.most_common()),
        sources=tally.sources(),
        problems=(*plan.problems, *writer.problems),
        skipped=skipped,
        seconds=seconds,
        images_per_second=writer.rows / seconds if writer.rows and seconds else None,
    )


class _Writer:
    """Turns pieces into verdicts and writes a part when its last piece has come."""

    def __init__(self, folder: JobFolder, detector: Detector, version: int, tally: Tally) -> None:
        self._folder = folder
        self._detector = detector
        self._version = version
        self._tally = tally
        self._names = [known.name for known in detector.classes]
        self._seen = Identities(_identities(folder))
        self._waiting: list[tuple[list[Place], Features]] = []
        self._verdicts: list[pa.Table] = []
        self._rejected: list[RejectedRow] = []
        self._taken: set[bytes] = set()
        self._rows = 0
        self._problems: dict[str, Problem] = {}

    @property
    def rows(self) -> int:
        """Rows dealt with so far."""
        return self._rows

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems.values())

    def take(self, piece: Piece) -> None:
        fresh = self._are_first(piece.places)
        if any(fresh):
            places = [place for place, first in zip(piece.places, fresh, strict=True) if first]
            self._waiting.append((places, piece.features[np.asarray(fresh)]))
        self._rejected += piece.rejected
        self._rejected += [
            RejectedRow(
                place.row,
                Reason.DUPLICATE,
                "the same source and image id came before",
                place.image_id,
                place.source_id,
                place.captured_at,
            )
            for place, first in zip(piece.places, fresh, strict=True)
            if not first
        ]
        self._rows += len(piece.places) + len(piece.rejected)
        if piece.last or sum(len(places) for places, _ in self._waiting) >= _JUDGED_AT_ONCE:
            self._judge(piece.part)
        if piece.last:
            self._finish(piece)

    def _are_first(self, places: Sequence[Place]) -> list[bool]:
        keys = [sample_key(place.source_id, place.image_id) for place in places]
        seen = self._seen.among(keys)
        fresh = []
        for key in keys:
            fresh.append(key not in seen and key not in self._taken)
            self._taken.add(key)
        return fresh

    def _judge(self, part: Part) -> None:
        """Give everything that waits its verdict."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        places = [place for some, _ in waiting for place in some]
        scores = self._detector.score(np.concatenate([features for _, features in waiting]))
        columns = {
            "image_id": [place.image_id for place in places],
            "source_id": [place.source_id for place in places],
            "captured_at": [place.captured_at for place in places],
            "score": scores.score,
            "score_ratio": scores.ratio,
            "p_known": scores.p_known,
            "verdict": np.where(scores.novel, NOVEL, KNOWN).tolist(),
            "nearest_class": [self._names[i] for i in scores.nearest],
            "detector_version": np.full(len(places), self._version, np.int32),
            "file": [part.file.path] * len(places),
            "row": [place.row for place in places],
        }
        self._verdicts.append(table(VERDICTS, columns))

    def _finish(self, piece: Piece) -> None:
        verdicts, rejected, taken = self._verdicts, self._rejected, self._taken
        self._verdicts, self._rejected, self._taken = [], [], set()
        if piece.failed is not None:
            # Its rows got no verdict, so their identities are free for another file.
            path = piece.part.file.path
            self._problems.setdefault(path, Problem.of(path, piece.failed))
            return
        found = pa.concat_tables([VERDICTS.empty_table(), *verdicts]).combine_chunks()
        refused = rejected_table(piece.part, rejected)
        self._folder.write(piece.part, found, refused)
        self._seen.add(taken)
        self._tally.add_verdicts(found)
        self._tally.add_rejected(refused)


def _identities(folder: JobFolder) -> Iterator[bytes]:
    for name in folder.done():
        found = folder.read(name, ["source_id", "image_id"])
        columns = (found.column("source_id").to_pylist(), found.column("image_id").to_pylist())
        yield from (sample_key(source, image) for source, image in zip(*columns, strict=True))
