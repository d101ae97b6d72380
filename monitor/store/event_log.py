"""What happened (events), how often (counters), and small memories between runs (notes)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, delete, insert, select
from sqlalchemy.dialects import sqlite

from monitor.store.records import Count, Event
from monitor.store.repository import Repository, chunks
from monitor.store.tables import counters, events, notes

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


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


class Counters(Repository):
    """Totals that move in the same transaction as what they count."""

    def add(self, steps: Iterable[Count]) -> None:
        """Raise counters; steps of the same counter are added up first."""
        totals: dict[tuple[str, str, str], float] = {}
        for step in steps:
            key = (step.name, step.source, step.label)
            totals[key] = totals.get(key, 0.0) + step.value
        if not totals:
            return
        # As text with tuples, like the digests: thousands of sources may be named in a commit.
        rows = [(*key, value) for key, value in sorted(totals.items())]
        if self._connection.dialect.name == "sqlite":
            self._connection.exec_driver_sql(f"{_RAISE} VALUES (?, ?, ?, ?) {_BY}", rows)
        else:
            columns = tuple(map(list, zip(*rows, strict=True)))
            several = "SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::float8[])"
            self._connection.exec_driver_sql(f"{_RAISE} {several} {_BY}", columns)

    def all(self, name: str | None = None) -> list[Count]:
        # By position: with a thousand sources this is tens of thousands of rows, at every scrape.
        columns = (counters.c.name, counters.c.source, counters.c.label, counters.c.value)
        statement = select(*columns).order_by(*columns[:3])
        if name is not None:
            statement = statement.where(counters.c.name == name)
        return [Count(*row) for row in self._connection.execute(statement)]

    def value(self, name: str, source: str = "", label: str = "") -> float:
        found = self._connection.execute(
            select(counters.c.value).where(
                counters.c.name == name, counters.c.source == source, counters.c.label == label
            )
        ).scalar()
        return float(found or 0.0)

    def forget_source(self, source: str) -> int:
        """Drop the counters of a source that was removed, so that its series disappear."""
        return self._connection.execute(
            delete(counters).where(counters.c.source == source)
        ).rowcount


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
        texts = [json.dumps(value) for value in values.values()]
        dialect = self._connection.dialect
        if dialect.name == "sqlite":
            written = notes.c.updated_at.type.bind_processor(dialect)
            moment = written(self._now) if written else self._now
            rows = [(room, key, text, moment) for key, text in zip(values, texts, strict=True)]
            self._connection.exec_driver_sql(f"{_NOTE} VALUES (?, ?, ?, ?) {_AGAIN}", rows)
        else:
            several = "SELECT %s, key, value::jsonb, %s FROM unnest(%s::text[], %s::text[])"
            self._connection.exec_driver_sql(
                f"{_NOTE} {several} AS given (key, value) {_AGAIN}",
                (room, self._now, list(values), texts),
            )

    def get_many(self, room: str, keys: Collection[str]) -> dict[str, Any]:
        """The notes of a room that are there, by key."""
        found: dict[str, Any] = {}
        for piece in chunks(keys):
            rows = self._connection.execute(
                select(notes.c.key, notes.c.value).where(
                    notes.c.room == room, notes.c.key.in_(piece)
                )
            )
            found |= {row.key: row.value for row in rows}
        return found

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

    def delete(self, room: str, key: str) -> None:
        self._connection.execute(delete(notes).where(notes.c.room == room, notes.c.key == key))


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
_RAISE = "INSERT INTO counters (name, source, label, value)"
_BY = "ON CONFLICT (name, source, label) DO UPDATE SET value = counters.value + excluded.value"
