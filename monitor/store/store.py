"""The store: a database for what must move together, a folder for what is large.

Every transaction can also write what happened (events), how often (counters), small memories
between runs (notes), and leases: work that only one process may do at a time, also when processes
die.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL

from monitor.store.atomic_files import Folder, declare, fault_point
from monitor.store.clock_watch import ClockWatch
from monitor.store.commit_records import Outputs, SeenImages
from monitor.store.counters_and_image_account import Counters, Counts
from monitor.store.database import Database, database_url
from monitor.store.detector_versions import Classes, Versions
from monitor.store.errors import LeaseHeld, LeaseLost, StoreAddress
from monitor.store.file_modes import make_database_file
from monitor.store.ledger import Batches, Files
from monitor.store.migrations import migrate, verify_layout
from monitor.store.note_and_counter_names import STAGING
from monitor.store.pools import PoolRepository, Settlements
from monitor.store.quarantine import Quarantine
from monitor.store.questions_and_answers import Answers, Questions
from monitor.store.records import Event, Lease
from monitor.store.tables import (
    Repository,
    chunks,
    events,
    leases,
    notes,
    outputs,
    pool_members,
)

if TYPE_CHECKING:
    from pyarrow import fs as pafs
    from sqlalchemy.dialects import postgresql


declare("recover.start", "recover.after_name", "recover.after_remove")


class Events(Repository):
    """The timeline: only ever appended to."""

    def append(
        self, kind: str, payload: Mapping[str, Any] | None = None, *, source: str | None = None
    ) -> Event:
        event = Event(
            id=self._next_id(events.c.id),
            at=self._now,
            kind=kind,
            source=source,
            payload=dict(payload or {}),
        )
        self._connection.execute(
            insert(events).values({name: getattr(event, name) for name in Event.__slots__})
        )
        return event

    def after(
        self,
        last: int = 0,
        *,
        kinds: Sequence[str] = (),
        source: str | None = None,
        limit: int = 1000,
    ) -> list[Event]:
        """What came after event ``last``: numbers follow commit order, so nothing is skipped."""
        statement = select(events).where(events.c.id > last)
        if kinds:
            statement = statement.where(events.c.kind.in_(kinds))
        if source is not None:
            statement = statement.where(events.c.source == source)
        return self._all(Event, statement.order_by(events.c.id).limit(limit))

    def latest(self, *, kinds: Sequence[str] = (), limit: int = 100) -> list[Event]:
        """The newest first."""
        statement = select(events)
        if kinds:
            statement = statement.where(events.c.kind.in_(kinds))
        return self._all(Event, statement.order_by(events.c.id.desc()).limit(limit))

    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._next_id(events.c.id) - 1


class Notes(Repository):
    """JSON values by (room, key): cursors, baselines, evidence gathered over several pools."""

    def set(self, room: str, key: str, value: Any) -> None:
        statement = _upsert(self._connection.dialect.name, notes)
        self._connection.execute(
            statement.values(
                room=room, key=key, value=value, updated_at=self._now
            ).on_conflict_do_update(
                index_elements=[notes.c.room, notes.c.key],
                set_={
                    "value": statement.excluded.value,
                    "updated_at": statement.excluded.updated_at,
                },
            )
        )

    def set_many(self, room: str, values: Mapping[str, Any]) -> None:
        """Several notes of a room, in one statement."""
        if not values:
            return
        # As text with tuples: a pool may teach something about thousands of sources.
        dialect = self._connection.dialect
        if dialect.name == "sqlite":
            written = notes.c.updated_at.type.bind_processor(dialect)
            moment = written(self._now) if written else self._now
            # In the order of the index: neighbours share a page of it.
            rows = [(room, key, _as_json(value), moment) for key, value in sorted(values.items())]
            self._connection.exec_driver_sql(f"{_NOTE} VALUES (?, ?, ?, ?) {_AGAIN}", rows)
        else:
            several = "SELECT %s, n->>0, (n->1)::jsonb, %s FROM json_array_elements(%s::json) n"
            pairs = json.dumps(list(values.items()))
            self._connection.exec_driver_sql(
                f"{_NOTE} {several} {_AGAIN}", (room, self._now, pairs)
            )

    def get_many(self, room: str, keys: Collection[str]) -> dict[str, Any]:
        """The notes of a room that are there, by key."""
        if not keys:
            return {}
        # As text, like the others; the values are parsed in one go.
        wanted = json.dumps(sorted(keys))
        if self._connection.dialect.name == "sqlite":
            some = "SELECT key, value FROM notes WHERE room = ? AND key IN"
            rows = self._connection.exec_driver_sql(
                f"{some} (SELECT value FROM json_each(?))", (room, wanted)
            ).fetchall()
            values = json.loads(f"[{','.join([value for _, value in rows])}]")
            return dict(zip([key for key, _ in rows], values, strict=True))
        some = "SELECT key, value FROM notes WHERE room = %s AND key IN"
        found = self._connection.exec_driver_sql(
            f"{some} (SELECT json_array_elements_text(%s::json))", (room, wanted)
        )
        return {row[0]: row[1] for row in found}

    def get(self, room: str, key: str, default: Any = None) -> Any:
        row = self._connection.execute(
            select(notes.c.value).where(notes.c.room == room, notes.c.key == key)
        ).first()
        return default if row is None else row.value

    def all(self, room: str) -> dict[str, Any]:
        rows = self._connection.execute(
            select(notes.c.key, notes.c.value).where(notes.c.room == room).order_by(notes.c.key)
        )
        return {row.key: row.value for row in rows}

    def keys(self, room: str) -> list[str]:
        """The keys of a room, without reading what is noted under them."""
        statement = select(notes.c.key).where(notes.c.room == room).order_by(notes.c.key)
        return list(self._connection.execute(statement).scalars())

    def delete(self, room: str, key: str) -> None:
        self._connection.execute(delete(notes).where(notes.c.room == room, notes.c.key == key))


def _as_json(value: Any) -> str:
    """Texts, such as packed states, are the many; for them there is a shorter way."""
    return encode_basestring_ascii(value) if isinstance(value, str) else json.dumps(value)


def _upsert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    if dialect == "sqlite":
        return sqlite.insert(table)
    # Here rather than above: this dialect takes a tenth of a second to load.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


_NOTE = "INSERT INTO notes (room, key, value, updated_at)"
_AGAIN = (
    "ON CONFLICT (room, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
)


class Leases(Repository):
    """Named leases. The moment is the database's, so machines need not agree on the time."""

    def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease:
        """Take a lease that is free or has expired; refused while somebody holds it.

        ``owner`` must be unique to the process (host, pid and start time, say): the same owner
        asking again simply renews.
        """
        held = self.get(name)
        is_held = held is not None and held.is_held(self._now)
        if held is not None and is_held and held.owner == owner:
            return self.renew(held, ttl)
        if held is not None and is_held:
            raise LeaseHeld(
                f"{name}: {held.owner} has been doing this since "
                f"{held.acquired_at:%Y-%m-%d %H:%M:%S} UTC; stop it, or wait until its lease "
                f"runs out at {held.expires_at:%H:%M:%S} UTC"
            )
        lease = Lease(
            name=name,
            owner=owner,
            token=1 if held is None else held.token + 1,
            acquired_at=self._now,
            expires_at=self._now + ttl,
        )
        values = {key: getattr(lease, key) for key in Lease.__slots__}
        statement = insert(leases) if held is None else update(leases).where(leases.c.name == name)
        self._connection.execute(statement.values(values))
        return lease

    def get(self, name: str) -> Lease | None:
        """Who holds it, or held it last."""
        return self._first(Lease, select(leases).where(leases.c.name == name))

    def verify(self, lease: Lease) -> Lease:
        """The present lease; raises only if another process has taken it.

        Inside a write transaction this is a fence: nobody can take the lease before the
        transaction ends, so what is written with it is written by the holder. A lease that has
        run out and that nobody took is still ours: the clock may have jumped, the database may
        have been away, this process may have been frozen. Its number says whether it passed on.
        """
        held = self.get(lease.name)
        if held is None or held.token != lease.token:
            holder = "nobody" if held is None else held.owner
            raise LeaseLost(
                f"{lease.name}: {lease.owner} no longer holds the lease, {holder} took it; "
                "this process must stop, nothing of what it just did was committed"
            )
        return held

    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        held = self.verify(lease)
        expires_at = self._now + ttl
        self._set(held, expires_at=expires_at)
        return Lease(held.name, held.owner, held.token, held.acquired_at, expires_at)

    def release(self, lease: Lease) -> None:
        """Give it back, and its number with it; harmless when it was lost already."""
        held = self.get(lease.name)
        if held is not None and held.token == lease.token:
            self._set(held, expires_at=held.acquired_at, token=held.token + 1)

    def _set(self, lease: Lease, **values: object) -> None:
        self._connection.execute(update(leases).where(leases.c.name == lease.name).values(**values))


