"""Immediate and settled verdicts as one table, with all corrections; and discoveries.

Verdict files are read in their order, a row group at a time. A group of them covers a range of
batches, the settlements say which pools hold images of those batches, and only the settled rows of
these pools are in memory. Cost and memory depend on what is read, not on how often verdicts were
settled again: merging keeps one row for each image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.store.atomic_files import Folder
from monitor.store.errors import NotFound, WrongState
from monitor.store.records import ClassRow, OutputFile
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import (
    KINDS,
    KNOWN,
    NOVEL,
    SETTLED,
    SETTLED_VERDICTS,
    VERDICTS,
    completed,
    final_name,
)

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
            found = _settled_rows(store, outputs, pool_ids)
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


def _settled_rows(
    store: Store, outputs: Sequence[OutputFile], pool_ids: Collection[int]
) -> pa.Table:
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


#: What a filter can ask for: a settled verdict, or an immediate one that nothing has settled yet.
VERDICT_WORDS = (*SETTLED_VERDICTS, NOVEL)

#: Columns of a settled row, and their names in the joint table.
_SETTLED_AS = {
    "verdict": "settled_verdict",
    "class_id": "class_id",
    "class_name": "class_name",
    "probability": "probability",
    "by": "by",
    "pool": "pool",
    "revision": "revision",
    "detector_version": "settled_by_version",
}

STANDING = pa.schema(
    [
        *(
            field.with_name("verdict_immediate") if field.name == "verdict" else field
            for field in VERDICTS
        ),
        pa.field("settled_verdict", pa.string()),
        pa.field("class_id", pa.string()),
        pa.field("class_name", pa.string()),
        pa.field("probability", pa.float32()),
        pa.field("by", pa.string()),
        pa.field("pool", pa.int64()),
        pa.field("revision", pa.int32()),
        pa.field("settled_by_version", pa.int32()),
    ]
)
"""The columns of :func:`read_verdicts`; those from ``settled_verdict`` on are empty until a pool is
settled."""

#: Verdict files are read together up to about so many rows, so that a settled file which covers
#: several of them is opened once.
GROUP_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    source: str | None
    since: datetime | None
    until: datetime | None
    class_id: str | None
    verdict: str | None

    def may(self) -> dict[str, May]:
        """By what the footer of a file says, without reading it."""
        source, since, until = self.source, self.since, self.until
        tests: dict[str, May] = {}
        if source is not None:
            tests["source_id"] = lambda low, high: low <= source <= high
        if since is not None or until is not None:
            tests["captured_at"] = lambda low, high: (
                (since is None or high >= since) and (until is None or low < until)
            )
        return tests

    def immediate(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those rows that source and time allow."""
        if self.source is not None:
            rows = rows.filter(pc.equal(rows.column("source_id"), self.source))
        if self.since is not None:
            captured = rows.column("captured_at")
            rows = rows.filter(pc.greater_equal(captured, pa.scalar(self.since, captured.type)))
        if self.until is not None:
            captured = rows.column("captured_at")
            rows = rows.filter(pc.less(captured, pa.scalar(self.until, captured.type)))
        return rows

    def standing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those rows that verdict and class allow, once what was settled is known."""
        if self.verdict is not None:
            verdict = pc.coalesce(rows.column("settled_verdict"), rows.column("verdict_immediate"))
            rows = rows.filter(pc.equal(verdict, self.verdict))
        if self.class_id is not None:
            # Not settled yet, an image counts to the class that it resembles if it looks known.
            unsettled = pc.and_(
                pc.is_null(rows.column("settled_verdict")),
                pc.equal(rows.column("verdict_immediate"), KNOWN),
            )
            nearest = pc.if_else(unsettled, rows.column("nearest_class"), None)
            rows = rows.filter(
                pc.equal(pc.coalesce(rows.column("class_id"), nearest), self.class_id)
            )
        return rows

    @property
    def settled_only(self) -> bool:
        return self.verdict is not None and self.verdict not in (KNOWN, NOVEL)


def read_verdicts(
    store: Store,
    *,
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    class_: str | None = None,
    verdict: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Every image's immediate and settled verdict, in the order of the feed.

    The columns are :data:`STANDING`. Of several settled rows the last one counts; a copy of
    another image (``same_as``) has what is settled of that one. Class ids are followed through
    merges, and names are those of today, whatever the files say. ``since`` is included, ``until``
    is not; an image without a capture time is left out by either.

    ``verdict`` is the settled one (``known``, ``new``, ``shifted``, ``undecided``) or, where
    nothing is settled yet, the immediate one (``known``, ``novel``). ``class_`` is an id or a name:
    the settled class, or the nearest one of an image that looks known and is not settled yet.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     pa.Table.from_batches(read_verdicts(store), STANDING).num_rows
    0
    """
    if verdict is not None and verdict not in VERDICT_WORDS:
        raise WrongState(f"verdict {verdict!r}: is none of {', '.join(VERDICT_WORDS)}")
    with store.reading() as tx:
        classes = {row.id: tx.classes.resolve(row.id) for row in tx.classes.all()}
        class_id = None if class_ is None else find_class(tx, class_).id
        outputs = tx.outputs.of_kind("verdicts")
    wanted = _Wanted(source, since, until, class_id, verdict)
    return _stream(store, outputs, wanted, classes)


