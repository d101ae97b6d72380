"""Whatever is damaged is found, named, and left as it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from monitor.store import Finding, Severity, Store, check, repair
from monitor.store.exemplars import put_thumbnail, thumbnail_name
from monitor.store.integrity_check import TEMPORARY_AGE
from tests.store.building import dump, sample
from tests.store.conftest import Clock, Place, Prepare
from tests.store.crashing import prepare_version, version

VERDICTS = "verdicts/b000000000002.parquet"
SPOOL = "features/pool-000000001/b000000000002.parquet"


def fill(store: Store) -> None:
    """Three committed batches with duplicates and bad rows, two versions, one question."""
    prepare_version(store)
    with store.transaction() as tx:
        picture = put_thumbnail(store.folder, b"pixels")
        tx.questions.open(1, 1, [sample(1, 0, thumbnail=picture)])
    version(store)
    assert check(store) == []


@pytest.fixture
def full(prepared: Callable[[Prepare], Place], clock: Clock) -> Iterator[Store]:
    with prepared(fill).open(clock) as store:
        yield store


def flip(store: Store, name: str) -> None:
    whole = store.folder.read(name)
    store.folder.write(name, whole[:-1] + bytes([whole[-1] ^ 1]))


def cut(store: Store, name: str) -> None:
    store.folder.write(name, store.folder.read(name)[:-5])


def sql(statement: str) -> Callable[[Store], None]:
    def apply(store: Store) -> None:
        with store.database.write() as connection:
            connection.execute(text(statement))

    return apply


def stranger(name: str) -> Callable[[Store], None]:
    def apply(store: Store) -> None:
        store.folder.write(name, b"?")

    return apply


def arrays(store: Store) -> str:
    with store.reading() as tx:
        return f"{tx.versions.get(1).snapshot}/arrays.safetensors"


DAMAGE: dict[str, tuple[Callable[[Store], None], str, str]] = {
    "verdicts gone": (lambda s: s.folder.delete(VERDICTS), "file-missing", VERDICTS),
    "verdicts cut": (lambda s: cut(s, VERDICTS), "file-differs", VERDICTS),
    "verdicts changed": (lambda s: flip(s, VERDICTS), "file-differs", VERDICTS),
    "spool gone": (lambda s: s.folder.delete(SPOOL), "file-missing", SPOOL),
    "spool changed": (lambda s: flip(s, SPOOL), "file-differs", SPOOL),
    "snapshot changed": (lambda s: flip(s, arrays(s)), "snapshot-damaged", "detector version 1"),
    "snapshot gone": (
        lambda s: s.folder.delete(arrays(s)),
        "snapshot-damaged",
        "detector version 1",
    ),
    "ledger miscounts": (
        sql("UPDATE batches SET novel = novel + 1 WHERE id = 2"),
        "rows-lost",
        "batch 2",
    ),
    "output forgotten": (
        sql(f"DELETE FROM outputs WHERE name = '{VERDICTS}'"),
        "rows-uncovered",
        "verdicts",
    ),
    "counter too high": (
        sql("UPDATE counters SET value = value + 1 WHERE label = 'known'"),
        "counter-too-high",
        "counter images/known",
    ),
    "pool miscounts": (sql("UPDATE pools SET size = size + 1"), "pool-uneven", "pool 1"),
    "budget overrun": (sql("UPDATE pools SET budget = 0"), "budget-uneven", "pool 1"),
    "answer lost": (
        sql("UPDATE questions SET state = 'answered'"),
        "answer-missing",
        "question 1",
    ),
    "file stuck": (sql("UPDATE files SET state = 'planned'"), "file-unfinished", "feed/a.parquet"),
    "picture gone": (
        lambda s: s.folder.delete_folder("thumbnails"),
        "picture-missing",
        "thumbnails/",
    ),
    "picture changed": (
        lambda s: flip(s, next(e.name for e in s.folder.list("thumbnails"))),
        "file-differs",
        "thumbnails/",
    ),
    "stranger": (
        stranger("verdicts/b000000000099.parquet"),
        "unknown-file",
        "verdicts/b000000000099.parquet",
    ),
    "strange snapshot": (
        stranger("detectors/v000009-ab/manifest.json"),
        "unknown-snapshot",
        "detectors/v000009-ab",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_left_alone(full: Store, damage: str) -> None:
    harm, code, where = DAMAGE[damage]
    harm(full)
    before = dump(full)
    found = check(full)
    assert any(f.code == code and f.where.startswith(where) for f in found), found
    assert repair(full) == []
    assert dump(full) == before


def test_the_quick_check_reads_no_file_in_full(full: Store) -> None:
    flip(full, VERDICTS)
    assert check(full, hashes=False) == []
    full.folder.delete(VERDICTS)
    assert [f.code for f in check(full, hashes=False)] == ["file-missing"]


def test_old_temporaries_are_named_and_removed(full: Store, clock: Clock) -> None:
    staged = full.folder.stage_bytes("verdicts/b000000000009.parquet", b"half")
    path = Path(full.folder.path(staged.temporary))
    now = clock.now.timestamp()
    os.utime(path, (now, now))
    assert check(full) == []
    assert repair(full) == []
    clock.advance(seconds=TEMPORARY_AGE.total_seconds() + 1)
    (finding,) = check(full)
    assert (finding.severity, finding.where) == (Severity.NOTE, staged.temporary)
    assert repair(full) == [staged.temporary]
    assert check(full) == []


def test_errors_come_first_and_read_as_sentences(full: Store) -> None:
    full.folder.write("detectors/v000009-ab/manifest.json", b"?")
    full.folder.delete(VERDICTS)
    first, last = check(full)
    assert str(first) == f"error: {VERDICTS}: is gone; restore it from a backup"
    assert last.severity is Severity.NOTE
    assert isinstance(last, Finding)


def test_a_damaged_database_is_noticed(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    raw = sqlite3.connect(tmp_path / "conclad.db")
    raw.execute(
        "INSERT INTO batches (id, file_id, first_row, rows, state, tries, known, novel, "
        "rejected, duplicates) VALUES (1, 77, 0, 1, 'pending', 0, 0, 0, 0, 0)"
    )
    raw.commit()
    raw.close()
    with Store.open(tmp_path) as store:
        assert [f.code for f in check(store)] == ["dangling-row"]


def test_picture_names_in_findings_are_paths(full: Store) -> None:
    unused = put_thumbnail(full.folder, b"other pixels")
    (finding,) = check(full)
    assert (finding.code, finding.where) == ("picture-unused", thumbnail_name(unused))
