"""Is the state whole? Looks at everything, changes nothing, and says what it found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from pyarrow import ArrowInvalid
from sqlalchemy import func, select, text

from monitor.store.atomic_files import FolderEntry, is_temporary
from monitor.store.compaction import COMPACTED, clear_leftovers, leftovers
from monitor.store.counters_and_image_account import uneven_files
from monitor.store.errors import SnapshotError
from monitor.store.exemplars import THUMBNAILS, shown_by_exemplars, thumbnail_name
from monitor.store.integrity_findings import Finding, Severity
from monitor.store.integrity_of_settled_verdicts import settled_findings
from monitor.store.note_and_counter_names import IMAGES, STAGING
from monitor.store.record_states import BatchState, FileState, QuestionState, VersionState
from monitor.store.records import OutputFile, PoolMember
from monitor.store.snapshots import verify_snapshot
from monitor.store.store import Store, Transaction, promises
from monitor.store.tables import batches, files, pool_members, pools, questions
from monitor.store.verdict_columns import KINDS, Span, count_rows, spool_folder, standing

__all__ = ["Finding", "Severity", "check", "repair"]

#: A temporary file younger than this may still be written by somebody.
TEMPORARY_AGE = timedelta(hours=1)


def check(store: Store, *, hashes: bool = True) -> list[Finding]:
    """Everything that is wrong, errors first; an empty list means that the state is whole.

    Without ``hashes`` only sizes and counts are compared, which reads no file in full.
    """
    with store.reading() as tx:
        found = [
            *_database(store, tx),
            *_ledger(tx),
            *_account(tx),
            *_counters(tx),
            *_outputs(store, tx, hashes),
            *_spools(store, tx, hashes),
            *settled_findings(tx),
            *_versions(store, tx, hashes),
            *_questions(tx),
            *_thumbnails(store, tx, hashes),
            *_temporaries(store, tx),
        ]
    order = list(Severity)
    return sorted(found, key=lambda finding: (order.index(finding.severity), finding.where))


def repair(store: Store) -> list[str]:
    """Remove what is certainly redundant; returns the names of the removed files.

    That is: temporary files older than an hour, parts of merged files, merged files that never
    came into use, features of pools that were dropped, and held discoveries of versions that
    have been released or refused. Nothing else is touched, but committed files that still wait
    for their names get them.
    """
    gone = [name for kind in COMPACTED for name in clear_leftovers(store, kind)]
    with store.transaction() as tx:
        for staged, name in _promises(store, tx).items():
            store.folder.settle(staged, name)
        redundant = [
            *(entry.name for entry in _old_temporaries(store, tx)),
            *(entry.name for entry in _dropped_spools(store, tx)),
            *_decided(store, tx),
        ]
        for name in redundant:
            store.folder.delete(name)
    return gone + redundant


def _error(code: str, where: str, sentence: str) -> Finding:
    return Finding(Severity.ERROR, code, where, sentence)


def _database(store: Store, tx: Transaction) -> Iterator[Finding]:
    if not store.database.is_sqlite:
        return
    for row in tx.connection.execute(text("PRAGMA integrity_check")):
        if row[0] != "ok":
            yield _error("database-damaged", store.database.where, f"SQLite says: {row[0]}")
    for row in tx.connection.execute(text("PRAGMA foreign_key_check")):
        yield _error("dangling-row", f"{row[0]} {row[1]}", f"refers to a missing row of {row[2]}")


def _ledger(tx: Transaction) -> Iterator[Finding]:
    settled = batches.c.known + batches.c.novel + batches.c.rejected + batches.c.duplicates
    lost = select(batches.c.id, batches.c.rows, settled.label("settled")).where(
        batches.c.state == BatchState.DONE, settled != batches.c.rows
    )
    for row in tx.connection.execute(lost):
        yield _error(
            "rows-lost",
            f"batch {row.id}",
            f"{row.rows} rows were planned, {row.settled} have a verdict or a reason",
        )
    pending = select(batches.c.file_id).where(batches.c.state == BatchState.PENDING)
    stuck = select(files.c.path).where(
        files.c.state == FileState.PLANNED, files.c.id.not_in(pending)
    )
    for row in tx.connection.execute(stuck):
        yield Finding(
            Severity.WARNING, "file-unfinished", row.path, "has no batch left but is not done"
        )


def _account(tx: Transaction) -> Iterator[Finding]:
    """Every image of a listed file has a verdict, a reason, or is known to wait."""
    for path, found in uneven_files(tx):
        yield _error(
            "images-unaccounted",
            path,
            f"holds {found.listed} images, of which {found.verdicts} have a verdict, "
            f"{found.rejected} a reason, {found.waiting} wait, {found.quarantined} are quarantined "
            f"and {found.dropped} dropped",
        )
    for item in tx.quarantine.list():
        images = "its images" if item.images is None else f"{item.images} of its images"
        yield Finding(
            Severity.WARNING,
            "quarantined",
            item.path,
            f"{images} have no verdict ({item.reason}); see conclad quarantine",
        )


def _counters(tx: Transaction) -> Iterator[Finding]:
    """Counters of a removed source may be gone, so they may be lower, but never higher."""
    counted = tx.counters.all(IMAGES)
    for outcome, column in (
        ("known", batches.c.known),
        ("novel", batches.c.novel),
        ("rejected", batches.c.rejected),
        ("duplicate", batches.c.duplicates),
    ):
        ledger = tx.connection.execute(select(func.sum(column))).scalar() or 0
        total = sum(count.value for count in counted if count.label == outcome)
        if total > ledger:
            yield _error(
                "counter-too-high",
                f"counter {IMAGES}/{outcome}",
                f"says {total:.0f}, the ledger has {ledger}",
            )


def _outputs(store: Store, tx: Transaction, hashes: bool) -> Iterator[Finding]:
    for kind in KINDS:
        known = tx.outputs.of_kind(kind)
        for output in known:
            yield from _file(store, output, hashes)
        if KINDS[kind].letter == "b":
            yield from _coverage(tx, kind, known)
        redundant = {*leftovers(store, tx, kind), *_decided(store, tx)}
        names = {output.name for output in known}
        for entry in store.folder.list(kind):
            if entry.name in names or is_temporary(entry.name):
                continue
            yield _stranger(tx, entry, entry.name in redundant, KINDS[kind].letter)


def _decided(store: Store, tx: Transaction) -> list[str]:
    """Held discoveries whose version an operator has released or refused."""
    decided = {v.number for v in tx.versions.all() if v.state is not VersionState.HELD}
    return [
        entry.name
        for entry in store.folder.list("held")
        if (span := Span.parse(entry.name)) is not None and span.first in decided
    ]


def _stranger(tx: Transaction, entry: FolderEntry, redundant: bool, letter: str) -> Finding:
    if redundant:
        return Finding(
            Severity.NOTE,
            "leftover",
            entry.name,
            "is left over from a merge or a purge; readers skip it, repair removes it",
        )
    span = Span.parse(entry.name)
    if letter == "b" and span is not None and span.first == span.last:
        pending = tx.batches.first_pending_between(span.first, span.last)
        if pending is not None:
            return Finding(
                Severity.NOTE,
                "uncommitted",
                entry.name,
                "belongs to a batch that is not done yet; the next try replaces it",
            )
    return Finding(
        Severity.WARNING,
        "unknown-file",
        entry.name,
        "is not known to the store; was the database restored from an older backup?",
    )


def _coverage(tx: Transaction, kind: str, known: Iterable[OutputFile]) -> Iterator[Finding]:
    """The rows of each file, and of all, against what the ledger says was committed."""
    column = (
        batches.c.known + batches.c.novel
        if kind == "verdicts"
        else batches.c.rejected + batches.c.duplicates
    )
    in_files = 0
    for output in known:
        in_files += output.rows + output.purged
        span = select(func.sum(column)).where(batches.c.id.between(output.first, output.last))
        expected = tx.connection.execute(span).scalar() or 0
        if expected != output.rows + output.purged:
            yield _error(
                "rows-differ",
                output.name,
                f"covers {output.rows} rows and {output.purged} purged ones, "
                f"the ledger has {expected} for its batches",
            )
    total = tx.connection.execute(select(func.sum(column))).scalar() or 0
    if total != in_files:
        yield _error(
            "rows-uncovered", kind, f"the files cover {in_files} rows, the ledger has {total}"
        )


def _file(store: Store, wanted: OutputFile | PoolMember, hashes: bool) -> Iterator[Finding]:
    where = standing(store.folder, wanted)
    if where is None:
        yield _error("file-missing", wanted.name, "is gone; restore it from a backup")
        return
    if where != wanted.name:
        yield Finding(
            Severity.NOTE,
            "unnamed",
            where,
            f"is committed and becomes {wanted.name} when the monitor starts or by repair",
        )
    size = store.folder.size(where)
    if size != wanted.size:
        yield _error("file-differs", wanted.name, f"has {size} bytes, {wanted.size} were committed")
    elif hashes and store.folder.sha256(where) != wanted.sha256:
        yield _error("file-differs", wanted.name, "was changed after it was committed")
    elif hashes:
        try:
            rows = count_rows(store.folder, where)
        except ArrowInvalid as error:
            yield _error("file-unreadable", wanted.name, f"is no Parquet file ({error})")
            return
        if rows != wanted.rows:
            yield _error("rows-differ", wanted.name, f"has {rows} rows, not {wanted.rows}")


def _spools(store: Store, tx: Transaction, hashes: bool) -> Iterator[Finding]:
    rows = func.coalesce(func.sum(pool_members.c.rows), 0)
    uneven = (
        select(pools.c.id, pools.c.size, rows.label("spooled"))
        .outerjoin(pool_members, pool_members.c.pool_id == pools.c.id)
        .where(pools.c.spool_dropped_at.is_(None))
        .group_by(pools.c.id, pools.c.size)
        .having(rows != pools.c.size)
    )
    for row in tx.connection.execute(uneven):
        yield _error(
            "pool-uneven", f"pool {row.id}", f"says {row.size} samples, {row.spooled} are spooled"
        )
    known: set[str] = set()
    for (pool_id,) in tx.connection.execute(
        select(pools.c.id).where(pools.c.spool_dropped_at.is_(None)).order_by(pools.c.id)
    ):
        for member in tx.pools.members(pool_id):
            known.add(member.name)
            yield from _file(store, member, hashes)
    dropped = {entry.name for entry in _dropped_spools(store, tx)}
    for entry in store.folder.list("features"):
        if entry.name in known or is_temporary(entry.name):
            continue
        yield _stranger(tx, entry, entry.name in dropped, "b")


def _dropped_spools(store: Store, tx: Transaction) -> list[FolderEntry]:
    """Files of pools whose features the database has already let go."""
    dropped = tx.connection.execute(select(pools.c.id).where(pools.c.spool_dropped_at.is_not(None)))
    folders = {spool_folder(row.id) for row in dropped}
    return [
        entry
        for entry in store.folder.list("features")
        if entry.name.rpartition("/")[0] in folders and not is_temporary(entry.name)
    ]


def _versions(store: Store, tx: Transaction, hashes: bool) -> Iterator[Finding]:
    known = tx.versions.all()
    for version in known:
        where = f"detector version {version.number} ({version.snapshot})"
        try:
            if hashes:
                verify_snapshot(store.folder, version.snapshot, version.sha256)
            elif store.folder.size(f"{version.snapshot}/manifest.json") is None:
                yield _error("snapshot-missing", where, "has no manifest")
        except SnapshotError as error:
            yield _error("snapshot-damaged", where, str(error))
    folders = {version.snapshot for version in known}
    strange = {
        entry.name.rpartition("/")[0]
        for entry in store.folder.list("detectors")
        if not is_temporary(entry.name)
    } - folders
    for folder in sorted(strange):
        yield Finding(
            Severity.NOTE,
            "unknown-snapshot",
            folder,
            "belongs to no version; an update that was not finished left it",
        )


def _questions(tx: Transaction) -> Iterator[Finding]:
    asked = func.count(questions.c.id)
    uneven = (
        select(pools.c.id, pools.c.asked, pools.c.budget, asked.label("found"))
        .outerjoin(questions, questions.c.pool_id == pools.c.id)
        .group_by(pools.c.id, pools.c.asked, pools.c.budget)
        .having((asked != pools.c.asked) | (asked > pools.c.budget))
    )
    for row in tx.connection.execute(uneven):
        yield _error(
            "budget-uneven",
            f"pool {row.id}",
            f"{row.found} questions exist, {row.asked} are counted, {row.budget} are allowed",
        )
    speechless = select(questions.c.id).where(
        questions.c.state == QuestionState.ANSWERED, questions.c.answer_id.is_(None)
    )
    for row in tx.connection.execute(speechless):
        yield _error("answer-missing", f"question {row.id}", "is answered but has no answer")


def _thumbnails(store: Store, tx: Transaction, hashes: bool) -> Iterator[Finding]:
    wanted = {
        thumbnail_name(row.thumbnail)
        for row in tx.connection.execute(
            select(questions.c.thumbnail).where(questions.c.thumbnail.is_not(None)).distinct()
        )
    } | {thumbnail_name(digest) for digest in shown_by_exemplars(tx)}
    present = {e.name for e in store.folder.list(THUMBNAILS) if not is_temporary(e.name)}
    for name in sorted(wanted - present):
        yield Finding(
            Severity.WARNING,
            "picture-missing",
            name,
            "a question or class shows it, but it is gone",
        )
    for name in sorted(present - wanted):
        yield Finding(Severity.NOTE, "picture-unused", name, "no question and no class shows it")
    for name in sorted(wanted & present) if hashes else ():
        if store.folder.sha256(name) != name.rpartition("/")[2]:
            yield _error("file-differs", name, "does not have the content its name promises")


def _temporaries(store: Store, tx: Transaction) -> Iterator[Finding]:
    for entry in _old_temporaries(store, tx):
        yield Finding(
            Severity.NOTE,
            "temporary",
            entry.name,
            "was being written when a process died; repair removes it",
        )


def _old_temporaries(store: Store, tx: Transaction) -> list[FolderEntry]:
    promised = _promises(store, tx)
    folders = (*KINDS, "features", "detectors", THUMBNAILS, STAGING)
    return [
        entry
        for folder in folders
        for entry in store.folder.list(folder)
        if is_temporary(entry.name)
        and entry.name not in promised
        and entry.modified < tx.now - TEMPORARY_AGE
    ]


def _promises(store: Store, tx: Transaction) -> dict[str, str]:
    return promises(tx, [entry.name for entry in store.folder.list(STAGING)])
