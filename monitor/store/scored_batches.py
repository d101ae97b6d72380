"""Scored batches: what was computed for them, where their features are, what a commit will write.

Features are a hundred times larger than verdicts. Whoever computed them stages their file; the
coordinator commits its name and its hash (:mod:`monitor.store.batch_commit`), and the numbers
never pass through it. A file that is never committed is removed by ``recover``, like every staged
file that the database does not know.

What a commit writes is decided before anything is written: duplicates out, rows counted.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.images.image_identity import image_key
from monitor.store.atomic_files import Folder, Staged, declare, fault_point
from monitor.store.counters_and_image_account import SourceSteps
from monitor.store.errors import BatchMismatch, StoreError
from monitor.store.ledger import BatchOutcome
from monitor.store.note_and_counter_names import BATCHES, IMAGES, REJECTIONS, REUSED, STAGING
from monitor.store.records import Batch, Count
from monitor.store.verdict_columns import (
    DUPLICATE,
    KNOWN,
    NOVEL,
    REJECTED,
    read_table,
    stage_table,
    table,
)

declare("spool.before_stage", "spool.after_stage", "spool.after_sync")

#: Smaller features go through the coordinator, which joins those of a whole commit: a file for
#: each of them would cost it more than their bytes do.
LEAST_BYTES = 1 << 18

#: Upper ends of the histogram of score over T_inner: narrow around 1, where verdicts turn.
BORDERS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
LABELS = (*(f"{border:g}" for border in BORDERS), "+Inf")


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
class ScoredBatch:
    """Everything that was computed for a batch, still in memory.

    Rows of ``verdicts`` and ``rejected`` together must be the rows of the batch. ``features`` holds
    the rows that join the pool ``pool_id`` (``verdict_columns.features_schema``), or names the file
    in which a worker has staged them. With ``exceedance``, the share of known images above T_inner,
    the scores are counted. ``shift_revision`` says which corrections of shifted sources the
    verdicts were given with.
    """

    batch_id: int
    detector_version: int
    verdicts: pa.Table
    rejected: pa.Table
    features: pa.Table | SpooledFeatures | None = None
    pool_id: int | None = None
    counts: Sequence[Count] = ()
    exceedance: float | None = None
    shift_revision: int = 0

    @property
    def samples(self) -> int:
        """Rows that join the pool."""
        if isinstance(self.features, SpooledFeatures):
            return self.features.rows
        return 0 if self.features is None else int(self.features.num_rows)


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
    """As a file that will have this name."""
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


def verdict_steps(verdicts: pa.Table, exceedance: float | None) -> SourceSteps:
    """Images by source and verdict; with ``exceedance`` also how their scores lie.

    That is the histogram, and how many lie above T_inner and were expected to; a copy of another
    image is no evidence and is left out of it. Nothing is said of what is zero: thousands of
    sources may be named in one commit.
    """
    sources = verdicts.column("source_id").combine_chunks().dictionary_encode()
    names = sources.dictionary.to_pylist()
    index = sources.indices.to_numpy(zero_copy_only=False)
    novel = pc.equal(verdicts.column("verdict"), NOVEL).to_numpy()

    def each(of: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None = None) -> Any:
        return np.bincount(of, weights, len(names))

    images, above = each(index), each(index[novel])
    own = verdicts.column("same_as").is_null().to_numpy()
    rises = {
        (IMAGES, KNOWN): images - above,
        (IMAGES, NOVEL): above,
        (REUSED, ""): each(index[~own]),
    }
    if exceedance is not None:
        index, novel = index[own], novel[own]
        ratio = verdicts.column("score_ratio").to_numpy()[own]
        rises["above", ""] = each(index[novel])
        rises["expected_above", ""] = exceedance * each(index)
        rises["score_ratio_sum", ""] = each(index, ratio)
        bins = np.searchsorted(BORDERS, ratio, side="left")
        for which in np.unique(bins).tolist():
            rises["score_ratio", LABELS[which]] = each(index[bins == which])
    present = {key: np.flatnonzero(values) for key, values in rises.items()}
    return SourceSteps(names, {key: (at, rises[key][at]) for key, at in present.items() if len(at)})


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """A batch whose duplicates are among its rejected rows, and what the ledger will say of it."""

    scored: ScoredBatch
    outcome: BatchOutcome
    digests: tuple[bytes, ...]
    counts: tuple[Count, ...]
    """But for those of its verdicts (:func:`counter_steps`)."""
    outdated: str | None = None
    """Staged features that hold duplicates; those without them are in memory."""


def plan_batches(
    scored: Sequence[ScoredBatch],
    ledger: Mapping[int, Batch],
    digests: Sequence[Sequence[bytes]],
    seen: Mapping[bytes, int],
    folder: Folder,
) -> list[PlannedCommit]:
    """Decide the duplicates, in the order of the batches.

    ``digests`` name the images of each batch (:func:`digests_of`), ``seen`` those that earlier
    commits brought. ``folder`` is where staged features are.
    """
    known = dict(seen)
    plans = []
    for one, named in zip(scored, digests, strict=True):
        batch = ledger[one.batch_id]
        _refuse_missing_rows(batch, one)
        plans.append(_plan(one, batch, named, known, folder))
    return plans


def digests_of(verdicts: pa.Table) -> list[bytes]:
    sources = verdicts.column("source_id").to_pylist()
    images = verdicts.column("image_id").to_pylist()
    return [image_key(s, i) for s, i in zip(sources, images, strict=True)]


def consecutive(plans: Sequence[PlannedCommit]) -> Iterator[Sequence[PlannedCommit]]:
    """Batches without a gap between their numbers, which share files, in the order of the numbers.

    A file is named after the first and the last batch in it, and hides other files inside that
    range from readers; over a gap it would hide the batch that is still to come.
    """
    plans = sorted(plans, key=lambda plan: plan.scored.batch_id)
    ids = [plan.scored.batch_id for plan in plans]
    cuts = [index for index, (a, b) in enumerate(pairwise(ids), start=1) if b != a + 1]
    for start, end in pairwise([0, *cuts, len(plans)]):
        if end > start:
            yield plans[start:end]


def _refuse_missing_rows(batch: Batch, scored: ScoredBatch) -> None:
    given = scored.verdicts.num_rows + scored.rejected.num_rows
    if given != batch.rows:
        raise BatchMismatch(
            f"batch {batch.id}: {batch.rows} rows were planned, but {scored.verdicts.num_rows} "
            f"verdicts and {scored.rejected.num_rows} rejected rows make {given}; "
            "every row needs a verdict or a reason"
        )


def _plan(
    scored: ScoredBatch,
    batch: Batch,
    digests: Sequence[bytes],
    known: dict[bytes, int],
    folder: Folder,
) -> PlannedCommit:
    """One batch; its own images join ``known``, so that later rows meet them."""
    keep: list[bool] = []
    details: list[str] = []
    for digest in digests:
        brought_by = known.get(digest)
        keep.append(brought_by is None)
        if brought_by is None:
            known[digest] = batch.id
        else:
            details.append(f"already seen in batch {brought_by}")
    if details:
        digests = [digest for digest, kept in zip(digests, keep, strict=True) if kept]
    staged = scored.features.temporary if isinstance(scored.features, SpooledFeatures) else None
    unique = _without_duplicates(loaded(folder, scored), keep, details) if details else scored
    novel = pc.sum(pc.equal(unique.verdicts.column("verdict"), NOVEL)).as_py() or 0
    duplicates = unique.rejected.slice(scored.rejected.num_rows).column("source_id").to_pylist()
    return PlannedCommit(
        scored=unique,
        outcome=BatchOutcome(
            batch=batch,
            detector_version=scored.detector_version,
            known=unique.verdicts.num_rows - novel,
            novel=novel,
            rejected=scored.rejected.num_rows,
            duplicates=len(duplicates),
        ),
        digests=tuple(digests),
        counts=(
            Count(BATCHES, "", "done", 1),
            *(Count(IMAGES, source, DUPLICATE, n) for source, n in Counter(duplicates).items()),
            *_reasons(scored.rejected),
            *scored.counts,
        ),
        outdated=staged if details else None,
    )


def counter_steps(plans: Sequence[PlannedCommit]) -> list[SourceSteps]:
    """What the verdicts of all of these batches add to the counters of their sources."""
    by_rate: dict[float | None, list[pa.Table]] = {}
    for plan in plans:
        by_rate.setdefault(plan.scored.exceedance, []).append(plan.scored.verdicts)
    return [verdict_steps(pa.concat_tables(some), rate) for rate, some in by_rate.items()]


def _without_duplicates(
    scored: ScoredBatch, keep: Sequence[bool], details: list[str]
) -> ScoredBatch:
    """Duplicates leave the verdicts and the features and join the rejected rows."""
    dropped = scored.verdicts.filter(pa.array([not kept for kept in keep], pa.bool_()))
    # A feature row belongs to a verdict by its place in the feed, not by its image id: of two
    # rows with the same id the first keeps its features.
    places = set(_places(dropped))
    return replace(
        scored,
        verdicts=scored.verdicts.filter(pa.array(keep, pa.bool_())),
        rejected=pa.concat_tables([scored.rejected, _as_rejected(dropped, details)]),
        features=None if scored.features is None else _without(scored.features, places),
    )


def _reasons(rejected: pa.Table) -> Iterator[Count]:
    pairs = zip(
        rejected.column("source_id").to_pylist(),
        rejected.column("reason").to_pylist(),
        strict=True,
    )
    for (source, reason), number in Counter(pairs).items():
        # A row so broken that its source cannot be read is counted under no source.
        yield Count(IMAGES, source or "", "rejected", number)
        yield Count(REJECTIONS, source or "", reason, number)


def _places(found: pa.Table) -> list[tuple[str, int]]:
    return list(zip(found.column("file").to_pylist(), found.column("row").to_pylist(), strict=True))


def _without(found: pa.Table, places: set[tuple[str, int]]) -> pa.Table:
    return found.filter(pa.array([place not in places for place in _places(found)], pa.bool_()))


def _as_rejected(dropped: pa.Table, details: list[str]) -> pa.Table:
    return table(
        REJECTED,
        {
            **{name: dropped.column(name) for name in ("image_id", "source_id", "file", "row")},
            "reason": [DUPLICATE] * len(details),
            "detail": details,
        },
    )
