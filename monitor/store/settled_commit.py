"""The commit point of settled verdicts: a pool's images are settled when this says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from monitor.store.atomic_files import Staged
from monitor.store.errors import StoreError, TableMismatch, WrongState
from monitor.store.faults import declare, fault_point
from monitor.store.output_files import (
    SETTLED,
    SETTLED_BY,
    SETTLED_VERDICTS,
    STAGING,
    Span,
    checked,
    output_name,
    stage_table,
)
from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.records import Count, Lease, OutputFile, Settlement
from monitor.store.store import Store, Transaction
from monitor.store.version_commit import Occurrence

declare(
    "settle.start",
    "settle.after_stage",
    "settle.after_sync",
    "settle.in_transaction",
    "settle.before_commit",
    "settle.after_commit",
    "settle.after_publish",
)

#: A retry means that a recovery took our staged file for that of a dead process. It runs once, when
#: a monitor starts.
RETRIES = 10


def commit_settled(
    store: Store,
    pool_id: int,
    revision: int,
    table: pa.Table,
    *,
    reason: str,
    counts: Sequence[Count] = (),
    events: Sequence[Occurrence] = (),
    also: Callable[[Transaction], None] | None = None,
    lease: Lease | None = None,
) -> Settlement:
    """Settle verdicts of a finished pool: all of its images first, some of them again later.

    Revision 1 holds every image of the pool. Later ones hold those whose settled verdict changes
    and follow without a gap; of several rows of an image the last one counts.

    1. A (pool, revision) that the store knows is done: its settlement is returned, nothing
       happens twice.
    2. The rows are staged under a temporary name in ``staging/`` and synced.
    3. One write transaction begins.
       a. The lease is verified, that nobody has settled this revision meanwhile, and that the
          staged file is still there. If it is gone we start again at step 1.
       b. The settlement gets the next number; output (with where its file is staged), settlement,
          counters and events are written, and what ``also`` does.
    4. The transaction commits: the verdicts are settled.
    5. The staged file gets its name, ``settled/s<number>.parquet``.

    A crash before 4 leaves a file in ``staging/`` that ``recover`` removes, one after it a file
    that ``recover`` names. A table without rows makes a settlement without a file.
    """
    _validate(pool_id, revision, table)
    for _ in range(RETRIES):
        fault_point("settle.start")
        with store.reading() as tx:
            done = _find(tx, pool_id, revision)
        if done is not None:
            return done
        staged = _stage(store, pool_id, revision, table)
        promised = False
        try:
            fault_point("settle.after_sync")
            with store.transaction(lease) as tx:
                done = _find(tx, pool_id, revision)
                lost = staged is not None and store.folder.size(staged.temporary) is None
                if done is None and not lost:
                    _refuse(tx, pool_id, revision)
                    fault_point("settle.in_transaction")
                    made = tx.settlements.add(pool_id, revision, reason=reason, rows=table.num_rows)
                    if staged is not None:
                        staged = _record(tx, made, staged)
                    tx.counters.add(counts)
                    for one in events:
                        tx.events.append(one.kind, one.payload, source=one.source)
                    if also is not None:
                        also(tx)
                    fault_point("settle.before_commit")
                    # From here on only the database knows whether it was committed.
                    promised = True
        except BaseException:
            if staged is not None and not promised:
                staged.discard()
            raise
        if promised:
            fault_point("settle.after_commit")
            if staged is not None:
                staged.settle()
            fault_point("settle.after_publish")
            return made
        if staged is not None:
            staged.discard()
    raise StoreError(
        f"pool {pool_id}: its staged verdicts were removed {RETRIES} times in a row; is a second "
        "monitor running on this state without a lease?"
    )


def _validate(pool_id: int, revision: int, table: pa.Table) -> None:
    checked(table, SETTLED)
    for column, allowed in (
        ("verdict", SETTLED_VERDICTS),
        ("by", SETTLED_BY),
        ("pool", (pool_id,)),
        ("revision", (revision,)),
    ):
        strange = set(pc.unique(table.column(column)).to_pylist()) - set(allowed)
        if strange:
            raise TableMismatch(
                f"column {column}: has {sorted(strange)[0]!r}, must have "
                f"{' or '.join(map(str, allowed))}"
            )


def _find(tx: Transaction, pool_id: int, revision: int) -> Settlement | None:
    return next((s for s in tx.settlements.of_pool(pool_id) if s.revision == revision), None)


def _refuse(tx: Transaction, pool_id: int, revision: int) -> None:
    pool = tx.pools.get(pool_id)
    if pool.state not in FINISHED_POOLS:
        raise WrongState(f"pool {pool_id}: is {pool.state}; its verdicts settle when it has ended")
    last = len(tx.settlements.of_pool(pool_id))
    if revision != last + 1:
        raise WrongState(
            f"pool {pool_id}: was settled {last} times, so the next revision is {last + 1}, "
            f"not {revision}"
        )


def _stage(store: Store, pool_id: int, revision: int, table: pa.Table) -> Staged | None:
    """Step 2. The name that it waits under says what it is; its number comes with the commit."""
    if not table.num_rows:
        return None
    name = f"settled/pool-{pool_id:09d}-{revision}.parquet"
    staged = stage_table(store.folder, name, table, into=STAGING)
    fault_point("settle.after_stage")
    try:
        store.folder.sync(STAGING)
    except BaseException:
        staged.discard()
        raise
    return staged


def _record(tx: Transaction, made: Settlement, staged: Staged) -> Staged:
    """Step 3b for the file; returns it with the name that it shall have."""
    name = output_name("settled", Span(made.number, made.number))
    tx.outputs.add(
        OutputFile(
            kind="settled",
            first=made.number,
            last=made.number,
            generation=0,
            name=name,
            rows=made.rows,
            purged=0,
            size=staged.size,
            sha256=staged.sha256,
            committed_at=tx.now,
            staged=staged.temporary,
        )
    )
    return replace(staged, name=name)