Clock = Callable[[], datetime]


class Transaction:
    """All repositories on one connection, at one moment."""

    def __init__(
        self, connection: Connection, now: datetime, clock_watch: ClockWatch | None = None
    ) -> None:
        self.connection = connection
        self.now = now
        self._clock_watch = clock_watch
        self.files = Files(connection, now)
        self.batches = Batches(connection, now)
        self.quarantine = Quarantine(connection, now)
        self.seen = SeenImages(connection, now)
        self.outputs = Outputs(connection, now)
        self.pools = PoolRepository(connection, now)
        self.settlements = Settlements(connection, now)
        self.questions = Questions(connection, now)
        self.answers = Answers(connection, now)
        self.classes = Classes(connection, now)
        self.versions = Versions(connection, now)
        self.events = Events(connection, now)
        self.counters = Counters(connection, now)
        self.notes = Notes(connection, now)
        self.leases = Leases(connection, now)
        self.counts = Counts(connection, now)

    @property
    def ages_count(self) -> bool:
        """Whether something may end because it is old: not while the clock is doubted."""
        return self._clock_watch is None or self._clock_watch.is_right(self.now)

    def clock_jump(self) -> timedelta | None:
        """By how much the clock has jumped, once after each jump."""
        if self._clock_watch is None:
            return None
        self._clock_watch.is_right(self.now)
        return self._clock_watch.latest_jump()


