"""What is true of a monitor at one moment, as values.

Everything that an operator is shown (``conclad status``, ``/metrics``) is made from a
:class:`StoreSummary`, and a summary is read from the store alone. A batch that was done twice after
a crash is counted once, and every figure is right from the first moment after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from monitor.outages import Outage
from monitor.store.answer_kinds import AnswerKind, AnswerOutcome
from monitor.store.counters_and_image_account import Account
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin, FileState, VersionState
from monitor.telemetry.silent_sources import Silent


@dataclass(frozen=True, slots=True)
class CoordinatorSummary:
    """The process that moves the feed, as its lease and its own notes describe it.

    What the notes say (version, actors, labels) is what the last monitor said; only
    ``running`` tells whether there is one now.
    """

    running: bool
    owner: str | None = None
    since: datetime | None = None
    version: str | None = None
    host: str | None = None
    pid: int | None = None
    address: str | None = None
    started_at: datetime | None = None
    actors_up: Mapping[str, int] = field(default_factory=dict)
    actors_starting: Mapping[str, int] = field(default_factory=dict)
    labels_per_week: int | None = None
    labels_this_week: int | None = None


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """The detector that judges now. ``t_inner`` is missing only when its files cannot be read.

    ``adapted`` is, by id and name of each class that has followed a drift, how far it has: a share
    of what it may, so that at 1 it follows no further. ``noticeable`` is the smallest share of a
    pool that the trigger would notice, by the number of pools that it takes.
    """

    version: int
    updated_at: datetime
    fingerprint: str
    known: int
    discovered: int
    t_inner: float | None = None
    exceedance: float | None = None
    backbone: str | None = None
    precision: str | None = None
    adapted: Mapping[tuple[str, str], float] = field(default_factory=dict)
    noticeable: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriftSummary:
    """Whether the known classes of a source have moved: the evidence, how far, and since when.

    ``level`` reaches 1 where drift is reported; ``strength`` is the length of the shift, where 1
    is the spread within a class. While ``learning`` pools are still needed to know what is normal
    for the source, nothing is reported.
    """

    level: float
    strength: float = 0.0
    active: bool = False
    learning: int = 0
    since: datetime | None = None
    words: str | None = None


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """One camera or station. ``ratios`` counts scores over T_inner by upper bucket border."""

    name: str
    images: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    settled: Mapping[str, int] = field(default_factory=dict)
    above: float = 0.0
    expected_above: float = 0.0
    ratios: Mapping[str, float] = field(default_factory=dict)
    ratio_sum: float = 0.0
    reused: int = 0
    reuse_checks: int = 0
    reuse_change: float = 0.0
    """Scores over T_inner of images that could have been copies, away from those of what they
    show, added up over ``reuse_checks`` of them."""
    questions_open: int = 0
    questions_suspected: int = 0
    """Of them, those about pools that are no mere probe of a quiet feed."""
    oldest_question_at: datetime | None = None
    implausible: int = 0
    last_captured_at: datetime | None = None
    last_commit_at: datetime | None = None
    drift: DriftSummary | None = None
    corrected: bool = False
    """Whether it is judged with its shift corrected."""


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """What people were asked, in all and for the pools that are being asked about now."""

    spent: int = 0
    budget: int = 0
    asked: int = 0
    per_week: int | None = None
    this_week: int | None = None

    @property
    def remaining(self) -> int:
        return max(self.budget - self.asked, 0)

    @property
    def remaining_this_week(self) -> int | None:
        if self.per_week is None:
            return None
        return max(self.per_week - (self.this_week or 0), 0)


@dataclass(frozen=True, slots=True)
class DiscoverySummary:
    """A class that came into the world while we watched."""

    at: datetime
    class_id: str
    name: str
    source: str | None
    version: int | None = None
    pool: int | None = None
    human: int = 0
    pseudo: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """One consistent moment of the store.

    ``silent`` are the sources that should have sent, the longest silent first. ``totals`` are
    the counters that belong to no source, by (name, label). ``webhooks`` are the receivers and how
    often in a row telling them has failed.

    >>> from datetime import UTC
    >>> truth = StoreSummary(at=datetime(2024, 5, 17, tzinfo=UTC), where="state")
    >>> truth.total("batches", "done"), truth.questions_open, truth.oldest_question_at
    (0.0, 0, None)
    """

    at: datetime
    where: str
    coordinator: CoordinatorSummary = CoordinatorSummary(running=False)
    detector: VersionSummary | None = None
    versions: Mapping[VersionState, int] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    classes: Mapping[ClassOrigin, int] = field(default_factory=dict)
    files: Mapping[FileState, int] = field(default_factory=dict)
    oldest_waiting_at: datetime | None = None
    batches_pending: int = 0
    pools: Mapping[PoolState, int] = field(default_factory=dict)
    answers: Mapping[tuple[AnswerKind, AnswerOutcome], int] = field(default_factory=dict)
    labels: LabelSummary = LabelSummary()
    sources: tuple[SourceSummary, ...] = ()
    silent: tuple[Silent, ...] = ()
    discoveries: tuple[DiscoverySummary, ...] = ()
    webhooks: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[tuple[str, str], float] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Files, batches and images that have neither verdict nor reason and wait for a person."""
    outages: tuple[Outage, ...] = ()
    """What the running monitor waits for."""
    unwritable: str | None = None
    """Why the disk of a state without a monitor takes nothing, in a sentence."""

    def total(self, name: str, label: str = "") -> float:
        return self.totals.get((name, label), 0.0)

    def by_label(self, name: str) -> dict[str, float]:
        """All labels of one counter, such as the inner loops by outcome."""
        return {label: value for (found, label), value in self.totals.items() if found == name}

    @property
    def files_waiting(self) -> int:
        return self.files.get(FileState.NEW, 0) + self.files.get(FileState.PLANNED, 0)

    @property
    def questions_open(self) -> int:
        return sum(source.questions_open for source in self.sources)

    @property
    def oldest_question_at(self) -> datetime | None:
        return min(
            (s.oldest_question_at for s in self.sources if s.oldest_question_at), default=None
        )
