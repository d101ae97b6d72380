"""What a commit will write, decided before anything is written: duplicates out, rows counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from monitor.store.errors import BatchMismatch
from monitor.store.files import DUPLICATE, NOVEL, REJECTED, VERDICTS, Span, checked, table
from monitor.store.ledger import Outcome
from monitor.store.rows import Batch, Count
from monitor.store.seen import image_digest

#: The counter of images by source and outcome (known, novel, duplicate, rejected), and the
#: one of rejected images by source and reason.
IMAGES, REJECTIONS = "images", "rejected"


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Everything that was computed for a batch, still in memory.

    ``features`` holds, for each pool that takes samples of this batch, the rows that go into
    it (``files.features_schema``). Rows of ``verdicts`` and ``rejected`` together must be the
    rows of the batch. ``counting`` is asked what to count of the verdicts that stay once the
    duplicates are out.
    """

    batch_id: int
    detector_version: int
    verdicts: pa.Table
    rejected: pa.Table
    features: Mapping[int, pa.Table] = field(default_factory=dict)
    counts: Sequence[Count] = ()
    counting: Callable[[pa.Table], Iterable[Count]] | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch with its duplicates taken out."""

    outcome: Outcome
    verdicts: pa.Table
    rejected: pa.Table
    features: Mapping[int, pa.Table]
    digests: tuple[bytes, ...]
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Batches with consecutive numbers, whose rows share files."""

    span: Span
    verdicts: pa.Table
    rejected: pa.Table
    features: Mapping[int, pa.Table]


def validate(scored: ScoredBatch) -> None:
    checked(scored.verdicts, VERDICTS)
    checked(scored.rejected, REJECTED)


def plan_batches(
    scored: Sequence[ScoredBatch],
    ledger: Mapping[int, Batch],
    digests: Sequence[Sequence[bytes]],
    seen: Mapping[bytes, int],
) -> list[BatchPlan]:
    """Decide the duplicates, in the order of the batches.

    ``digests`` name the images of each batch (:func:`digests_of`), ``seen`` those that earlier
    commits brought.
    """
    known = dict(seen)
    plans = []
    for one, named in zip(scored, digests, strict=True):
        batch = ledger[one.batch_id]
        _refuse_missing_rows(batch, one)
        plans.append(_plan(one, batch, named, known))
    return plans


def digests_of(verdicts: pa.Table) -> list[bytes]:
    sources = verdicts.column("source_id").to_pylist()
    images = verdicts.column("image_id").to_pylist()
    return [image_digest(s, i) for s, i in zip(sources, images, strict=True)]


def runs(plans: Sequence[BatchPlan]) -> list[RunPlan]:
    """Gather batches without a gap between their numbers, in the order of the numbers.

    A file is named after the first and the last batch in it, and hides other files inside that
    range from readers; over a gap it would hide the batch that is still to come.
    """
    return [
        RunPlan(
            span=Span(run[0].outcome.batch.id, run[-1].outcome.batch.id),
            verdicts=pa.concat_tables([plan.verdicts for plan in run]),
            rejected=pa.concat_tables([plan.rejected for plan in run]),
            features=_gather(run),
        )
        for run in _consecutive(sorted(plans, key=lambda plan: plan.outcome.batch.id))
    ]


def _consecutive(plans: Sequence[BatchPlan]) -> Iterator[Sequence[BatchPlan]]:
    ids = [plan.outcome.batch.id for plan in plans]
    cuts = [index for index, (a, b) in enumerate(pairwise(ids), start=1) if b != a + 1]
    for start, end in pairwise([0, *cuts, len(plans)]):
        if end > start:
            yield plans[start:end]


def _gather(run: Sequence[BatchPlan]) -> dict[int, pa.Table]:
    pools = dict.fromkeys(pool for plan in run for pool in plan.features)
    gathered = {
        pool: pa.concat_tables([plan.features[pool] for plan in run if pool in plan.features])
        for pool in pools
    }
    return {pool: found for pool, found in gathered.items() if found.num_rows}


def _refuse_missing_rows(batch: Batch, scored: ScoredBatch) -> None:
    given = scored.verdicts.num_rows + scored.rejected.num_rows
    if given != batch.rows:
        raise BatchMismatch(
            f"batch {batch.id}: {batch.rows} rows were planned, but {scored.verdicts.num_rows} "
            f"verdicts and {scored.rejected.num_rows} rejected rows make {given}; "
            "every row needs a verdict or a reason"
        )


def _plan(
    scored: ScoredBatch, batch: Batch, digests: Sequence[bytes], known: dict[bytes, int]
) -> BatchPlan:
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
    if not details:
        return _cut(scored, batch, digests, scored.verdicts, scored.rejected, scored.features)
    dropped = scored.verdicts.filter(pa.array([not kept for kept in keep], pa.bool_()))
    # A feature row belongs to a verdict by its place in the feed, not by its image id: of two
    # rows with the same id the first keeps its features.
    places = set(_places(dropped))
    return _cut(
        scored,
        batch,
        [digest for digest, kept in zip(digests, keep, strict=True) if kept],
        scored.verdicts.filter(pa.array(keep, pa.bool_())),
        pa.concat_tables([scored.rejected, _as_rejected(dropped, details)]),
        {pool: _without(found, places) for pool, found in scored.features.items()},
    )


def _cut(
    scored: ScoredBatch,
    batch: Batch,
    digests: Sequence[bytes],
    verdicts: pa.Table,
    rejected: pa.Table,
    features: Mapping[int, pa.Table],
) -> BatchPlan:
    words = verdicts.column("verdict").to_pylist()
    novel = words.count(NOVEL)
    duplicates = rejected.slice(scored.rejected.num_rows).column("source_id").to_pylist()
    images = Counter(zip(verdicts.column("source_id").to_pylist(), words, strict=True))
    images.update((source, DUPLICATE) for source in duplicates)
    return BatchPlan(
        outcome=Outcome(
            batch=batch,
            detector_version=scored.detector_version,
            known=len(words) - novel,
            novel=novel,
            rejected=scored.rejected.num_rows,
            duplicates=len(duplicates),
        ),
        verdicts=verdicts,
        rejected=rejected,
        features=features,
        digests=tuple(digests),
        counts=(
            *(Count(IMAGES, source, word, number) for (source, word), number in images.items()),
            *_reasons(scored.rejected),
            *scored.counts,
            *(scored.counting(verdicts) if scored.counting is not None else ()),
        ),
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
