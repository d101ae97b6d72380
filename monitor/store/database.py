"""One way to talk to SQLite and to PostgreSQL.

Access layer: SQLAlchemy Core 2. It gives one schema and one set of statements for both
databases (upsert, partial indexes, JSON and times differ just enough to hurt by hand) without
an object mapper between us and the rows; psycopg 3 is only needed by those who use PostgreSQL.

The rule that carries everything else: **one writer at a time, on both databases**. SQLite has
that by nature (``BEGIN IMMEDIATE``); on PostgreSQL a write transaction starts by taking one
advisory lock. Transactions are short, so this costs little, and it buys a lot: no deadlocks, no
write skew, numbers handed out in commit order without gaps, and a test that passes on one
database says something about the other. Readers never wait and never block.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from monitor.store.errors import (
    DiskUnavailable,
    DriverMissing,
    StoreAddress,
    StoreBusy,
    StoreError,
    StoreUnreachable,
)
from monitor.store.file_modes import make_private_file

DATABASE_FILE = "conclad.db"

#: How long a writer waits for its turn. A write transaction takes milliseconds; half a minute
#: of waiting means that something hangs, and saying so beats hanging along.
BUSY_SECONDS = 30

#: Pages of the database that a connection to SQLite keeps at most, in kilobytes.
PAGES_KILOBYTES = 16_000

#: A PostgreSQL session that sits inside a transaction for longer than this has lost its
#: process (or its network); the server ends it, and the write lock is free again.
IDLE_SECONDS = 60

#: A server that has not accepted a connection by then is away: a healthy one needs milliseconds.
CONNECT_SECONDS = 10

#: A connection whose peer has not acknowledged a byte for so long is dead. Found by the kernel:
#: a network that is cut says nothing by itself, and a statement would wait for hours.
SILENCE_SECONDS = 30

#: The number of our advisory lock: "conclad" read as base 256, so that it collides with
#: nobody who picks small numbers by hand.
WRITE_LOCK = int.from_bytes(b"conclad", "big")

#: Between two tries to switch a new SQLite file to WAL. The switch of another process, which
#: is what we wait for, takes about as long.
_SWITCH_PAUSE_SECONDS = 0.01

_WRITES = "conclad_writes"

#: Of PostgreSQL's codes those that say: a lock was waited for in vain; the server takes no writes
#: (it stands by); its disk is full or fails; it starts, stops, or ended our session.
_LOCK_TIMEOUT, _READ_ONLY = "55P03", "25006"
_DISK_FULL = frozenset({"53100", "58030"})
_AWAY = frozenset(
    {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300", "08000", "08003"}
    | {"08006", "08001", "08004", "08007", "57014"}
)


class Database:
    """An engine that knows the two kinds of transaction the store uses."""

    def __init__(self, url: URL, *, read_only: bool = False) -> None:
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _engine(url, read_only=read_only)
        self._since: dict[int, float] = {}
        """Threads that are in a transaction, and since when."""

    @property
    def where(self) -> str:
        """For messages: never shows a password."""
        if self.is_sqlite:
            return str(self.url.database)
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock; commits at the end, or rolls back."""
        with self._session(writes=True) as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view of one moment; writing in it is an error."""
        with self._session(writes=False) as connection:
            yield connection

    @contextlib.contextmanager
    def _session(self, *, writes: bool) -> Iterator[Connection]:
        """A transaction, whatever breaks in it said in our words.

        An error that comes while the transaction commits leaves open whether it did: callers
        that wait and try again must be safe to repeat, which those of the store are.
        """
        thread = threading.get_ident()
        self._since.setdefault(thread, time.monotonic())
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(**{_WRITES: writes})
                with connection.begin():
                    yield connection
        except (DBAPIError, PoolTimeout, PendingRollbackError) as error:
            explained = self._explain(error, writes)
            if explained is None:
                raise
            raise explained from error
        finally:
            self._since.pop(thread, None)

    def busy_seconds(self, thread: int) -> float:
        """For how long a thread has been in its transaction; 0 if it is in none."""
        since = self._since.get(thread)
        return 0.0 if since is None else time.monotonic() - since

    def _explain(self, error: Exception, writes: bool) -> StoreError | None:
        """What is wrong with the database; None if something is wrong with the statement."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        words = " ".join(str(cause).split())
        if isinstance(cause, sqlite3.Error):
            return self._explain_sqlite(cause, words, writes)
        state = getattr(cause, "sqlstate", None) or ""
        if state == _LOCK_TIMEOUT:
            return self._busy()
        if state in _DISK_FULL or (writes and state == _READ_ONLY):
            return self._disk(words)
        broken = isinstance(error, DBAPIError) and error.connection_invalidated
        if broken or isinstance(error, OperationalError | PoolTimeout) or state in _AWAY:
            return self._unreachable(words)
        return None

    def _explain_sqlite(self, error: sqlite3.Error, words: str, writes: bool) -> StoreError | None:
        # The low byte: the others only say which kind of it.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy()
        # A reader that is told so tried to write, which is a mistake of ours.
        is_disk = code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) or (
            writes and code == sqlite3.SQLITE_READONLY
        )
        if is_disk:
            return self._disk(words)
        return self._unreachable(words) if code == sqlite3.SQLITE_CANTOPEN else None

    def _busy(self) -> StoreError:
        return StoreBusy(
            f"{self.where}: another process has held the write lock for {BUSY_SECONDS} s; "
            "see which conclad process hangs, then try again"
        )

    def _disk(self, words: str) -> StoreError:
        return DiskUnavailable(
            f"{self.where}: the state's disk takes no more ({words}); free some space on it, or "
            "make it writable again"
        )

    def _unreachable(self, words: str) -> StoreError:
        return StoreUnreachable(
            f"{self.where}: the database cannot be opened ({words}); "
            "check that it exists, runs and may be written by this user"
        )

    def now(self, connection: Connection) -> datetime:
        """The database's own clock, so that machines with wrong clocks agree on leases.

        For SQLite that is this machine's clock: all its users are on this machine.
        """
        if self.is_sqlite:
            return datetime.now(UTC)
        moment: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return moment.astimezone(UTC)

    def rewrite(self, tables: Sequence[str]) -> bool:
        """Rewrite the database without deleted bytes; False if readers prevent it.

        Of SQLite that is the whole file, of a server the tables that are named; what a server
        keeps in its log goes as it is recycled.
        """
        if not self.is_sqlite:
            return self._rewrite_tables(tables)
        with contextlib.closing(sqlite3.connect(str(self.url.database))) as connection:
            connection.isolation_level = None
            connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
            try:
                connection.execute("VACUUM")
                (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                explained = self._explain_sqlite(error, str(error), writes=True)
                if explained is None:
                    raise
                raise explained from error
        return not busy

    def _rewrite_tables(self, tables: Sequence[str]) -> bool:
        """Needs each table alone for a moment, for which it waits as long as a writer would."""
        try:
            with self._engine.connect().execution_options(
                isolation_level="AUTOCOMMIT", **{_WRITES: False}
            ) as connection:
                for table in tables:
                    connection.exec_driver_sql(f"VACUUM (FULL) {table}")
        except DBAPIError as error:
            explained = self._explain(error, writes=True)
            if explained is None:
                raise
            raise explained from error
        return True

    def close(self) -> None:
        self._engine.dispose()


def database_url(where: str | Path) -> URL:
    """From a folder (SQLite inside it) or a URL (``postgresql://…``, ``sqlite:///file``)."""
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(Path(where).absolute() / DATABASE_FILE))
    try:
        url = make_url(where)
    except ArgumentError as error:
        raise StoreAddress(f"{where}: not a database URL ({error})") from error
    if url.get_backend_name() == "sqlite":
        return url.set(drivername="sqlite")
    if url.get_backend_name() in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise StoreAddress(
        f"{url.render_as_string(hide_password=True)}: the store knows SQLite and PostgreSQL; "
        "give a folder or a URL that begins with postgresql://"
    )


