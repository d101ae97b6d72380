"""Opening, waiting and failing, in words a person can act on."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

import monitor.store.database
from monitor.store import Store
from monitor.store.answer_kinds import AnswerKind
from monitor.store.errors import (
    DriverMissing,
    LeaseHeld,
    StoreAddress,
    StoreBusy,
    StoreUnreachable,
)
from tests.store.conftest import Place
from tests.store.crashing import forkserver
from tests.store.test_people import ask


def test_sqlite_is_durable_strict_and_in_one_place(tmp_path: Path) -> None:
    with Store.open(tmp_path / "new" / "state") as store, store.database.write() as connection:
        wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
        for name, value in wanted.items():
            assert connection.execute(text(f"PRAGMA {name}")).scalar() == value
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000
        assert (tmp_path / "new" / "state" / "conclad.db").exists()


def test_a_sqlite_url_names_the_file(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/other.db") as store:
        assert store.folder.root == str(tmp_path)
    assert (tmp_path / "other.db").exists()


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    def begin_and_fail() -> None:
        with store.transaction() as tx:
            tx.pools.open()
            raise KeyError

    with pytest.raises(KeyError):
        begin_and_fail()
    with store.reading() as tx:
        assert tx.counts.pools_by_state() == {}


def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"), store.reading() as tx:
        tx.pools.open()
    with store.transaction() as tx:
        tx.pools.open()


def test_a_reader_sees_one_moment_and_waits_for_nobody(store: Store, place: Place) -> None:
    with place.open() as other, store.reading() as tx:
        assert tx.counts.pools_by_state() == {}
        with other.transaction() as writer:
            writer.pools.open()
        assert tx.counts.pools_by_state() == {}


def test_a_writer_that_waits_in_vain_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor.store.database, "BUSY_SECONDS", 1)
    with (
        place.open() as one,
        place.open() as two,
        one.transaction(),
        pytest.raises(StoreBusy, match="held the write lock"),
        two.transaction(),
    ):
        pass


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process in the middle of making the very same new database."""
    with closing(sqlite3.connect(tmp_path / "conclad.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_new_file_that_is_busy_is_tried_again(
    tmp_path: Path, starter: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def let_the_other_finish(seconds: float) -> None:
        pauses.append(seconds)
        starter.execute("ROLLBACK")

    monkeypatch.setattr(time, "sleep", let_the_other_finish)
    with Store.open(tmp_path) as store, store.database.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    assert len(pauses) == 1


def test_a_new_file_that_stays_busy_is_given_up_in_time(
    tmp_path: Path, starter: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor.store.database, "BUSY_SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="held the write lock"):
        Store.open(tmp_path)
    assert time.monotonic() - began >= 1


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="cannot be opened") as caught:
        Store.open("postgresql://ada:secret@127.0.0.1:1/conclad", files=tmp_path)
    assert "secret" not in str(caught.value)


def test_a_server_needs_a_place_for_files() -> None:
    with pytest.raises(StoreAddress, match="say also where the files"):
        Store.open("postgresql://127.0.0.1/conclad")


def test_a_database_we_do_not_know(tmp_path: Path) -> None:
    with pytest.raises(StoreAddress, match="SQLite and PostgreSQL"):
        Store.open("mysql://127.0.0.1/conclad", files=tmp_path)
    with pytest.raises(StoreAddress, match="not a database URL"):
        Store.open("://", files=tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreAddress, match="state folder cannot be made"):
        Store.open(tmp_path / "file" / "state")


def test_the_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DriverMissing, match=r"conclad-monitor\[postgres\]"):
        Store.open("postgresql://127.0.0.1/conclad", files=tmp_path)


def _race(where: str, files: str, number: int) -> None:
    """Answer every question and try for the lease, as fast as one process can."""
    with Store.open(where, files=files) as store:
        for question in range(1, 21):
            with store.transaction() as tx:
                tx.answers.record(
                    question,
                    AnswerKind.BAD_IMAGE,
                    who=f"p{number}",
                    client_id=f"{number}-{question}",
                )
        try:
            store.acquire_lease("monitor", f"p{number}", timedelta(hours=1))
        except LeaseHeld:
            return
        with store.transaction() as tx:
            tx.events.append("won", {"number": number})


def test_several_processes_at_once(place: Place) -> None:
    with place.open() as store:
        ask(store, count=20, budget=20)
        children = [
            forkserver().Process(target=_race, args=(place.where, place.files, number))
            for number in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        with store.reading() as tx:
            assert len(tx.answers.standing(1)) == 20
            assert sorted(tx.answers.count_by_kind().values()) == [20, 40]
            assert len(tx.events.after(kinds=["won"])) == 1