class Store:
    """The durable state of a monitor.

    ``transaction()`` writes: everything inside happens, or nothing does. ``reading()`` sees one
    consistent moment and never waits. Several processes may have the same store open.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     with store.transaction() as tx:
    ...         pool = tx.pools.open()
    ...     with store.reading() as tx:
    ...         print(tx.pools.get(pool.id).state)
    filling
    """

    def __init__(self, database: Database, folder: Folder, clock: Clock | None = None) -> None:
        self.database = database
        self.folder = folder
        self._clock = clock
        self._clock_watch: ClockWatch | None = None

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        files: str | Path | None = None,
        fs: pafs.FileSystem | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> Store:
        """Open, and create or migrate if need be; with ``read_only`` neither, nor anything else.

        ``where`` is a folder (SQLite in it) or a database URL. ``files`` is where snapshots and
        outputs live: a folder, a URI such as ``s3://bucket/state``, or a path on ``fs``; by
        default the state folder itself. ``clock`` replaces the database's clock in tests.
        """
        url = database_url(where)
        place = files if files is not None else _folder_of(where, url.database, url.drivername)
        if url.drivername == "sqlite" and not read_only:
            make_database_file(Path(str(url.database)))
        folder = Folder.at(place, fs)
        store = cls(Database(url, read_only=read_only), folder.marked(_mark_of(folder, url)), clock)
        try:
            if not read_only:
                store.folder.make_mark()
            now = clock() if clock else datetime.now(UTC)
            if read_only:
                with store.database.read() as connection:
                    verify_layout(connection, where=store.database.where)
            else:
                migrate(store.database.write, now, where=store.database.where)
        except BaseException:
            store.close()
            raise
        return store

    @contextlib.contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[Transaction]:
        """Write; with a ``lease``, fail if it has passed to somebody else."""
        with self.database.write() as connection:
            tx = Transaction(connection, self._moment(connection), self._clock_watch)
            if lease is not None:
                tx.leases.verify(lease)
            yield tx

    @contextlib.contextmanager
    def step(self, where: str, name: str, lease: Lease | None = None) -> Iterator[Transaction]:
        """A transaction between the fault points ``WHERE.before_NAME`` and ``WHERE.after_NAME``."""
        fault_point(f"{where}.before_{name}")
        with self.transaction(lease) as tx:
            yield tx
        fault_point(f"{where}.after_{name}")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self.database.read() as connection:
            yield Transaction(connection, self._moment(connection), self._clock_watch)

    def _moment(self, connection: Connection) -> datetime:
        return self._clock() if self._clock else self.database.now(connection)

    def watch_clock(self) -> None:
        """From now on a clock that jumps ends nothing by its age."""
        self._clock_watch = ClockWatch()

    # -- leases, in transactions of their own ----------------------------------------------

    def acquire_lease(self, name: str, owner: str, ttl: timedelta) -> Lease:
        with self.transaction() as tx:
            return tx.leases.acquire(name, owner, ttl)

    def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease:
        with self.transaction() as tx:
            return tx.leases.renew(lease, ttl)

    def release_lease(self, lease: Lease) -> None:
        with self.transaction() as tx:
            tx.leases.release(lease)

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Recovered:
    """Committed files that got their names, and files of unfinished tries that went."""

    named: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def recover(store: Store, lease: Lease | None = None) -> Recovered:
    """Finish or undo what a dead process left half done; call it first, under the lease.

    1. The write lock is taken and the lease verified: whoever still computes under an older
       lease can no longer commit.
    2. Staged files that the database knows are committed: they get their names.
    3. All other staged files belong to tries that never committed: they are removed.

    Interrupted itself, it can simply be called again.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     print(recover(store))
    Recovered(named=(), removed=())
    """
    fault_point("recover.start")
    with store.transaction() as tx:
        if lease is not None:
            tx.leases.verify(lease)
        waiting = [entry.name for entry in store.folder.list(STAGING)]
        promised = promises(tx, waiting)
        named = [name for staged, name in promised.items() if store.folder.settle(staged, name)]
        fault_point("recover.after_name")
        removed = [staged for staged in waiting if staged not in promised]
        for name in removed:
            store.folder.delete(name)
        fault_point("recover.after_remove")
    return Recovered(tuple(sorted(named)), tuple(sorted(removed)))


def promises(tx: Transaction, staged: list[str]) -> dict[str, str]:
    """Of these staged files, those that were committed, with the names they will have."""
    found: dict[str, str] = {}
    for table in (outputs, pool_members):
        for piece in chunks(staged):
            rows = tx.connection.execute(
                select(table.c.staged, table.c.name).where(table.c.staged.in_(piece))
            )
            found.update({row.staged: row.name for row in rows})
    return found


def _mark_of(folder: Folder, url: URL) -> str:
    """What is there for as long as the folder is: its database, else a folder in it."""
    file = Path(str(url.database))
    if url.drivername == "sqlite" and Path(folder.root) == file.parent:
        return str(file)
    return folder.path(STAGING)


def _folder_of(where: str | Path, database: str | None, driver: str) -> str | Path:
    if driver == "sqlite":
        return Path(str(database)).parent
    raise StoreAddress(
        f"{str(where).partition('://')[0]}://…: with a database server, say also where the "
        "files of the state live (a folder or a bucket URI)"
    )
