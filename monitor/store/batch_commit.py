"""The commit of batches: verdicts, rejected rows, pool members and ledger, all or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy.exc import IntegrityError

from monitor.store.atomic_files import Staged, declare, fault_point, settle_all
from monitor.store.errors import StoreError
from monitor.store.note_and_counter_names import STAGING
from monitor.store.record_states import BatchState
from monitor.store.records import Batch, Lease, OutputFile, PoolMember
from monitor.store.scored_batches import (
    FeaturesMissing,
    PlannedCommit,
    ScoredBatch,
    SpooledFeatures,
    consecutive,
    count_above,
    counter_steps,
    digests_of,
    plan_batches,
    staged_as,
)
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import (
    REJECTED,
    VERDICTS,
    Span,
    checked,
    output_name,
    spool_name,
    stage_table,
)

__all__ = ["CommittedBatch", "ScoredBatch", "commit_batches"]

declare(
    "commit.start",
    "commit.after_stage_verdicts",
    "commit.after_stage_rejected",
    "commit.after_stage_features",
    "commit.after_sync",
    "commit.in_transaction",
    "commit.before_commit",
    "commit.after_commit",
    "commit.after_publish_verdicts",
    "commit.after_publish_rejected",
    "commit.after_publish_features",
)

#: Somebody else can only take an image from us by committing it, so each retry means that
#: another writer made progress; this many in a row means that something is badly wrong.
RETRIES = 10


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The batch as the ledger has it; ``already`` when it had been committed before."""

    batch: Batch
    already: bool


class _LostRace(Exception):
    """Another writer committed one of our images or batches between the look and the lock."""


def commit_batches(
    store: Store,
    scored: Sequence[ScoredBatch],
    *,
    lease: Lease | None = None,
) -> list[CommittedBatch]:
    """Make batches done: verdicts, rejected rows, pool members, duplicates, counters, ledger.

    All of them, or none. Several in one call cost hardly more than one: batches with
    consecutive numbers share their files, and all of them share the syncs and the transaction.
    One result per batch, in the given order.

    1. Batches that the ledger calls settled are left alone: committing twice is harmless.
    2. Duplicates are decided, batch by batch in the given order: images that were committed
       before, and second occurrences among these. They leave the verdicts and the features
       and join the rejected rows with the reason ``duplicate``.
    3. Verdicts, rejected rows and features are staged, one file of each kind for every run of
       consecutive numbers (and of features for every pool): written in full under temporary
       names in ``staging/``, synced, and then their names synced, once for all. Large features
       were staged in the same way by the workers that computed them, and are not read here.
    4. One write transaction begins. It is the only writer from here to its end.
       a. The lease is verified, so a process that lost it while computing stops here.
       b. The batches are looked up again. If another writer settled one of them, or removed a
          staged file, everything is rolled back and we start again at step 1. If it was the file
          of a worker, the caller must score the batch again (``FeaturesMissing``).
       c. Ledger, file states, outputs, pool members, digests and counters are
          written. Outputs and members name the file and where it is staged. If
          another writer committed one of our images since step 2, its digest is refused,
          everything is rolled back, and we start again at step 1.
    5. The transaction commits. That is the moment at which the batches are done.
    6. The staged files get their names (rename).

    A crash before 5 leaves the batches pending and perhaps some files in ``staging/`` that no
    reader looks at; a crash after it leaves files that are committed and wait for their names.
    ``recover`` tells the two apart by what the database says, removes the first and names the
    second. A file under its name is therefore always committed, whole, and final; in the
    moment between 5 and 6 it is committed and not yet to be seen.
    """
    for one in scored:
        checked(one.verdicts, VERDICTS)
        checked(one.rejected, REJECTED)
    for _ in range(RETRIES):
        try:
            return _try(store, scored, lease)
        except _LostRace:
            continue
    raise StoreError(
        f"batches {', '.join(str(one.batch_id) for one in scored)}: other writers took their "
        f"images {RETRIES} times in a row; is a second monitor running on this state without "
        "a lease?"
    )


