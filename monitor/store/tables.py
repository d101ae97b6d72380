"""The tables as they are now, the types of their columns, and the base of all repositories.

``migrations.py`` brings older state here. Column types mean the same on SQLite and on PostgreSQL.

Indexes are chosen so that the cost of a batch does not grow with the months behind it: what is
still to do is found through partial indexes that only hold the unfinished rows, duplicates
through the primary key of ``seen``, and everything else is reached by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    func,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import (
    BatchState,
    ClassOrigin,
    FileState,
    QuestionState,
    VersionState,
)

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


#: Raise it together with a migration that brings the previous layout to this one.
SCHEMA_VERSION = 6

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", UtcTime, nullable=False),
)

# -- the ledger: which rows of which files are done -------------------------------------------

files = Table(
    "files",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False, unique=True),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger),
    Column("digest", Text),
    Column("rows", BigInteger),
    Column("state", Choice(FileState), nullable=False),
    Column("reason", Text),
    Column("tries", Integer, nullable=False),
    Column("first_seen_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Index("files_by_state", "state", "id"),
)

batches = Table(
    "batches",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("file_id", BigId, ForeignKey("files.id"), nullable=False),
    Column("first_row", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("state", Choice(BatchState), nullable=False),
    Column("reason", Text),
    Column("tries", Integer, nullable=False),
    Column("detector_version", Integer),
    Column("known", BigInteger, nullable=False),
    Column("novel", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("duplicates", BigInteger, nullable=False),
    Column("settled_at", UtcTime),
    UniqueConstraint("file_id", "first_row"),
    # Two in one: the next work in feed order, and "has this file anything left to do".
    Index("batches_pending", "file_id", "first_row"),
)

seen = Table(
    "seen",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("batch_id", BigId, nullable=False),
    sqlite_with_rowid=False,
)

outputs = Table(
    "outputs",
    metadata,
    Column("kind", Text, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("name", Text, nullable=False, unique=True),
    Column("rows", BigInteger, nullable=False),
    Column("purged", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("committed_at", UtcTime, nullable=False),
    Column("staged", Text),
    PrimaryKeyConstraint("kind", "first"),
)

# -- pools, questions, answers ---------------------------------------------------------------

pools = Table(
    "pools",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    # Empty: each group of sources has a state of its own. Of the layout of the first release.
    Column("group_name", Text, nullable=False),
    Column("state", Choice(PoolState), nullable=False),
    Column("reason", Text),
    Column("size", BigInteger, nullable=False),
    Column("above", BigInteger, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("round", Integer, nullable=False),
    Column("budget", Integer, nullable=False),
    Column("asked", Integer, nullable=False),
    Column("detector_version", Integer),
    Column("resolved_by", Integer),
    Column("evidence", Document, nullable=False),
    Column("opened_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("spool_dropped_at", UtcTime),
    Index("pools_by_state", "state", "id"),
    # What still has features: to be settled, or to be dropped.
    Index("pools_spooled", "id"),
)

pool_members = Table(
    "pool_members",
    metadata,
    Column("pool_id", BigId, ForeignKey("pools.id"), nullable=False),
    Column("batch_id", BigId, ForeignKey("batches.id"), nullable=False),
    Column("last_batch", BigId, ForeignKey("batches.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("staged", Text),
    PrimaryKeyConstraint("pool_id", "batch_id"),
)

# One row each time that verdicts of a pool's images were settled; ``number`` names the file.
settlements = Table(
    "settlements",
    metadata,
    Column("number", BigId, primary_key=True, autoincrement=False),
    Column("pool_id", BigId, ForeignKey("pools.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    # The batches that brought the pool's images: where a reader finds their first verdicts.
    Column("first_batch", BigId),
    Column("last_batch", BigId),
    Column("at", UtcTime, nullable=False),
    UniqueConstraint("pool_id", "revision"),
    Index("settlements_by_batch", "last_batch", "first_batch"),
)

questions = Table(
    "questions",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("pool_id", BigId, ForeignKey("pools.id"), nullable=False),
    Column("round", Integer, nullable=False),
    Column("batch_id", BigId, ForeignKey("batches.id"), nullable=False),
    Column("spool_row", BigInteger, nullable=False),
    Column("image_id", Text, nullable=False),
    Column("source_id", Text, nullable=False),
    Column("captured_at", UtcTime),
    Column("file", Text, nullable=False),
    Column("row", BigInteger, nullable=False),
    Column("score", Double, nullable=False),
    Column("score_ratio", Double, nullable=False),
    Column("nearest_class", Text),
    Column("suggestion", Document, nullable=False),
    Column("thumbnail", Text),
    Column("state", Choice(QuestionState), nullable=False),
    Column("lease_owner", Text),
    Column("lease_until", UtcTime),
    Column("answer_id", BigId),
    Column("opened_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    UniqueConstraint("pool_id", "batch_id", "spool_row"),
    Index("questions_by_pool", "pool_id", "round", "id"),
    Index("questions_open", "id"),
    Index("questions_by_thumbnail", "thumbnail"),
)

answers = Table(
    "answers",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("question_id", BigId, ForeignKey("questions.id"), nullable=False),
    Column("kind", Choice(AnswerKind), nullable=False),
    Column("class_id", Text, ForeignKey("classes.id")),
    Column("outcome", Choice(AnswerOutcome), nullable=False),
    Column("undoes", BigId, ForeignKey("answers.id"), unique=True),
    Column("who", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("client_id", Text, nullable=False, unique=True),
    Index("answers_by_question", "question_id", "id"),
    Index("answers_by_person", "who", "id"),
)

# -- classes and detectors -------------------------------------------------------------------

classes = Table(
    "classes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("origin", Choice(ClassOrigin), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_in", Integer),
    Column("retired_at", UtcTime),
    Column("merged_into", Text, ForeignKey("classes.id")),
    Index("classes_living_name", "name", unique=True),
)

detector_versions = Table(
    "detector_versions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer, ForeignKey("detector_versions.number")),
    Column("key", Text, nullable=False, unique=True),
    Column("snapshot", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("state", Choice(VersionState), nullable=False),
    Column("reason", Text),
    Column("pool_id", BigId, ForeignKey("pools.id")),
    Column("evidence", Document, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

publications = Table(
    "publications",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("number", Integer, ForeignKey("detector_versions.number"), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("reason", Text),
    Column("rollback", Boolean, nullable=False),
)

# -- what happened, how often, and small memories --------------------------------------------

events = Table(
    "events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("kind", Text, nullable=False),
    Column("source", Text),
    Column("payload", Document, nullable=False),
    Index("events_by_kind", "kind", "id"),
    Index("events_by_source", "source", "id"),
    Index("events_by_time", "at"),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("value", Double, nullable=False),
    PrimaryKeyConstraint("name", "source", "label"),
)

# Steps of the counters of many sources, one row for all of a transaction, that are not added yet.
counter_steps = Table(
    "counter_steps",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=False),
    Column("steps", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

notes = Table(
    "notes",
    metadata,
    Column("room", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Document, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    PrimaryKeyConstraint("room", "key"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("acquired_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
)

# -- partial indexes -------------------------------------------------------------------------

#: The rows that a partial index holds, by its name.
PARTIAL = {
    "batches_pending": "state = 'pending'",
    "pools_spooled": "spool_dropped_at IS NULL",
    "questions_open": "state = 'open'",
    "classes_living_name": "retired_at IS NULL AND merged_into IS NULL",
}


@event.listens_for(metadata, "before_create")
def _make_partial(target: MetaData, connection: Connection, **_: Any) -> None:
    """Set the conditions when tables are made.

    As arguments of ``Index`` they would load the dialects of both databases, a tenth of a second,
    whenever the tables are imported.
    """
    for table in target.tables.values():
        for index in table.indexes:
            if index.name in PARTIAL:
                index.dialect_options[connection.dialect.name]["where"] = text(PARTIAL[index.name])


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
