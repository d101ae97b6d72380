"""Removing what is kept of a source's images, because somebody asked for it.

In an order that can be repeated, so what tells which images are meant goes last: detectors first
(``purged_features``), then what names an image in the database, then rows, pictures and pools, and
at the end the pages of the database file that held any of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import select, update

from monitor.novelty.array_types import Floats
from monitor.store.atomic_files import declare, fault_point
from monitor.store.errors import StoreBusy, WrongState
from monitor.store.exemplars import forget_exemplars, thumbnail_name
from monitor.store.note_and_counter_names import WRONG_LABELS
from monitor.store.purged_features import AdaptedTo, Discovered, forget_features
from monitor.store.records import OutputFile, Pool
from monitor.store.retention import drop_spool, forget_thumbnails
from monitor.store.store import Store, Transaction
from monitor.store.tables import events, pools, questions
from monitor.store.verdict_columns import (
    KINDS,
    Span,
    feature_matrix,
    final_name,
    output_name,
    read_table,
    stage_table,
)

declare(
    "purge.after_stage",
    "purge.before_commit",
    "purge.after_commit",
    "purge.after_thumbnails",
    "purge.before_rewrite",
)

_NAMING_IMAGES = ("questions", "events", "notes")
"""Tables with rows that name an image."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, and what still holds something of the source."""

    rows: dict[str, int]
    thumbnails: int
    questions: int
    pools: tuple[int, ...]
    kept_pools: tuple[int, ...]
    kept_versions: tuple[int, ...]
    rewritten: bool
    """Whether the database file was rewritten without the deleted bytes."""


def purge(store: Store, source: str, *, before: datetime, who: str = "purge") -> Purged:
    """Remove what is kept of a source's images captured before a moment.

    Features of the images go from every detector version; rows of the outputs go (files are
    rewritten as ``~1``, ``~2``, … and the older ones deleted); questions keep their answer and
    lose their image; pictures of questions and of classes go, and the features of settled pools.
    Rejected rows carry no capture time; they go when their file was committed before the moment.
    Pools that still wait for people or to be settled keep their features and questions, and are
    named in the result, as are detector versions that such pools need: finish them, then purge
    again. Counts, answers and the 16 byte digests against duplicates stay; no image can be had
    from them.
    """
    taught = _taught(store, source, before)
    adapted = _adapted(store, source, before)
    in_pools = {one.pool: _features(store, one.pool, source, before) for one in adapted}
    known = {pool: features for pool, features in in_pools.items() if features is not None}
    kept_versions = tuple(forget_features(store, taught, adapted, known, who))
    with store.transaction() as tx:
        _forget_contradictions(tx, source, {one.image_id for one in taught})
    rows = {kind: _purge_outputs(store, kind, source, before) for kind in KINDS}
    with store.reading() as tx:
        holding = [pool.id for pool in _spooled(tx) if _holds(store, tx, pool.id, source, before)]
        finished = tuple(pool for pool in holding if tx.settlements.of_pool(pool))
    kept_pools = tuple(pool for pool in holding if pool not in finished)
    with store.transaction() as tx:
        condition = (questions.c.source_id == source) & (
            questions.c.captured_at.is_(None) | (questions.c.captured_at < before)
        )
        digests = forget_thumbnails(tx, condition, forget_exemplars(tx, source, before))
        stripped = tx.connection.execute(
            update(questions)
            .where(condition, questions.c.image_id != "", questions.c.pool_id.not_in(kept_pools))
            .values(image_id="", captured_at=None, file="", row=0)
        ).rowcount
    for digest in digests:
        store.folder.delete(thumbnail_name(digest))
    fault_point("purge.after_thumbnails")
    for pool_id in finished:
        drop_spool(store, pool_id)
    return Purged(
        rows=rows,
        thumbnails=len(digests),
        questions=stripped,
        pools=finished,
        kept_pools=kept_pools,
        kept_versions=kept_versions,
        rewritten=_rewritten(store),
    )


def _rewritten(store: Store) -> bool:
    fault_point("purge.before_rewrite")
    try:
        return store.database.rewrite(_NAMING_IMAGES)
    except StoreBusy:
        return False


def _taught(store: Store, source: str, before: datetime) -> list[Discovered]:
    """The images meant that taught a class, and the version that learnt from them."""
    with store.reading() as tx:
        outputs = [*tx.outputs.of_kind("discoveries"), *tx.outputs.of_kind("held")]
    found: list[Discovered] = []
    for output in outputs:
        rows = read_table(store.folder, final_name(store.folder, output))
        for row in rows.filter(_matches(rows, source, before)).to_pylist():
            version = row["detector_version"] or output.first
            found.append(Discovered(row["class_id"], version, source, row["image_id"], row["pool"]))
    return found


