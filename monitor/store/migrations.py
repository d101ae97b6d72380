"""Bringing older state to the present layout, forward only.

An empty database gets the tables of ``tables.py`` at once. Older state walks through the
numbered steps below, one transaction each, so that a crash leaves it at a whole step. State that
no step begins with, and state of a newer conclad, is refused before anything is touched.

Why not alembic: it brings a second configuration file, a script folder and an environment
module for what is, with one schema and forward steps only, the forty lines below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, inspect, select, update

from monitor.store import tables as schema
from monitor.store.atomic_files import declare, fault_point
from monitor.store.errors import SchemaTooNew, SchemaTooOld

declare("migrate.before_commit", "migrate.after_commit")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: ``apply`` brings layout ``number - 1`` to ``number``."""

    number: int
    title: str
    apply: Callable[[Connection], None]


def _to_layout_6(connection: Connection) -> None:
    notes, events = schema.notes, schema.events
    schema.counter_steps.create(connection)
    # Of images that people called none: their marks, and the line about them in the history.
    connection.execute(update(notes).where(notes.c.room == "set_aside").values(room="no_image"))
    connection.execute(
        update(events).where(events.c.kind == "images.set_aside").values(kind="images.no_image")
    )


#: In order, without gaps, the last one reaching ``SCHEMA_VERSION``; never edit one that was
#: released. Layouts before the first of them are refused.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(6, "steps of the counters of many sources, marks of no image", _to_layout_6),
)


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
                raise SchemaTooNew(too_new(where, at, target))
            if at == target:
                return found
            if at and not any(step.number == at + 1 for step in steps):
                raise SchemaTooOld(too_old(where, at, target))
            reached = _advance(connection, at, steps, target)
            connection.execute(insert(schema.schema_version).values(number=reached, applied_at=now))
            fault_point("migrate.before_commit")
        fault_point("migrate.after_commit")


def verify_layout(connection: Connection, *, where: str) -> None:
    """Raise unless the state has the present layout, for those who may not change it."""
    at = _version(connection)
    if at > schema.SCHEMA_VERSION:
        raise SchemaTooNew(too_new(where, at))
    if at < schema.SCHEMA_VERSION:
        raise SchemaTooOld(too_old(where, at))


def too_new(where: str, at: int, target: int = schema.SCHEMA_VERSION) -> str:
    """What to do about state of a later conclad."""
    return (
        f"{where}: the state has layout {at}, this conclad knows layouts up to {target}; upgrade "
        "conclad, or restore the backup made before the upgrade"
    )


def too_old(where: str, at: int, target: int = schema.SCHEMA_VERSION) -> str:
    """What to do about state that cannot be brought forward."""
    return (
        f"{where}: the state has layout {at}, this conclad has layout {target} and cannot read it; "
        "name a new state folder with state.dir and fit again with conclad fit --data FILES"
    )


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
