"""The store: a database for what must move together, a folder for what is large."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection

from monitor.errors import ErrorKind, kind_of
from monitor.store.answers import Answers
from monitor.store.atomic_files import Folder
from monitor.store.classes import Classes
from monitor.store.database import Database, database_url
from monitor.store.detector_versions import Versions
from monitor.store.errors import DiskUnavailable, StoreAddress
from monitor.store.event_log import Counters, Events, Notes
from monitor.store.file_modes import is_wide, make_private_file, make_private_folder
from monitor.store.leases import Leases
from monitor.store.ledger import Batches, Files
from monitor.store.migrations import migrate, verify_layout
from monitor.store.output_index import Outputs
from monitor.store.pools import PoolRepository
from monitor.store.quarantine import Quarantine
from monitor.store.questions import Questions
from monitor.store.records import Lease
from monitor.store.seen_images import SeenImages
from monitor.store.settlements import Settlements

if TYPE_CHECKING:
    from pyarrow import fs as pafs

Clock = Callable[[], datetime]

log = logging.getLogger(__name__)


class Transaction:
    """All repositories on one connection, at one moment."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
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
            _make_database_file(Path(str(url.database)))
        store = cls(Database(url, read_only=read_only), Folder.at(place, fs), clock)
        try:
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
            tx = Transaction(connection, self._moment(connection))
            if lease is not None:
                tx.leases.verify(lease)
            yield tx

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self.database.read() as connection:
            yield Transaction(connection, self._moment(connection))

    def _moment(self, connection: Connection) -> datetime:
        return self._clock() if self._clock else self.database.now(connection)

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


def _folder_of(where: str | Path, database: str | None, driver: str) -> str | Path:
    if driver == "sqlite":
        return Path(str(database)).parent
    raise StoreAddress(
        f"{str(where).partition('://')[0]}://…: with a database server, say also where the "
        "files of the state live (a folder or a bucket URI)"
    )


def _make_database_file(path: Path) -> None:
    _make_folder(path.parent)
    try:
        if not path.exists():
            make_private_file(path)
        elif is_wide(path):
            log.warning(
                "%s: other users of this machine may read it; 'conclad doctor --repair' closes "
                "the state to them",
                path,
            )
    except OSError:
        return  # opening it says what is wrong, in the words of the database


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path)
    except OSError as error:
        problem = DiskUnavailable if kind_of(error) is ErrorKind.DISK else StoreAddress
        raise problem(
            f"{path}: the state folder cannot be made ({error.strerror}); "
            "choose another with state.dir, or correct its permissions"
        ) from error