def _adapted(store: Store, source: str, before: datetime) -> list[AdaptedTo]:
    """The classes that learnt a look of the source in a pool with some of the images meant."""
    with store.reading() as tx:
        learnt = [
            AdaptedTo(known["id"], version.number, version.pool_id)
            for version in tx.versions.all()
            for known in version.evidence.get("adapted", {}).get(source, ())
            if version.pool_id is not None
        ]
        outputs = tx.outputs.of_kind("settled") if learnt else []
    settled: set[int] = set()
    for output in outputs:
        rows = read_table(store.folder, final_name(store.folder, output))
        settled |= set(rows.filter(_matches(rows, source, before)).column("pool").to_pylist())
    with store.reading() as tx:
        spooled = {pool.id for pool in _spooled(tx)}
    return [one for one in learnt if one.pool in settled | spooled]


def _features(store: Store, pool_id: int, source: str, before: datetime) -> Floats | None:
    """What a pool has of the images meant; None if it has let go of its features."""
    with store.reading() as tx:
        if pool_id not in {pool.id for pool in _spooled(tx)}:
            return None
        members = tx.pools.members(pool_id)
    spools = [read_table(store.folder, final_name(store.folder, member)) for member in members]
    found = [spool.filter(_matches(spool, source, before)) for spool in spools]
    return np.concatenate([feature_matrix(some.column("features")) for some in found])


def _forget_contradictions(tx: Transaction, source: str, images: set[str]) -> None:
    """Images that people took out of a class are named in notes and events."""
    for class_id, entries in tx.notes.all(WRONG_LABELS).items():
        kept = [
            one for one in entries if one["source_id"] != source or one["image_id"] not in images
        ]
        if kept != entries:
            tx.notes.set(WRONG_LABELS, class_id, kept)
    told = tx.connection.execute(
        select(events.c.id, events.c.payload).where(
            events.c.kind == "pseudo_label.wrong", events.c.source == source
        )
    ).all()
    for number, payload in told:
        if payload.get("image_id") in images:
            changed = update(events).where(events.c.id == number)
            tx.connection.execute(changed.values(payload={**payload, "image_id": ""}))


def _spooled(tx: Transaction) -> list[Pool]:
    found = tx.connection.execute(
        select(pools.c.id).where(pools.c.spool_dropped_at.is_(None), pools.c.size > 0)
    )
    return [tx.pools.get(row.id) for row in found.all()]


def _holds(store: Store, tx: Transaction, pool_id: int, source: str, before: datetime) -> bool:
    columns = ["source_id", "captured_at"]
    return any(
        pc.any(_matches(read_table(store.folder, name, columns), source, before)).as_py()
        for name in (final_name(store.folder, member) for member in tx.pools.members(pool_id))
    )


def _matches(found: pa.Table, source: str, before: datetime) -> pa.ChunkedArray:
    """Rows of the source captured before the moment; without a capture time, all of its rows."""
    same = pc.fill_null(pc.equal(found.column("source_id"), source), False)
    if "captured_at" not in found.schema.names:
        return same
    early = pc.less(found.column("captured_at"), pa.scalar(before, _captured_type(found)))
    return pc.and_(same, pc.fill_null(early, True))


def _captured_type(found: pa.Table) -> pa.DataType:
    return found.schema.field("captured_at").type


def _purge_outputs(store: Store, kind: str, source: str, before: datetime) -> int:
    with store.reading() as tx:
        outputs = tx.outputs.of_kind(kind)
    return sum(_purge_output(store, output, source, before) for output in outputs)


def _purge_output(store: Store, output: OutputFile, source: str, before: datetime) -> int:
    """Rewrite one file without the rows, by the same steps as a compaction."""
    timed = "captured_at" in KINDS[output.kind].schema.names
    if not timed and output.committed_at >= before:
        return 0
    found = read_table(store.folder, final_name(store.folder, output))
    matches = _matches(found, source, before)
    gone = int(pc.sum(matches).as_py() or 0)
    if gone == 0:
        return 0
    span = Span(output.first, output.last, output.generation + 1)
    name = output_name(output.kind, span)
    staged = stage_table(store.folder, name, found.filter(pc.invert(matches)))
    fault_point("purge.after_stage")
    new = replace(
        output,
        generation=span.generation,
        name=name,
        rows=output.rows - gone,
        purged=output.purged + gone,
        size=staged.size,
        sha256=staged.sha256,
        staged=None,
    )
    try:
        with store.transaction() as tx:
            if not tx.outputs.replace([output], new):
                raise WrongState(
                    f"{output.name}: was merged into another file meanwhile; purge again"
                )
            staged.publish()
            fault_point("purge.before_commit")
    except BaseException:
        staged.discard()
        raise
    fault_point("purge.after_commit")
    store.folder.delete(output.name)
    return gone