def read_discoveries(
    store: Store,
    *,
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    class_: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The images that new classes were learnt from, version by version.

    The columns are those of ``discoveries/``. Class ids are followed through merges, and names are
    those of today; the other filters are those of :func:`read_verdicts`. A class that goes on
    learning has images in several versions.
    """
    with store.reading() as tx:
        classes = {row.id: tx.classes.resolve(row.id) for row in tx.classes.all()}
        class_id = None if class_ is None else find_class(tx, class_).id
        outputs = tx.outputs.of_kind("discoveries")
    wanted = _Wanted(source, since, until, class_id, verdict=None)
    for output in outputs:
        for rows in _read(store, output, outputs, wanted.may()):
            rows = wanted.immediate(rows)
            if rows.num_rows:
                rows = _today(rows, classes)
            if class_id is not None:
                rows = rows.filter(pc.equal(rows.column("class_id"), class_id))
            if rows.num_rows:
                yield rows


def find_class(tx: Transaction, text: str) -> ClassRow:
    """The class that an id (also one merged since) or a name means; the living one first."""
    rows = tx.classes.all()
    by_id = next((row for row in rows if row.id == text), None)
    named = [row for row in rows if row.name == text]
    found = by_id or next((row for row in named if row.living), None) or next(iter(named), None)
    if found is None:
        raise NotFound(f"class {text!r}: there is no class with this id or name")
    return tx.classes.resolve(found.id)


def _stream(
    store: Store, outputs: Sequence[OutputFile], wanted: _Wanted, classes: Mapping[str, ClassRow]
) -> Iterator[pa.RecordBatch]:
    for group in _groups(outputs):
        beside = _Settled(store, group)
        if wanted.settled_only and not beside.says(wanted.verdict):
            continue
        for output in group:
            for rows in _read(store, output, outputs, wanted.may()):
                rows = wanted.immediate(rows)
                if rows.num_rows:
                    rows = wanted.standing(_today(beside.join(rows), classes))
                if rows.num_rows:
                    yield rows


def _groups(outputs: Sequence[OutputFile]) -> Iterator[list[OutputFile]]:
    group: list[OutputFile] = []
    for output in outputs:
        if group and sum(one.rows for one in group) + output.rows > GROUP_ROWS:
            yield group
            group = []
        group.append(output)
    if group:
        yield group


class _Settled:
    """The settled rows of the images in some files, read when they are needed."""

    def __init__(self, store: Store, group: Sequence[OutputFile]) -> None:
        self._store, self._first, self._last = store, group[0].first, group[-1].last
        self._loaded: tuple[pa.Table, Any] | None = None

    def says(self, verdict: str | None) -> bool:
        """Whether any of them is of this verdict."""
        return bool(pc.any(pc.equal(self._load()[0].column("verdict"), verdict)).as_py())

    def join(self, verdicts: pa.RecordBatch) -> pa.RecordBatch:
        rows, keys = self._load()
        # A copy of another image was in no pool: what is settled of that one holds for it.
        shown = pc.coalesce(verdicts.column("same_as"), verdicts.column("image_id"))
        at = pc.index_in(_joint(verdicts.column("source_id"), shown), value_set=keys)
        beside = rows.select(list(_SETTLED_AS)).take(at).combine_chunks()
        columns = [*verdicts.columns, *(_one(beside.column(name)) for name in _SETTLED_AS)]
        return pa.RecordBatch.from_arrays(columns, schema=STANDING)

    def _load(self) -> tuple[pa.Table, Any]:
        if self._loaded is None:
            with self._store.reading() as tx:
                pools = tx.settlements.pools_of_batches(self._first, self._last)
            rows = standing_rows(self._store, pools).combine_chunks()
            self._loaded = rows, _one(_keys(rows))
        return self._loaded


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _keys(rows: pa.Table | pa.RecordBatch) -> Any:
    """Source and image in one, with something between them that neither can have."""
    return _joint(*(rows.column(name) for name in KEY))


def _joint(source: Any, image: Any) -> Any:
    return pc.binary_join_element_wise(source, image, "\x00")


def _today(rows: pa.RecordBatch, classes: Mapping[str, ClassRow]) -> pa.RecordBatch:
    """Ids followed through merges, names as they are now."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for id_column, name_column in (
        ("nearest_class", "nearest_class_name"),
        ("class_id", "class_name"),
    ):
        if id_column not in columns:
            continue
        coded = columns[id_column].dictionary_encode()
        known = [classes.get(one) for one in coded.dictionary.to_pylist()]
        ids = [
            one if row is None else row.id
            for one, row in zip(coded.dictionary.to_pylist(), known, strict=True)
        ]
        names = pa.array([None if row is None else row.name for row in known], pa.string())
        columns[id_column] = pa.array(ids, pa.string()).take(coded.indices)
        # A class that this store does not know keeps the name that the file gives it.
        columns[name_column] = pc.coalesce(names.take(coded.indices), columns[name_column])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)


