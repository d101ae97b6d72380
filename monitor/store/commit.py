"""The one commit point of the feed: a batch is done when this says so, and only then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import IntegrityError

from monitor.store.errors import BatchMismatch, StoreError
from monitor.store.faults import declare, fault_point
from monitor.store.files import (
    DUPLICATE,
    NOVEL,
    REJECTED,
    VERDICTS,
    Span,
    checked,
    output_name,
    spool_name,
    stage_table,
    table,
)
from monitor.store.folder import Staged
from monitor.store.rows import Batch, Count, Lease, Output, PoolMember
from monitor.store.seen import image_digest
from monitor.store.states import BatchState
from monitor.store.store import Store, Transaction

declare(
    "commit.start",
    "commit.after_stage_verdicts",
    "commit.after_stage_rejected",
    "commit.after_stage_features",
    "commit.in_transaction",
    "commit.after_publish_verdicts",
    "commit.after_publish_rejected",
    "commit.after_publish_features",
    "commit.before_commit",
    "commit.after_commit",
)

#: Somebody else can only take an image from us by committing it, so each retry means that
#: another writer made progress; this many in a row means that something is badly wrong.
RETRIES = 10

#: The counter of images by source and outcome (known, novel, duplicate, rejected), and the
#: one of rejected images by source and reason.
IMAGES, REJECTIONS = "images", "rejected"


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Everything that was computed for a batch, still in memory.

    ``features`` holds, for each pool that takes samples of this batch, the rows that go into
    it (``files.features_schema``). Rows of ``verdicts`` and ``rejected`` together must be the
    rows of the batch.
    """

    batch_id: int
    detector_version: int
    verdicts: pa.Table
    rejected: pa.Table
    features: Mapping[int, pa.Table] = field(default_factory=dict)
    counts: Sequence[Count] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch as the ledger has it; ``already`` when it had been committed before."""

    batch: Batch
    already: bool


class _LostRace(Exception):
    """Another writer committed one of our images between the look and the lock."""


def commit_batch(store: Store, scored: ScoredBatch, *, lease: Lease | None = None) -> Committed:
    """Make a batch done: verdicts, rejected rows, pool members, duplicates, counters, ledger.

    1. A batch that the ledger calls settled is left alone: committing twice is harmless.
    2. Duplicates are decided: images that another batch already brought, and second
       occurrences inside this one. They leave the verdicts and the features and join the
       rejected rows with the reason ``duplicate``.
    3. Verdicts, rejected rows and features are staged: written in full and made durable under
       temporary names that no reader looks at.
    4. One write transaction begins. It is the only writer from here to its end.
       a. The lease is verified, so a process that lost it while computing stops here.
       b. The batch is looked up again: settled meanwhile, we stop; still pending, we go on.
       c. The duplicates are looked up again. If another writer committed one of our images
          since step 2, everything is rolled back, the staged files are discarded, and we
          start again at step 2.
       d. The staged files get their names (rename, fsync of the folder). A file that an
          earlier, unfinished try left under the same name is replaced, or removed if this
          try has no rows of that kind.
       e. Ledger, outputs, digests, pool members, counters and the file's state are written.
    5. The transaction commits. That is the moment at which the batch is done.

    A crash before 5 leaves the batch pending and at most some files that the next try
    replaces; a crash after it leaves nothing to do. The same input gives the same files, byte
    for byte.

    What a reader may see: between 4d and 5 the files have their names although the batch is
    not done. If the process dies just there, the files are replaced by those of the next try.
    """
    _validate(scored)
    for _ in range(RETRIES):
        fault_point("commit.start")
        with store.reading() as tx:
            batch = tx.batches.get(scored.batch_id)
            if batch.state is not BatchState.PENDING:
                return Committed(batch, already=True)
            _refuse_missing_rows(batch, scored)
            plan = _plan(tx, scored)
        staged = _stage(store, plan)
        try:
            with store.transaction() as tx:
                if lease is not None:
                    tx.leases.verify(lease)
                batch = tx.batches.get(scored.batch_id)
                if batch.state is not BatchState.PENDING:
                    staged.discard()
                    return Committed(batch, already=True)
                _publish_and_record(store, tx, batch, plan, staged)
                done = tx.batches.get(scored.batch_id)
                fault_point("commit.before_commit")
            fault_point("commit.after_commit")
            return Committed(done, already=False)
        except _LostRace:
            staged.discard()
        except BaseException:
            staged.discard()
            raise
    raise StoreError(
        f"batch {scored.batch_id}: other writers took its images {RETRIES} times in a row; "
        "is a second monitor running on this state without a lease?"
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """The batch with its duplicates taken out."""

    scored: ScoredBatch
    verdicts: pa.Table
    rejected: pa.Table
    features: Mapping[int, pa.Table]
    digests: tuple[bytes, ...]
    duplicate_sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StagedFiles:
    verdicts: Staged | None
    rejected: Staged | None
    features: Mapping[int, Staged]

    def discard(self) -> None:
        for staged in (self.verdicts, self.rejected, *self.features.values()):
            if staged is not None:
                staged.discard()


def _validate(scored: ScoredBatch) -> None:
    checked(scored.verdicts, VERDICTS)
    checked(scored.rejected, REJECTED)


def _refuse_missing_rows(batch: Batch, scored: ScoredBatch) -> None:
    given = scored.verdicts.num_rows + scored.rejected.num_rows
    if given != batch.rows:
        raise BatchMismatch(
            f"batch {batch.id}: {batch.rows} rows were planned, but {scored.verdicts.num_rows} "
            f"verdicts and {scored.rejected.num_rows} rejected rows make {given}; "
            "every row needs a verdict or a reason"
        )


def _plan(tx: Transaction, scored: ScoredBatch) -> _Plan:
    """Step 2: decide the duplicates and cut them out."""
    digests = _digests(scored.verdicts)
    elsewhere = tx.seen.lookup(dict.fromkeys(digests))
    first: set[bytes] = set()
    keep: list[bool] = []
    details: list[str] = []
    for digest in digests:
        repeated = digest in elsewhere or digest in first
        keep.append(not repeated)
        if repeated:
            batch_id = elsewhere.get(digest, scored.batch_id)
            details.append(f"already seen in batch {batch_id}")
        first.add(digest)
    dropped = scored.verdicts.filter(pa.array([not kept for kept in keep], pa.bool_()))
    kept_rows = scored.verdicts.filter(pa.array(keep, pa.bool_()))
    # A feature row belongs to a verdict by its place in the feed, not by its image id: of two
    # rows with the same id the first keeps its features.
    places = set(_places(dropped))
    return _Plan(
        scored=scored,
        verdicts=kept_rows,
        rejected=pa.concat_tables([scored.rejected, _as_rejected(dropped, details)]),
        features={pool: _without(found, places) for pool, found in scored.features.items()},
        digests=tuple(digest for digest, kept in zip(digests, keep, strict=True) if kept),
        duplicate_sources=tuple(dropped.column("source_id").to_pylist()),
    )


def _digests(verdicts: pa.Table) -> list[bytes]:
    sources = verdicts.column("source_id").to_pylist()
    images = verdicts.column("image_id").to_pylist()
    return [image_digest(s, i) for s, i in zip(sources, images, strict=True)]


def _places(found: pa.Table) -> list[tuple[str, int]]:
    return list(zip(found.column("file").to_pylist(), found.column("row").to_pylist(), strict=True))


def _without(found: pa.Table, places: set[tuple[str, int]]) -> pa.Table:
    if not places:
        return found
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


def _stage(store: Store, plan: _Plan) -> _StagedFiles:
    """Step 3."""
    span = Span(plan.scored.batch_id, plan.scored.batch_id)

    def stage(name: str, found: pa.Table) -> Staged | None:
        return stage_table(store.folder, name, found) if found.num_rows else None

    verdicts = stage(output_name("verdicts", span), plan.verdicts)
    fault_point("commit.after_stage_verdicts")
    rejected = stage(output_name("rejected", span), plan.rejected)
    fault_point("commit.after_stage_rejected")
    features = {
        pool: staged
        for pool, found in plan.features.items()
        if (staged := stage(spool_name(pool, span.first), found)) is not None
    }
    fault_point("commit.after_stage_features")
    return _StagedFiles(verdicts, rejected, features)


def _publish_and_record(
    store: Store, tx: Transaction, batch: Batch, plan: _Plan, staged: _StagedFiles
) -> None:
    """Steps 4c to 4e."""
    if tx.seen.lookup(plan.digests):
        raise _LostRace
    fault_point("commit.in_transaction")
    span = Span(batch.id, batch.id)
    for kind, rows in (("verdicts", plan.verdicts), ("rejected", plan.rejected)):
        written: Staged | None = getattr(staged, kind)
        _publish(store, output_name(kind, span), written)
        fault_point(f"commit.after_publish_{kind}")
        if written is not None:
            tx.outputs.add(_output(tx, kind, span, written, rows.num_rows))
    for pool_id, found in plan.features.items():
        name = spool_name(pool_id, batch.id)
        spooled = staged.features.get(pool_id)
        _publish(store, name, spooled)
        if spooled is not None:
            tx.pools.add_member(
                PoolMember(pool_id, batch.id, name, found.num_rows, spooled.size, spooled.sha256),
                above=pc.sum(pc.greater(found.column("score_ratio"), 1.0)).as_py() or 0,
            )
    fault_point("commit.after_publish_features")
    try:
        tx.seen.add(batch.id, plan.digests)
    except IntegrityError as error:  # pragma: no cover - the look above is under the same lock
        raise _LostRace from error
    novel = pc.sum(pc.equal(plan.verdicts.column("verdict"), NOVEL)).as_py() or 0
    duplicates = len(plan.duplicate_sources)
    tx.batches.finish(
        batch.id,
        detector_version=plan.scored.detector_version,
        known=plan.verdicts.num_rows - novel,
        novel=novel,
        rejected=plan.rejected.num_rows - duplicates,
        duplicates=duplicates,
    )
    tx.files.finish_if_done(batch.file_id)
    tx.counters.add([*_image_counts(plan), *plan.scored.counts])


def _publish(store: Store, name: str, staged: Staged | None) -> None:
    """Step 4d for one file."""
    if staged is None:
        store.folder.delete(name)
    else:
        staged.publish()


def _output(tx: Transaction, kind: str, span: Span, staged: Staged, rows: int) -> Output:
    return Output(
        kind=kind,
        first=span.first,
        last=span.last,
        generation=span.generation,
        name=staged.name,
        rows=rows,
        purged=0,
        size=staged.size,
        sha256=staged.sha256,
        committed_at=tx.now,
    )


def _image_counts(plan: _Plan) -> Iterable[Count]:
    verdicts = Counter(
        zip(
            plan.verdicts.column("source_id").to_pylist(),
            plan.verdicts.column("verdict").to_pylist(),
            strict=True,
        )
    )
    verdicts.update((source, DUPLICATE) for source in plan.duplicate_sources)
    reasons = Counter(
        zip(
            plan.scored.rejected.column("source_id").to_pylist(),
            plan.scored.rejected.column("reason").to_pylist(),
            strict=True,
        )
    )
    for (source, outcome), number in verdicts.items():
        yield Count(IMAGES, source, outcome, number)
    for (source, reason), number in reasons.items():
        # A row so broken that its source cannot be read is counted under no source.
        yield Count(IMAGES, source or "", "rejected", number)
        yield Count(REJECTIONS, source or "", reason, number)
