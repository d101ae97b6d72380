"""The current settled rows of some pools: of an image's rows, the last one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.store.atomic_files import Folder
from monitor.store.output_files import SETTLED
from monitor.store.records import OutputFile
from monitor.store.recovery import settled
from monitor.store.store import Store, Transaction

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
        name = settled(store.folder, output)
        for _, batch in row_groups(
            store.folder, name, {"pool": lambda low, high: low <= most and high >= least}
        ):
            pieces.append(batch.filter(pc.is_in(batch.column("pool"), value_set=wanted)))
    return pa.Table.from_batches(pieces, SETTLED)


def row_groups(
    folder: Folder, name: str, may: dict[str, May]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The row groups of a file that may hold wanted rows, each with the number of its first row."""
    with folder.filesystem.open_input_file(folder.path(name)) as opened:
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