def _read(
    store: Store, output: OutputFile, listed: Sequence[OutputFile], may: dict[str, May]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file; if it has been merged since it was listed, its part of the merged one."""
    name, skipped = final_name(store.folder, output), 0
    begun = False
    for look in reversed(range(LOOKS)):
        try:
            for start, batch in row_groups(store.folder, name, may):
                begun = True
                first = max(start, skipped)
                last = min(start + batch.num_rows, skipped + output.rows)
                if first < last:
                    rows = batch.slice(first - start, last - first)
                    yield completed(rows, KINDS[output.kind].schema)
            return
        except FileNotFoundError:
            if begun or not look:
                raise
            name, skipped = _merged(store, output, listed)


def _merged(store: Store, output: OutputFile, listed: Sequence[OutputFile]) -> tuple[str, int]:
    """Where the rows of a file are now: merging keeps the order of its parts."""
    with store.reading() as tx:
        around = [
            one
            for one in tx.outputs.of_kind(output.kind)
            if one.first <= output.first and output.last <= one.last
        ]
    parts = [one for one in listed if around and around[0].first <= one.first <= around[0].last]
    if not around or sum(one.purged for one in parts) != around[0].purged:
        raise WrongState(f"{output.name}: was purged while it was being read; read again")
    return around[0].name, sum(one.rows for one in parts if one.first < output.first)
