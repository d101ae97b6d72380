"""Features of a batch that a worker writes for the pool itself, before the batch is committed.

Features are a hundred times larger than verdicts. Whoever computed them stages their file; the
coordinator commits its name and its hash (:mod:`monitor.store.batch_commit`), and the numbers
never pass through it. A file that is never committed is removed by ``recover``, like every staged
file that the database does not know.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from monitor.store.atomic_files import Folder, Staged, declare, fault_point
from monitor.store.errors import StoreError
from monitor.store.output_columns import read_table, stage_table
from monitor.store.shared_names import STAGING

if TYPE_CHECKING:
    from monitor.store.batch_commit_plan import ScoredBatch

declare("spool.before_stage", "spool.after_stage", "spool.after_sync")

#: Smaller features go through the coordinator, which joins those of a whole commit: a file for
#: each of them would cost it more than their bytes do.
LEAST_BYTES = 1 << 18


class FeaturesMissing(StoreError):
    """Staged features are gone; the batches must be scored again."""

    def __init__(self, batches: list[int]) -> None:
        super().__init__(f"batches {', '.join(map(str, batches))}: their staged features are gone")
        self.batches = batches


@dataclass(frozen=True, slots=True)
class SpooledFeatures:
    """A staged file of features: how large it is, and what a pool will say about it."""

    temporary: str
    size: int
    sha256: str
    rows: int
    above: int
    """Rows above T_inner."""


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """Where workers stage features. ``mark`` is a file by which they know that they see it.

    A bucket looks the same from everywhere and needs no mark; a path may name another disk, or
    nothing, on another machine.
    """

    folder: Folder
    mark: str = ""
    least_bytes: int = LEAST_BYTES

    @classmethod
    def open(cls, folder: Folder, least_bytes: int = LEAST_BYTES) -> SpoolPlace:
        """Mark the folder, until :meth:`close`."""
        mark = f"{STAGING}/.here.{uuid.uuid4().hex[:12]}.tmp" if folder.is_local else ""
        if mark:
            folder.write(mark, b"")
        return cls(folder, mark, least_bytes)

    def close(self) -> None:
        if self.mark:
            self.folder.delete(self.mark)

    @property
    def is_here(self) -> bool:
        return not self.mark or _is_here(self.folder.path(self.mark))


@cache
def _is_here(mark: str) -> bool:
    """Asked once in each process: a disk does not move from one machine to another."""
    path, _, name = mark.rpartition("/")
    return Folder.local(path).size(name) is not None


def spool_features(scored: ScoredBatch, place: SpoolPlace | None) -> ScoredBatch:
    """The batch with its features staged, if they are large and this machine sees the place."""
    features = scored.features
    if place is None or not isinstance(features, pa.Table) or not features.num_rows:
        return scored
    if features.nbytes < place.least_bytes or not place.is_here:
        return scored
    fault_point("spool.before_stage")
    name = f"features/b{scored.batch_id:012d}.parquet"
    staged = stage_table(place.folder, name, features, into=STAGING)
    fault_point("spool.after_stage")
    place.folder.sync(STAGING)
    fault_point("spool.after_sync")
    found = SpooledFeatures(
        staged.temporary, staged.size, staged.sha256, features.num_rows, count_above(features)
    )
    return replace(scored, features=found)


def staged_as(folder: Folder, found: SpooledFeatures, name: str) -> Staged:
    """As a file that shall have this name."""
    return Staged(folder, name, found.temporary, found.size, found.sha256)


def loaded(folder: Folder, scored: ScoredBatch) -> ScoredBatch:
    """The batch with its features in memory, wherever they were."""
    if not isinstance(scored.features, SpooledFeatures):
        return scored
    try:
        return replace(scored, features=read_table(folder, scored.features.temporary))
    except FileNotFoundError as error:
        raise FeaturesMissing([scored.batch_id]) from error


def discard(folder: Folder, scored: ScoredBatch) -> None:
    """Remove what was staged for a batch that will be scored again."""
    if isinstance(scored.features, SpooledFeatures):
        folder.delete(scored.features.temporary)


def count_above(samples: pa.Table) -> int:
    """How many samples lie above T_inner."""
    return int(pc.sum(pc.greater(samples.column("score_ratio"), 1.0)).as_py() or 0)