def _try(
    store: Store,
    scored: Sequence[ScoredBatch],
    lease: Lease | None,
) -> list[CommittedBatch]:
    fault_point("commit.start")
    with store.reading() as tx:
        ledger = tx.batches.get_many([one.batch_id for one in scored])
        fresh = _pending(scored, ledger)
        digests = [digests_of(one.verdicts) for one in fresh]
        seen = tx.seen.lookup({digest for named in digests for digest in named})
    if not fresh:
        return _results(scored, ledger, {})
    plans = plan_batches(fresh, ledger, digests, seen, store.folder)
    promised = False
    staged: list[_StagedFiles] = []
    try:
        for run in consecutive(plans):
            staged.append(_stage(store, run))
        if any(run_files.files for run_files in staged):
            store.folder.sync(STAGING)
        fault_point("commit.after_sync")
        with store.transaction(lease) as tx:
            _refuse_changes(store, tx, plans, staged)
            fault_point("commit.in_transaction")
            _record(tx, plans, staged)
            moment = tx.now
            fault_point("commit.before_commit")
            promised = True
    except BaseException:
        # Once the commit was asked for, only the database knows whether it happened (a
        # connection can break while it does), so the files are left to ``recover``. What workers
        # staged is needed again.
        if not promised:
            for run_files in staged:
                run_files.discard()
        raise
    fault_point("commit.after_commit")
    for run_files in staged:
        run_files.publish()
    for plan in plans:
        if plan.outdated is not None:
            store.folder.delete(plan.outdated)
    done = {plan.scored.batch_id: plan.outcome.settled(moment) for plan in plans}
    return _results(scored, ledger, done)


def _results(
    scored: Sequence[ScoredBatch], ledger: Mapping[int, Batch], done: Mapping[int, Batch]
) -> list[CommittedBatch]:
    """In the given order; what was settled before, or given twice, had been done already."""
    now = {**ledger, **done}
    ours = set(done)
    results = []
    for one in scored:
        results.append(CommittedBatch(now[one.batch_id], already=one.batch_id not in ours))
        ours.discard(one.batch_id)
    return results


def _pending(scored: Sequence[ScoredBatch], ledger: Mapping[int, Batch]) -> list[ScoredBatch]:
    """Step 1; of a batch that is given twice the first counts."""
    first: dict[int, ScoredBatch] = {}
    for one in scored:
        if ledger[one.batch_id].state is BatchState.PENDING:
            first.setdefault(one.batch_id, one)
    return list(first.values())


@dataclass(frozen=True, slots=True)
class _StagedFiles:
    """The files of batches with consecutive numbers: what to write of them into the database."""

    span: Span
    verdicts: Staged | None
    rejected: Staged | None
    features: tuple[Staged, ...]
    """Ours: of batches whose features came through memory."""
    spooled: tuple[Staged, ...]
    """Those that workers staged."""
    members: tuple[tuple[PoolMember, int], ...]
    """What the features bring to each pool, and how many of it lie above T_inner."""
    rows: Mapping[str, int]

    @property
    def files(self) -> list[Staged]:
        """Those that this commit staged."""
        found = (self.verdicts, self.rejected, *self.features)
        return [staged for staged in found if staged is not None]

    def discard(self) -> None:
        for staged in self.files:
            staged.discard()

    def publish(self) -> None:
        """Step 6."""
        if self.verdicts is not None:
            self.verdicts.settle()
        fault_point("commit.after_publish_verdicts")
        if self.rejected is not None:
            self.rejected.settle()
        fault_point("commit.after_publish_rejected")
        settle_all((*self.features, *self.spooled))
        fault_point("commit.after_publish_features")


