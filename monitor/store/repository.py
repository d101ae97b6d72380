"""What every small repository shares: a connection, one moment, and typed rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Select, func, select

R = TypeVar("R")
T = TypeVar("T")

#: How many values go into one IN (…): far below what either database takes, large enough
#: that a batch of a few thousand images is a handful of statements.
CHUNK = 500


class Repository:
    """Functions over a few tables inside one transaction; ``now`` is the same throughout."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now

    def _all(self, row_type: type[R], statement: Select[Any]) -> list[R]:
        rows = self._connection.execute(statement).mappings()
        return [row_type(**dict(row)) for row in rows]

    def _first(self, row_type: type[R], statement: Select[Any]) -> R | None:
        row = self._connection.execute(statement.limit(1)).mappings().first()
        return None if row is None else row_type(**dict(row))

    def _next_id(self, column: Column[Any]) -> int:
        """One more than the largest: gapless and in commit order, because we write alone."""
        return int(self._connection.execute(select(func.max(column))).scalar() or 0) + 1


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """The values in tuples of at most ``size``.

    >>> list(chunks("abcde", 2))
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    iterator = iter(values)
    while piece := tuple(islice(iterator, size)):
        yield piece
