"""Bringing older state to the present layout, forward only.

An empty database gets the tables of ``schema.py`` at once. Older state walks through the
numbered steps below, one transaction each, so that a crash leaves it at a whole step. A test
keeps the very first layout and checks that walking from it ends in exactly the tables of
``schema.py``. State of a newer conclad is refused before anything is touched.

Why not alembic: it brings a second configuration file, a script folder and an environment
module for what is, with one schema and forward steps only, the forty lines below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, inspect, select

from monitor.store import schema
from monitor.store.errors import SchemaTooNew
from monitor.store.faults import declare, fault_point

declare("migrate.before_commit", "migrate.after_commit")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: ``apply`` brings layout ``number - 1`` to ``number``."""

    number: int
    title: str
    apply: Callable[[Connection], None]


def _commit_in_groups(connection: Connection) -> None:
    """Several batches share a file, and files are committed before they get their names.

    Digests lose their time: pruning asks the ledger, and an index less makes every batch
    cheaper. Written out rather than taken from ``schema.py``, which will change again.
    """
    sqlite = connection.dialect.name == "sqlite"
    for statement in (
        "DROP INDEX seen_by_time",
        "ALTER TABLE seen DROP COLUMN seen_at",
        "ALTER TABLE outputs ADD COLUMN staged TEXT",
        *(_REBUILD_MEMBERS if sqlite else _ALTER_MEMBERS),
    ):
        connection.exec_driver_sql(statement)


_ALTER_MEMBERS = (
    "ALTER TABLE pool_members ADD COLUMN last_batch BIGINT REFERENCES batches (id)",
    "UPDATE pool_members SET last_batch = batch_id",
    "ALTER TABLE pool_members ALTER COLUMN last_batch SET NOT NULL",
    "ALTER TABLE pool_members ADD COLUMN staged TEXT",
)

# SQLite cannot add a column that must have a value; nothing refers to this table, so it can
# simply be made anew.
_REBUILD_MEMBERS = (
    """CREATE TABLE pool_members_2 (
        pool_id INTEGER NOT NULL,
        batch_id INTEGER NOT NULL,
        last_batch INTEGER NOT NULL,
        name TEXT NOT NULL,
        rows BIGINT NOT NULL,
        size BIGINT NOT NULL,
        sha256 TEXT NOT NULL,
        staged TEXT,
        PRIMARY KEY (pool_id, batch_id),
        FOREIGN KEY(pool_id) REFERENCES pools (id),
        FOREIGN KEY(batch_id) REFERENCES batches (id),
        FOREIGN KEY(last_batch) REFERENCES batches (id)
    )""",
    "INSERT INTO pool_members_2 (pool_id, batch_id, last_batch, name, rows, size, sha256) "
    "SELECT pool_id, batch_id, batch_id, name, rows, size, sha256 FROM pool_members",
    "DROP TABLE pool_members",
    "ALTER TABLE pool_members_2 RENAME TO pool_members",
)

#: In order, without gaps, the first one being number 2; never edit one that was released.
MIGRATIONS: tuple[Migration, ...] = (Migration(2, "commit batches in groups", _commit_in_groups),)


def migrate(
    begin: Callable[[], AbstractContextManager[Connection]],
    now: datetime,
    *,
    where: str,
    steps: Sequence[Migration] = MIGRATIONS,
    target: int = schema.SCHEMA_VERSION,
) -> int:
    """Bring the database to ``target``; returns the layout it had before (0: it was empty).

    ``begin`` opens an exclusive write transaction, so that of two processes starting together
    one does the work and the other finds it done.
    """
    found: int | None = None
    while True:
        with begin() as connection:
            at = _version(connection)
            found = at if found is None else found
            if at > target:
                raise SchemaTooNew(
                    f"{where}: the state has layout {at}, this conclad knows layouts up to "
                    f"{target}; upgrade conclad, or restore the backup made before the upgrade"
                )
            if at == target:
                return found
            reached = _advance(connection, at, steps, target)
            connection.execute(insert(schema.schema_version).values(number=reached, applied_at=now))
            fault_point("migrate.before_commit")
        fault_point("migrate.after_commit")


def _advance(connection: Connection, at: int, steps: Sequence[Migration], target: int) -> int:
    if at == 0:
        schema.metadata.create_all(connection)
        return target
    step = next(step for step in steps if step.number == at + 1)
    step.apply(connection)
    return step.number


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(schema.schema_version.name):
        return 0
    return connection.execute(select(func.max(schema.schema_version.c.number))).scalar() or 0
