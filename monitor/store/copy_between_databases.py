"""Every row of one database into another, of the same kind or not.

A backup of PostgreSQL becomes a SQLite file in this way, and state that began on one machine
moves to PostgreSQL when it grows.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, bindparam, insert, select

from monitor.store.tables import metadata

#: Rows in one statement: enough that the round trip to a server no longer counts.
CHUNK = 2000


def copy_rows(source: Connection, target: Connection) -> int:
    """Copy all tables into empty ones of the present layout; returns the number of rows."""
    return sum(_copy(table, source, target) for table in metadata.sorted_tables)


def is_empty(connection: Connection) -> bool:
    """Whether the tables hold nothing but the number of their layout."""
    return not any(
        connection.execute(select(table).limit(1)).first()
        for table in metadata.sorted_tables
        if table.name != "schema_version"
    )


def _copy(table: Table, source: Connection, target: Connection) -> int:
    own = _references_to_itself(table)
    key = list(table.primary_key.columns)
    rows = source.execution_options(yield_per=CHUNK).execute(select(table).order_by(*key))
    count = 0
    later: list[dict[str, object]] = []
    for piece in rows.mappings().partitions(CHUNK):
        values = [{**row} for row in piece]
        for value in values:
            # A row may point at one that comes after it: the pointer is set when all are there.
            if any(value[name] is not None for name in own):
                later.append({f"old_{c.name}": value[c.name] for c in key} | _take(value, own))
        target.execute(insert(table), values)
        count += len(values)
    if later:
        match = [column == bindparam(f"old_{column.name}") for column in key]
        target.execute(table.update().where(*match), later)
    return count


def _take(value: dict[str, object], names: list[str]) -> dict[str, object]:
    taken = {name: value[name] for name in names}
    value.update(dict.fromkeys(names))
    return taken


def _references_to_itself(table: Table) -> list[str]:
    return [
        column.name
        for column in table.columns
        if any(key.column.table is table for key in column.foreign_keys)
    ]
