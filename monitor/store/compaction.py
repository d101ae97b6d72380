"""Merging many small output files into few, without a reader ever seeing a row twice.

The reader's rule (``verdict_columns.py``) makes this possible: a merged file hides the files it was
made of from the moment it has its name, so there is no instant at which both count, or neither.

1. Leftovers of a compaction that died are cleared: a merged file that the store does not know
   (its parts are all still there), and parts whose merged file the store does know.
2. Neighbouring files are chosen whose whole range of numbers is settled: no batch in it is
   still to come, so the merged file hides nothing but its own parts.
3. The merged file is staged, row group by row group, so memory stays flat. Of settled verdicts
   only the last row of an image goes in: the ones before it say what no longer holds.
4. One transaction: if all parts still stand, the merged file gets its name, and the store
   replaces the parts by it.
5. The parts are deleted.

A crash before 4 leaves a temporary file; inside 4, a merged file that hides its parts and
holds the same rows, cleared by the next step 1; after 4, parts that no reader looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.store.atomic_files import Folder, declare, fault_point
from monitor.store.read_verdicts import KEY, last_of_each
from monitor.store.records import Lease, OutputFile
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import (
    KINDS,
    Span,
    completed,
    covered,
    final_name,
    output_name,
)

declare(
    "compact.start",
    "compact.after_clear",
    "compact.after_stage",
    "compact.after_publish",
    "compact.before_commit",
    "compact.after_commit",
    "compact.after_delete",
)

#: About 50 MB of verdicts: large enough that a year is a few hundred files, small enough to be
#: rewritten in seconds.
TARGET_ROWS = 1_000_000

#: Rows gathered before they are written: a row group that readers can skip through cheaply.
ROW_GROUP = 100_000

#: Fewer files than this are not merged.
LEAST_FILES = 8

#: A merge takes seconds; a process that has not finished after this has died.
LEASE_TIME = timedelta(minutes=10)

COMPACTED = ("verdicts", "rejected", "discoveries", "settled")


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many files became how many."""

    kind: str
    merged: int
    into: int


def compact(
    store: Store,
    kind: str,
    *,
    owner: str,
    target_rows: int = TARGET_ROWS,
    least_files: int = LEAST_FILES,
) -> Compacted:
    """Merge what can be merged in one folder of outputs."""
    fault_point("compact.start")
    lease = store.acquire_lease(f"compact:{kind}", owner, LEASE_TIME)
    try:
        clear_leftovers(store, kind)
        fault_point("compact.after_clear")
        with store.reading() as tx:
            runs = list(_runs(tx, kind, target_rows, least_files))
        done = [run for run in runs if _merge(store, kind, run, lease)]
        return Compacted(kind, merged=sum(map(len, done)), into=len(done))
    finally:
        store.release_lease(lease)


def leftovers(store: Store, tx: Transaction, kind: str) -> list[str]:
    """Redundant files: parts of a merged file, or a merged file whose parts all stand.

    The second is only believed when every part is there on disk; after a restore of an older
    database the merged file may be all that is left, and must not be touched.
    """
    names = {e.name for e in store.folder.list(kind) if Span.parse(e.name) is not None}
    known = {output.name: output for output in tx.outputs.of_kind(kind)}
    strangers = names - set(known)
    hidden = covered([*known, *(name for name in strangers if not _is_rewritten(name))])
    return sorted(
        name
        for name in strangers
        if (_parts_stand(name, known, names) if _is_rewritten(name) else name in hidden)
    )


def clear_leftovers(store: Store, kind: str) -> list[str]:
    """Step 1. Holding the write lock, so no file can be on its way to being known."""
    with store.transaction() as tx:
        gone = leftovers(store, tx, kind)
        for name in gone:
            store.folder.delete(name)
    return gone


def _is_rewritten(name: str) -> bool:
    """Whether a file was made from others: merged, or rewritten by a purge."""
    span = Span.parse(name)
    return span is not None and (span.first != span.last or span.generation > 0)


def _parts_stand(name: str, known: Mapping[str, OutputFile], on_disk: Collection[str]) -> bool:
    span = Span.parse(name)
    parts = [
        output.name
        for output in known.values()
        if span is not None and span.first <= output.last and output.first <= span.last
    ]
    return bool(parts) and all(part in on_disk for part in parts)


