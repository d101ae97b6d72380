"""Settled verdicts: the commit that settles a pool's images, and the current rows of some pools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.store.atomic_files import Folder, Staged, declare, fault_point
from monitor.store.counters_and_account import SourceSteps
from monitor.store.errors import StoreError, TableMismatch, WrongState
from monitor.store.output_columns import (
    SETTLED,
    SETTLED_BY,
    SETTLED_VERDICTS,
    Span,
    checked,
    final_name,
    output_name,
    stage_table,
)
from monitor.store.pools import FINISHED_POOLS
from monitor.store.records import Count, Lease, Occurrence, OutputFile, Settlement
from monitor.store.shared_names import STAGING
from monitor.store.store import Store, Transaction

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
    steps: Sequence[SourceSteps] = (),
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
                    tx.counters.add(counts, steps)
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


#: What names an image.
KEY = ("source_id", "image_id")

#: A merge or a purge can take a file from under our hands; it happens minutes apart, so a second
#: look finds peace.
LOOKS = 5

#: Whether a row group can hold wanted rows, by the least and greatest value of a column in it.
May = Callable[[Any, Any], bool]


def last_of_each(keys: pa.Table) -> pa.BooleanArray:
    """Which rows are current: for each image the last. Revisions of a pool come in their order.

    >>> keys = pa.table({"source_id": ["a", "a", "b", "a"], "image_id": ["1", "2", "1", "1"]})
    >>> last_of_each(keys).to_pylist()
    [False, True, True, True]
    """
    numbered = keys.select(KEY).append_column("at", pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(list(KEY)).aggregate([("at", "max")]).column("at_max")
    stands = np.zeros(keys.num_rows, dtype=bool)
    stands[last.to_numpy()] = True
    return pa.array(stands)


def standing_rows(store: Store, pool_ids: Collection[int]) -> pa.Table:
    """The current settled rows of these pools."""
    for look in reversed(range(LOOKS)):
        with store.reading() as tx:
            outputs = settled_outputs(tx, pool_ids)
        try:
            found = _read(store, outputs, pool_ids)
            return found.filter(last_of_each(found))
        except FileNotFoundError:
            if not look:
                raise
    raise AssertionError("the last look returns or raises")


def settled_outputs(tx: Transaction, pool_ids: Collection[int]) -> list[OutputFile]:
    """The files that hold settled rows of these pools, in the order of their settlements."""
    numbers = np.asarray([one.number for one in tx.settlements.of_pools(sorted(pool_ids))])
    return [
        output
        for output in (tx.outputs.of_kind("settled") if len(numbers) else ())
        if np.searchsorted(numbers, output.first) < np.searchsorted(numbers, output.last, "right")
    ]


def _read(store: Store, outputs: Sequence[OutputFile], pool_ids: Collection[int]) -> pa.Table:
    wanted = pa.array(sorted(pool_ids), pa.int64())
    least, most = min(pool_ids, default=0), max(pool_ids, default=0)
    pieces: list[pa.RecordBatch] = []
    for output in outputs:
        name = final_name(store.folder, output)
        for _, batch in row_groups(
            store.folder, name, {"pool": lambda low, high: low <= most and high >= least}
        ):
            pieces.append(batch.filter(pc.is_in(batch.column("pool"), value_set=wanted)))
    return pa.Table.from_batches(pieces, SETTLED)


def row_groups(
    folder: Folder, name: str, may: dict[str, May]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The row groups of a file that may hold wanted rows, each with the number of its first row."""
    with folder.reading(name) as opened:
        file = pq.ParquetFile(opened)
        start = 0
        for index in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(index)
            if _may_hold(group, file.schema_arrow.names, may):
                first = start
                for batch in file.iter_batches(row_groups=[index]):
                    yield first, batch
                    first += batch.num_rows
            start += group.num_rows


def _may_hold(group: pq.RowGroupMetaData, names: Sequence[str], may: dict[str, May]) -> bool:
    for column, test in may.items():
        statistics = group.column(names.index(column)).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        if not test(statistics.min, statistics.max):
            return False
    return True
