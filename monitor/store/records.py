"""What the store hands out: frozen rows, with words and moments instead of text and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import (
    BatchState,
    ClassOrigin,
    FileState,
    QuestionState,
    VersionState,
)


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as a listing shows it, before the store has an opinion about it."""

    path: str
    size: int
    mtime_ns: int | None = None
    digest: str | None = None
    """Hash of its footer, where somebody has read it."""


@dataclass(frozen=True, slots=True)
class FileRow:
    id: int
    path: str
    size: int
    mtime_ns: int | None
    digest: str | None
    rows: int | None
    state: FileState
    reason: str | None
    tries: int
    first_seen_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Batch:
    id: int
    file_id: int
    first_row: int
    rows: int
    state: BatchState
    reason: str | None
    tries: int
    detector_version: int | None
    known: int
    novel: int
    rejected: int
    duplicates: int
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One Parquet file of the outputs and the numbers (batches, versions, settlements) it covers.

    ``staged`` is where the file waited for its name when it was committed; only recovery asks.
    """

    kind: str
    first: int
    last: int
    generation: int
    name: str
    rows: int
    purged: int
    size: int
    sha256: str
    committed_at: datetime
    staged: str | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    id: int
    group_name: str
    state: PoolState
    reason: str | None
    size: int
    above: int
    seed: int
    round: int
    budget: int
    asked: int
    detector_version: int | None
    resolved_by: int | None
    evidence: Mapping[str, Any]
    opened_at: datetime
    closed_at: datetime | None
    finished_at: datetime | None
    spool_dropped_at: datetime | None

    @property
    def is_probe(self) -> bool:
        """Whether a few questions are out about a quiet pool, and nothing new has come of them."""
        return bool(self.evidence.get("probe")) and self.round == 0


@dataclass(frozen=True, slots=True)
class PoolMember:
    """One spooled features file: what a run of batches brought to one pool.

    ``batch_id`` is the first batch of the run and names the file inside its pool; together
    with a row of the file it names a sample (``Sample.batch_id``, ``Sample.spool_row``).
    """

    pool_id: int
    batch_id: int
    last_batch: int
    name: str
    rows: int
    size: int
    sha256: str
    staged: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settled verdicts of a pool's images, or (``revision`` above 1) of some of them again.

    ``first_batch`` to ``last_batch`` brought the pool's images; other pools may share them.
    """

    number: int
    pool_id: int
    revision: int
    reason: str
    rows: int
    first_batch: int | None
    last_batch: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class PoolSample:
    """What a question is about: a row of a spooled file, and where its image is.

    ``batch_id`` and ``spool_row`` are the file's ``PoolMember.batch_id`` and the row in it.
    """

    batch_id: int
    spool_row: int
    image_id: str
    source_id: str
    captured_at: datetime | None
    file: str
    row: int
    score: float
    score_ratio: float
    nearest_class: str | None
    suggestion: Mapping[str, Any]
    thumbnail: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    id: int
    pool_id: int
    round: int
    batch_id: int
    spool_row: int
    image_id: str
    source_id: str
    captured_at: datetime | None
    file: str
    row: int
    score: float
    score_ratio: float
    nearest_class: str | None
    suggestion: Mapping[str, Any]
    thumbnail: str | None
    state: QuestionState
    lease_owner: str | None
    lease_until: datetime | None
    answer_id: int | None
    opened_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Answer:
    id: int
    question_id: int
    kind: AnswerKind
    class_id: str | None
    outcome: AnswerOutcome
    undoes: int | None
    who: str
    at: datetime
    client_id: str


@dataclass(frozen=True, slots=True)
class ClassRow:
    id: str
    name: str
    origin: ClassOrigin
    created_at: datetime
    created_in: int | None
    retired_at: datetime | None
    merged_into: str | None

    @property
    def living(self) -> bool:
        return self.retired_at is None and self.merged_into is None


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    parent: int | None
    key: str
    snapshot: str
    sha256: str
    fingerprint: str
    state: VersionState
    reason: str | None
    pool_id: int | None
    evidence: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Publication:
    """One moment at which a version became the one in use."""

    id: int
    number: int
    at: datetime
    who: str
    reason: str | None
    rollback: bool


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    at: datetime
    kind: str
    source: str | None
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """One step, or one reading, of a counter."""

    name: str
    source: str
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to do a piece of work alone, until it expires.

    ``token`` grows with every new holder; a process with an old one is refused.
    """

    name: str
    owner: str
    token: int
    acquired_at: datetime
    expires_at: datetime

    @property
    def is_released(self) -> bool:
        """Whether it was given back, rather than left behind."""
        return self.expires_at <= self.acquired_at

    def is_held(self, now: datetime) -> bool:
        """Whether a process holds it, by the clock."""
        return not self.is_released and self.expires_at > now


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event to be written in the same transaction."""

    kind: str
    payload: Mapping[str, Any]
    source: str | None = None
