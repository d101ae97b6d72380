"""Column types that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

#: 64 bits on both; SQLite only makes an INTEGER the row id itself, which saves an index.
BigId = BigInteger().with_variant(Integer(), "sqlite")

E = TypeVar("E", bound=StrEnum)


class Document(TypeDecorator[Any]):
    """JSON; JSONB on PostgreSQL so that operators can query into it."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(JSON())
        # Here rather than above: this dialect takes a tenth of a second to load.
        from sqlalchemy.dialects.postgresql import JSONB

        return dialect.type_descriptor(JSONB())


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC, with microseconds; never a naive or a local time.

    SQLite has no time type and drops the zone, so it is put back on the way out.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; the store only takes UTC moments")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Choice(TypeDecorator[E]):
    """One word of an enumeration, kept as text.

    Not a database enum and no CHECK: a new word must not need a table rebuild on SQLite.
    """

    impl = Text
    cache_ok = True

    def __init__(self, words: type[E]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else self.words(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> E | None:
        return None if value is None else self.words(value)
