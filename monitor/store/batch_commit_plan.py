"""What a commit will write, decided before anything is written: duplicates out, rows counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.images.image_identity import image_key
from monitor.store.atomic_files import Folder
from monitor.store.counters_and_account import SourceSteps
from monitor.store.errors import BatchMismatch
from monitor.store.ledger import BatchOutcome
from monitor.store.output_columns import DUPLICATE, KNOWN, NOVEL, REJECTED, table
from monitor.store.records import Batch, Count
from monitor.store.shared_names import BATCHES, IMAGES, REJECTIONS, REUSED
from monitor.store.spooled_features import SpooledFeatures, loaded

#: Upper ends of the histogram of score over T_inner: narrow around 1, where verdicts turn.
BORDERS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
LABELS = (*(f"{border:g}" for border in BORDERS), "+Inf")


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
class ScoredBatch:
    """Everything that was computed for a batch, still in memory.

    Rows of ``verdicts`` and ``rejected`` together must be the rows of the batch. ``features`` holds
    the rows that join the pool ``pool_id`` (``output_columns.features_schema``), or names the file
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