def _engine(url: URL, *, read_only: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _read_only_engine(url) if read_only else _sqlite_engine(url)
    return _postgresql_engine(url)


def _sqlite_engine(url: URL) -> Engine:
    """On a file that is made now if it is not there, and never later.

    While the folder is away (renamed, not mounted) an empty file in its place would be taken for
    the state.
    """
    file = Path(str(url.database))
    if file.parent.is_dir() and not file.exists():
        with contextlib.suppress(OSError):  # opening it says what is wrong
            make_private_file(file)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, check_same_thread=False)

    engine = sqlalchemy.create_engine(url, creator=connect)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # The driver must not open transactions by itself; we say BEGIN, and of which kind.
        connection.isolation_level = None
        _switch_to_wal(connection, seconds=BUSY_SECONDS)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        # FULL: a commit has reached the disk when it returns. NORMAL would lose the last
        # commits in a power cut, and with them verdicts that somebody has already read.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # What thousands of sources leave behind is touched with every commit and stays in memory.
        connection.execute(f"PRAGMA cache_size = -{PAGES_KILOBYTES}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, True)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _read_only_engine(url: URL) -> Engine:
    """For somebody who may read the file and write neither it nor its folder.

    While a writer has it open, its log and index are there and are read, too. Without them nobody
    writes, and SQLite, which cannot make an index of its own here, is told that nothing changes.
    """
    file = Path(str(url.database))

    def connect() -> sqlite3.Connection:
        unchanging = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
        return sqlite3.connect(
            f"{file.as_uri()}?mode=ro{unchanging}", uri=True, check_same_thread=False
        )

    engine = sqlalchemy.create_engine(url, creator=connect)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    return engine


def _switch_to_wal(connection: sqlite3.Connection, *, seconds: float) -> None:
    """Turn write-ahead logging on, waiting for others by hand.

    A file that is not in WAL yet is first read, then locked for writing. SQLite does not call
    its busy handler for a lock that is raised in this way, because two readers that both wait
    to write would wait for ever; so of two processes that open a new file together one is told
    "database is locked" at once, whatever the busy timeout. Trying again lets go of the read
    lock, after which there is nothing to wait for in a circle.
    """
    connection.execute("PRAGMA busy_timeout = 0")  # one deadline, not one for every try
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # The low byte: the others only say what kind of busy it is.
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
            time.sleep(_SWITCH_PAUSE_SECONDS)
        else:
            return


#: libpq's own settings; what the URL says of them wins.
_TIMEOUTS: dict[str, int] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": SILENCE_SECONDS // 3,
    "keepalives_interval": SILENCE_SECONDS // 6,
    "keepalives_count": 3,
    "tcp_user_timeout": SILENCE_SECONDS * 1000,
}


def _postgresql_engine(url: URL) -> Engine:
    options = {
        "synchronous_commit": "on",  # also where an administrator turned it off by default
        "lock_timeout": f"{BUSY_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    }
    # What the URL itself says (a search_path, say) comes last and wins.
    given = url.query.get("options", "")
    words = [f"-c {key}={value}" for key, value in options.items()]
    words += [given] if isinstance(given, str) else list(given)
    try:
        engine = sqlalchemy.create_engine(
            url.difference_update_query(["options"]),
            pool_pre_ping=True,  # a restarted server costs a reconnect, not an error
            pool_timeout=CONNECT_SECONDS,
            connect_args={
                "options": " ".join(words),
                **{name: value for name, value in _TIMEOUTS.items() if name not in url.query},
            },
        )
    except ModuleNotFoundError as error:
        raise DriverMissing(
            "PostgreSQL needs the psycopg package: pip install 'conclad-monitor[postgres]'"
        ) from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES, True):
            # READ COMMITTED on purpose: a repeatable snapshot would be taken by this very
            # statement, before the wait, and would not show what the previous writer did.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    return engine