def _runs(
    tx: Transaction, kind: str, target_rows: int, least_files: int
) -> Iterator[tuple[OutputFile, ...]]:
    """Step 2: runs of neighbours that are worth merging."""
    for group in _groups(tx, kind, target_rows):
        run = _without_large_head(group)
        if len(run) >= least_files:
            yield run


def _groups(tx: Transaction, kind: str, target_rows: int) -> Iterator[tuple[OutputFile, ...]]:
    """Neighbours with nothing still to come between them, up to the target together."""
    group: list[OutputFile] = []
    total = 0
    for output in tx.outputs.of_kind(kind):
        joined = not group or _settled(tx, kind, group[-1].last, output.first)
        if not joined or total + output.rows > target_rows:
            yield tuple(group)
            group, total = [], 0
        group.append(output)
        total += output.rows
    yield tuple(group)


def _without_large_head(group: tuple[OutputFile, ...]) -> tuple[OutputFile, ...]:
    """Leave out what is larger than all that follows it.

    It waits until its followers have grown, so a row is rewritten a few times in its life (the
    logarithm of the target), not every time that a handful of small files has gathered.
    """
    rest = sum(output.rows for output in group)
    for index, output in enumerate(group):
        rest -= output.rows
        if output.rows <= rest:
            return group[index:]
    return ()


def _settled(tx: Transaction, kind: str, after: int, before: int) -> bool:
    """Whether no number between the two can bring a file any more.

    Numbers are given out in commit order, so one that is missing will stay missing.
    """
    if after + 1 >= before:
        return True
    if KINDS[kind].letter == "b":
        return tx.batches.first_pending_between(after + 1, before - 1) is None
    if KINDS[kind].letter == "s":
        return True
    return not any(after < output.first < before for output in tx.outputs.of_kind("held"))


def _merge(store: Store, kind: str, parts: Sequence[OutputFile], lease: Lease) -> bool:
    """Steps 3 to 5; False when the parts changed in between (a purge), which is no harm."""
    span = Span(parts[0].first, parts[-1].last)
    name = output_name(kind, span)
    names = [final_name(store.folder, part) for part in parts]
    merged = _Merged(store.folder, kind, names)
    staged = store.folder.stage(name, merged.write)
    fault_point("compact.after_stage")
    try:
        with store.transaction() as tx:
            tx.leases.verify(lease)
            replaced = tx.outputs.replace(
                parts,
                OutputFile(
                    kind=kind,
                    first=span.first,
                    last=span.last,
                    generation=0,
                    name=name,
                    rows=merged.rows,
                    purged=sum(part.purged for part in parts),
                    size=staged.size,
                    sha256=staged.sha256,
                    committed_at=max(part.committed_at for part in parts),
                ),
            )
            if replaced:
                staged.publish()
                fault_point("compact.after_publish")
                fault_point("compact.before_commit")
    except BaseException:
        staged.discard()
        raise
    if not replaced:
        staged.discard()
        return False
    fault_point("compact.after_commit")
    for part in parts:
        store.folder.delete(part.name)
    fault_point("compact.after_delete")
    return True


class _Merged:
    """The rows of some files in their order, written row group by row group."""

    def __init__(self, folder: Folder, kind: str, names: Sequence[str]) -> None:
        self._folder, self._schema, self._names = folder, KINDS[kind].schema, names
        self._replaced = kind == "settled"
        self.rows = 0

    def write(self, sink: IO[bytes]) -> None:
        with pq.ParquetWriter(sink, self._schema, compression="zstd") as writer:
            gathered: list[pa.RecordBatch] = []
            for piece in self._standing() if self._replaced else self._pieces():
                gathered.append(piece)
                self.rows += piece.num_rows
                if sum(p.num_rows for p in gathered) >= ROW_GROUP:
                    writer.write_table(pa.Table.from_batches(gathered, self._schema))
                    gathered = []
            if gathered:
                writer.write_table(pa.Table.from_batches(gathered, self._schema))

    def _standing(self) -> Iterator[pa.RecordBatch]:
        """Without rows that a later one replaces. Their keys are read first, the rest after."""
        kept = last_of_each(pa.Table.from_batches(self._pieces(KEY)))
        start = 0
        for piece in self._pieces():
            yield piece.filter(kept.slice(start, piece.num_rows))
            start += piece.num_rows

    def _pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = None if columns is None else list(columns)
        for name in self._names:
            with self._folder.reading(name) as file:
                for piece in pq.ParquetFile(file).iter_batches(columns=wanted):
                    yield piece if wanted else completed(piece, self._schema)
