"""Whatever happens to the database or the disk is said in one sentence, and can be waited out."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

import monitor.store.database
from monitor.errors import ErrorKind, kind_of
from monitor.store import Store
from monitor.store.atomic_files import Folder
from monitor.store.errors import DiskUnavailable, LeaseLost, StoreBusy, StoreUnreachable
from tests.store.conftest import Clock, Place

MINUTE = timedelta(minutes=1)


@pytest.fixture
def on_postgresql(postgresql_url: str, tmp_path: Path) -> Iterator[Store]:
    from tests.store.conftest import drop_database, make_database

    url = make_database(postgresql_url)
    with Store.open(url, files=tmp_path) as store:
        yield store
    drop_database(url)


def _end_sessions(base: str) -> None:
    """What a restart of the server does to everybody who is connected."""
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def test_a_dropped_connection_is_an_outage_of_the_store(
    on_postgresql: Store, postgresql_url: str
) -> None:
    def write() -> None:
        with on_postgresql.transaction() as tx:
            tx.pools.open()
            _end_sessions(postgresql_url)
            tx.pools.open()

    with pytest.raises(StoreUnreachable) as caught:
        write()
    assert kind_of(caught.value) is ErrorKind.STORE
    with on_postgresql.transaction() as tx:
        assert tx.counts.pools_by_state() == {}, "nothing of a broken transaction stays"


def test_a_session_that_ends_before_the_commit_is_an_outage(
    on_postgresql: Store, postgresql_url: str
) -> None:
    def write() -> None:
        with on_postgresql.transaction() as tx:
            tx.pools.open()
            _end_sessions(postgresql_url)

    with pytest.raises(StoreUnreachable):
        write()
    with on_postgresql.reading() as tx:
        assert tx.counts.pools_by_state() == {}


def test_an_idle_connection_that_was_dropped_is_replaced_unseen(
    on_postgresql: Store, postgresql_url: str
) -> None:
    _end_sessions(postgresql_url)
    with on_postgresql.transaction() as tx:
        tx.pools.open()


def test_a_frozen_server_is_given_up_when_connecting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import socket

    monkeypatch.setitem(monitor.store.database._TIMEOUTS, "connect_timeout", 2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StoreUnreachable, match="cannot be opened"):
            Store.open(f"postgresql://ada@127.0.0.1:{port}/conclad", files=tmp_path)


def test_a_locked_file_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor.store.database, "BUSY_SECONDS", 0.1)
    with Store.open(tmp_path) as store:
        with closing(sqlite3.connect(tmp_path / "conclad.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreBusy) as caught, store.transaction():
                pass
        assert kind_of(caught.value) is ErrorKind.STORE
        with store.transaction() as tx:
            tx.pools.open()


#: In a process of its own: a limit on the size of files stops every writer of it, as a full disk
#: does, and SQLite reports it as one.
_FULL = """
import resource, signal, sys
from monitor.store import Store
from monitor.store.errors import DiskUnavailable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store.open(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
try:
    with store.transaction() as tx:
        for _ in range(2000):
            tx.events.append("x", {"much": "x" * 1000})
except DiskUnavailable as error:
    print("said:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
with store.transaction() as tx:
    tx.pools.open()
with store.reading() as tx:
    print("events", tx.events.last(), "pools", sum(tx.counts.pools_by_state().values()))
"""


def test_a_full_disk_is_an_outage_and_nothing_is_lost(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FULL), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    said, after = done.stdout.splitlines()
    assert "the state's disk takes no more" in said
    assert after == "events 0 pools 1"


@contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch, code: int) -> Iterator[None]:
    with monkeypatch.context() as patched:

        def fail(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        patched.setattr(os, "fsync", fail)
        yield


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES])
def test_a_disk_that_takes_no_files_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """ENOSPC is also what a full table of inodes says."""
    folder = Folder.local(tmp_path)
    with _failing(monkeypatch, code), pytest.raises(DiskUnavailable) as caught:
        folder.write("a/b.txt", b"hello")
    assert kind_of(caught.value) is ErrorKind.DISK
    folder.write("a/b.txt", b"hello")
    assert [entry.name for entry in folder.list()] == ["a/b.txt"]


def test_other_errors_keep_their_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Folder.local(tmp_path).read("nothing")


def test_a_read_only_database_is_an_outage(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        # What SQLite says of a file on a disk that was mounted read-only.
        plain = sqlite3.connect(f"file:{tmp_path}/conclad.db?mode=ro", uri=True)
        with closing(plain), pytest.raises(sqlite3.OperationalError, match="readonly") as said:
            plain.execute("CREATE TABLE x (y)")
        with pytest.raises(DiskUnavailable) as caught, store.transaction():
            raise OperationalError("INSERT", None, said.value)
    assert kind_of(caught.value) is ErrorKind.DISK


def test_only_somebody_else_takes_a_lease(store: Store, place: Place, clock: Clock) -> None:
    lease = store.acquire_lease("monitor", "a", MINUTE)
    clock.advance(days=1)
    with store.transaction() as tx:
        tx.leases.verify(lease)
    renewed = store.renew_lease(lease, MINUTE)
    assert renewed.token == lease.token
    clock.advance(days=-2)
    store.renew_lease(lease, MINUTE)
    clock.advance(days=3)
    store.acquire_lease("monitor", "b", MINUTE)
    with pytest.raises(LeaseLost, match="b took it"):
        store.renew_lease(lease, MINUTE)


def test_a_released_lease_is_no_longer_ours(store: Store) -> None:
    lease = store.acquire_lease("monitor", "a", MINUTE)
    store.release_lease(lease)
    with pytest.raises(LeaseLost):
        store.renew_lease(lease, MINUTE)