def _stage(store: Store, run: Sequence[PlannedCommit]) -> _StagedFiles:
    """Step 3 for batches with consecutive numbers."""
    span = Span(run[0].scored.batch_id, run[-1].scored.batch_id)
    written: list[Staged] = []

    def stage(name: str, found: pa.Table) -> Staged | None:
        if not found.num_rows:
            return None
        written.append(stage_table(store.folder, name, found, into=STAGING))
        return written[-1]

    try:
        verdicts = pa.concat_tables([plan.scored.verdicts for plan in run])
        staged_verdicts = stage(output_name("verdicts", span), verdicts)
        fault_point("commit.after_stage_verdicts")
        rejected = pa.concat_tables([plan.scored.rejected for plan in run])
        staged_rejected = stage(output_name("rejected", span), rejected)
        fault_point("commit.after_stage_rejected")
        features: list[Staged] = []
        spooled: list[Staged] = []
        members: list[tuple[PoolMember, int]] = []
        for pool_id, part, found in _parts(run):
            if isinstance(found, SpooledFeatures):
                staged = staged_as(store.folder, found, spool_name(pool_id, part))
                spooled.append(staged)
                members.append((_member(pool_id, part, staged, found.rows), found.above))
            elif (ours := stage(spool_name(pool_id, part), found)) is not None:
                features.append(ours)
                members.append((_member(pool_id, part, ours, found.num_rows), count_above(found)))
        fault_point("commit.after_stage_features")
    except BaseException:
        for staged in written:
            staged.discard()
        raise
    rows = {"verdicts": verdicts.num_rows, "rejected": rejected.num_rows}
    return _StagedFiles(
        span,
        staged_verdicts,
        staged_rejected,
        tuple(features),
        tuple(spooled),
        tuple(members),
        rows,
    )


def _parts(
    run: Sequence[PlannedCommit],
) -> Iterator[tuple[int, Span, pa.Table | SpooledFeatures]]:
    """The files of features of consecutive batches, by pool.

    What a worker staged is a file already; neighbours in memory are joined.
    """
    together: list[PlannedCommit] = []

    def joined() -> Iterator[tuple[int, Span, pa.Table]]:
        if together:
            pool_id = together[0].scored.pool_id
            assert pool_id is not None
            span = Span(together[0].scored.batch_id, together[-1].scored.batch_id)
            yield pool_id, span, pa.concat_tables([plan.scored.features for plan in together])
        together.clear()

    for plan in run:
        scored = plan.scored
        if scored.pool_id is None or scored.features is None:
            continue
        if isinstance(scored.features, SpooledFeatures):
            yield from joined()
            yield scored.pool_id, Span(scored.batch_id, scored.batch_id), scored.features
            continue
        if together and together[0].scored.pool_id != scored.pool_id:
            yield from joined()
        together.append(plan)
    yield from joined()


def _member(pool_id: int, span: Span, staged: Staged, rows: int) -> PoolMember:
    return PoolMember(
        pool_id=pool_id,
        batch_id=span.first,
        last_batch=span.last,
        name=staged.name,
        rows=rows,
        size=staged.size,
        sha256=staged.sha256,
        staged=staged.temporary,
    )


def _refuse_changes(
    store: Store, tx: Transaction, plans: Sequence[PlannedCommit], staged: Sequence[_StagedFiles]
) -> None:
    """Step 4b."""
    ours = {plan.scored.batch_id for plan in plans}
    if tx.batches.pending_among(ours) != ours:
        raise _LostRace
    for run_files in staged:
        for file in run_files.files:
            # A recovery that took us for dead; with a lease it would have ended in 4a.
            if store.folder.size(file.temporary) is None:
                raise _LostRace
        gone = [
            span.first
            for file in run_files.spooled
            if store.folder.size(file.temporary) != file.size
            and (span := Span.parse(file.name)) is not None
        ]
        if gone:
            raise FeaturesMissing(gone)


def _record(
    tx: Transaction, plans: Sequence[PlannedCommit], staged: Sequence[_StagedFiles]
) -> None:
    """Step 4c."""
    for run_files in staged:
        _record_files(tx, run_files)
    try:
        tx.seen.add_many({plan.scored.batch_id: plan.digests for plan in plans})
    except IntegrityError as error:
        raise _LostRace from error
    tx.batches.finish([plan.outcome for plan in plans])
    tx.counters.add([count for plan in plans for count in plan.counts], counter_steps(plans))


def _record_files(tx: Transaction, files: _StagedFiles) -> None:
    span = files.span
    for kind, staged in (("verdicts", files.verdicts), ("rejected", files.rejected)):
        if staged is not None:
            tx.outputs.add(
                OutputFile(
                    kind=kind,
                    first=span.first,
                    last=span.last,
                    generation=span.generation,
                    name=staged.name,
                    rows=files.rows[kind],
                    purged=0,
                    size=staged.size,
                    sha256=staged.sha256,
                    committed_at=tx.now,
                    staged=staged.temporary,
                )
            )
    for member, above in files.members:
        tx.pools.add_member(member, above=above)
