"""Reads the summary of a store that status and metrics show, in one transaction."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from monitor.store import Store, Transaction
from monitor.store.counters_and_image_account import Account, account
from monitor.store.disk_space import read_outages
from monitor.store.errors import StoreError
from monitor.store.note_and_counter_names import (
    COORDINATOR_LEASE,
    DRIFT,
    HEARTBEAT,
    REUSE_CHANGE,
    REUSE_CHECKS,
    REUSED,
    SENSITIVITY,
    SHIFTS,
    SOURCES,
)
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin, FileState, VersionState
from monitor.store.records import ClassRow, Count, Event, Publication, Question, Version
from monitor.store.snapshot_manifest import read_meta
from monitor.telemetry.silent_sources import Pace
from monitor.telemetry.store_summary import (
    CoordinatorSummary,
    DiscoverySummary,
    DriftSummary,
    LabelSummary,
    SourceSummary,
    StoreSummary,
    VersionSummary,
)

#: The lease that a running monitor holds, and where it leaves notes.
WEBHOOK_ROOM = "webhooks"
#: The account is a sum over the whole ledger; it is computed at most this often.
ACCOUNT_SECONDS = 30.0
#: Where the exporter keeps in which hours the sources sent, and since when it has looked.
METRICS_ROOM, HOURS, LOOKS = "metrics", "hours", "looks"
#: How often the latter is written: well within what counts as a pause.
LOOKS_SECONDS = 300.0

#: Counters of images by outcome and of rejected images by reason. A row too broken to name its
#: source is counted under none, and is an image as well.
IMAGES, REJECTIONS = "images", "rejected"

#: Files of which something is still to be read.
UNFINISHED = (FileState.NEW, FileState.PLANNED)

#: The event of a new class, and how many of them are kept in sight: enough for a busy month,
#: few enough that a series for each of them costs nothing.
DISCOVERED = "class.discovered"
DISCOVERIES_SHOWN = 100


class StoreSummaryReader:
    """Reads the summary of the store, as often as needed.

    What never changes (what is known of a detector version) is read once.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     truth = StoreSummaryReader(store).read()
    >>> truth.coordinator.running, truth.detector, truth.sources
    (False, None, ())
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._meta: dict[str, Mapping[str, Any]] = {}
        self._adapted: dict[str, Mapping[str, float]] = {}
        self._pace: Pace | None = None
        self._is_hour_over = False
        self._looks_kept_at: datetime | None = None
        self._account: tuple[float, Account] = (-math.inf, Account())

    def read(self) -> StoreSummary:
        with self._store.reading() as tx:
            seen = _look(tx)
            sums = self._sums(tx)
            waiting = read_outages(tx, self._store)
            if self._pace is None:
                notes = (tx.notes.get(METRICS_ROOM, key) for key in (HOURS, LOOKS))
                self._pace = Pace.from_notes(*notes)
        sources = tuple(_sources(seen))
        last = {s.name: s.last_commit_at for s in sources if s.last_commit_at is not None}
        self._is_hour_over |= self._pace.look(seen.now, last)
        return StoreSummary(
            at=seen.now,
            where=self._store.database.where,
            coordinator=seen.coordinator,
            detector=self._in_use(seen),
            versions=Counter(version.state for version in seen.versions),
            held=tuple(v.number for v in seen.versions if v.state is VersionState.HELD),
            classes=Counter(row.origin for row in seen.classes if row.living),
            files=seen.files,
            oldest_waiting_at=seen.oldest_waiting_at,
            batches_pending=seen.batches_pending,
            pools=seen.pools,
            answers=seen.answers,
            labels=seen.labels,
            sources=sources,
            silent=self._pace.silent(seen.now, last),
            discoveries=tuple(_discovery(event) for event in seen.discoveries),
            webhooks={
                name: int(_mapping(note).get("failures") or 0)
                for name, note in seen.webhooks.items()
            },
            totals={(c.name, c.label): c.value for c in seen.counters if not c.source},
            account=sums,
            quarantined=seen.quarantined,
            outages=waiting.outages,
            unwritable=waiting.unwritable,
        )

    def _sums(self, tx: Transaction) -> Account:
        at, found = self._account
        if time.monotonic() - at >= ACCOUNT_SECONDS:
            found = account(tx)
            self._account = (time.monotonic(), found)
        return found

    def keep_pace(self) -> None:
        """Write down what is known of the sources' pace, for the next process.

        For the one reader that looks all the time. In which hours the sources sent is written once
        an hour: what a crash loses of the present one, the times of the last commits tell again.
        """
        pace, before = self._pace, self._looks_kept_at
        if pace is None or pace.at is None:
            return
        is_due = before is None or (pace.at - before).total_seconds() >= LOOKS_SECONDS
        if not is_due and not self._is_hour_over:
            return
        with self._store.transaction() as tx:
            if self._is_hour_over:
                tx.notes.set(METRICS_ROOM, HOURS, pace.hours())
            tx.notes.set(METRICS_ROOM, LOOKS, pace.looks())
        self._is_hour_over, self._looks_kept_at = False, pace.at

    def _in_use(self, seen: _Seen) -> VersionSummary | None:
        if not seen.publications:
            return None
        last = seen.publications[-1]
        version = next(v for v in seen.versions if v.number == last.number)
        meta = self._meta_of(version)
        ids = (
            {entry["id"] for entry in meta["classes"]}
            if meta is not None
            else {row.id for row in seen.classes if row.living and row.created_in is not None}
        )
        discovered = {row.id for row in seen.classes if row.origin is not ClassOrigin.FIT}
        calibration = {} if meta is None else meta["calibration"]
        fingerprint = {} if meta is None else meta["fingerprint"]
        names = {row.id: row.name for row in seen.classes}
        adapted = {} if meta is None else self._adapted_of(version, meta)
        return VersionSummary(
            version=version.number,
            updated_at=last.at,
            fingerprint=version.fingerprint,
            known=len(ids),
            discovered=len(ids & discovered),
            t_inner=calibration.get("t_inner"),
            exceedance=calibration.get("exceedance"),
            backbone=fingerprint.get("backbone"),
            precision=fingerprint.get("precision"),
            adapted={(id_, names.get(id_, id_)): share for id_, share in adapted.items()},
            noticeable={
                pools: seen.sensitivity[key]
                for pools, key in ((1, "one_pool"), (10, "ten_pools"))
                if key in seen.sensitivity
            },
        )

    def _meta_of(self, version: Version) -> Mapping[str, Any] | None:
        """None if the files cannot be reached; the rest of the summary is still shown."""
        if version.sha256 not in self._meta:
            try:
                found = read_meta(self._store.folder, version.snapshot, sha256=version.sha256)
            except (StoreError, OSError):
                return None
            self._meta = {version.sha256: found}
        return self._meta[version.sha256]

    def _adapted_of(self, version: Version, meta: Mapping[str, Any]) -> Mapping[str, float]:
        """By class id; a detector whose classes all have one look has learnt none."""
        if all(len(entry["modes"]) == 1 for entry in meta["classes"]):
            return {}
        if version.sha256 not in self._adapted:
            # Only now: the mathematics takes a second to load.
            from monitor.novelty.drift.adaptation import adapted
            from monitor.store.snapshots import load_snapshot

            try:
                detector = load_snapshot(
                    self._store.folder, version.snapshot, sha256=version.sha256
                )
            except (StoreError, OSError):
                return {}
            self._adapted = {version.sha256: adapted(detector)}
        return self._adapted[version.sha256]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The rows of one transaction, not yet put together."""

    now: datetime
    coordinator: CoordinatorSummary
    versions: Sequence[Version]
    publications: Sequence[Publication]
    classes: Sequence[ClassRow]
    files: Mapping[Any, int]
    oldest_waiting_at: datetime | None
    batches_pending: int
    pools: Mapping[Any, int]
    answers: Mapping[Any, int]
    labels: LabelSummary
    counters: Sequence[Count]
    open_questions: Sequence[Question]
    probed: Collection[int]
    """Quiet pools about which a few questions are out, with nothing new among the answers."""
    discoveries: Sequence[Event]
    sources: Mapping[str, Any]
    drift: Mapping[str, Any]
    corrected: Collection[str]
    """The sources that are judged with their shift corrected."""
    webhooks: Mapping[str, Any]
    sensitivity: Mapping[str, Any]
    quarantined: Mapping[str, int]


def _look(tx: Transaction) -> _Seen:
    coordinator = _coordinator(tx)
    asked_about = tx.pools.in_state(PoolState.ASKING, PoolState.WAITING)
    counters = tx.counters.all()
    return _Seen(
        now=tx.now,
        sensitivity=_mapping(tx.notes.get(*SENSITIVITY)),
        quarantined=tx.counts.quarantined(),
        coordinator=coordinator,
        versions=tx.versions.all(),
        publications=tx.versions.publications(),
        classes=tx.classes.all(),
        files=tx.counts.files_by_state(),
        oldest_waiting_at=_oldest_waiting(tx),
        batches_pending=tx.counts.pending_batches(),
        pools=tx.counts.pools_by_state(),
        answers=tx.answers.count_by_kind(),
        labels=LabelSummary(
            spent=int(sum(c.value for c in counters if c.name == "labels_spent")),
            budget=sum(pool.budget for pool in asked_about),
            asked=sum(pool.asked for pool in asked_about),
            per_week=coordinator.labels_per_week,
            this_week=coordinator.labels_this_week,
        ),
        counters=counters,
        open_questions=list(_open_questions(tx)),
        probed={pool.id for pool in asked_about if pool.is_probe},
        discoveries=tx.events.latest(kinds=[DISCOVERED], limit=DISCOVERIES_SHOWN),
        sources=tx.notes.all(SOURCES),
        drift=tx.notes.all(DRIFT),
        corrected=frozenset(tx.notes.keys(SHIFTS)),
        webhooks=tx.notes.all(WEBHOOK_ROOM),
    )


def _coordinator(tx: Transaction) -> CoordinatorSummary:
    lease = tx.leases.get(COORDINATOR_LEASE)
    note = _mapping(tx.notes.get(*HEARTBEAT))
    labels = _mapping(note.get("labels"))
    return CoordinatorSummary(
        running=lease is not None and lease.is_held(tx.now),
        owner=None if lease is None else lease.owner,
        since=None if lease is None else lease.acquired_at,
        version=note.get("version"),
        host=note.get("host"),
        pid=note.get("pid"),
        address=note.get("address"),
        started_at=_moment(note.get("started_at")),
        actors_up=_mapping(note.get("actors_up")),
        actors_starting=_mapping(note.get("actors_starting")),
        labels_per_week=labels.get("per_week"),
        labels_this_week=labels.get("spent_this_week"),
    )


def _oldest_waiting(tx: Transaction) -> datetime | None:
    """Files are numbered as they are first seen, so the first of each state is the oldest."""
    first = [file for state in UNFINISHED for file in tx.files.in_state(state, limit=1)]
    return min((file.first_seen_at for file in first), default=None)


def _open_questions(tx: Transaction) -> Iterator[Question]:
    last = 0
    while page := tx.questions.list_open(after=last):
        yield from page
        last = page[-1].id


def _sources(seen: _Seen) -> Iterator[SourceSummary]:
    """A source is what has counters: when they are dropped, it is gone, whatever else remains."""
    counts: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for count in seen.counters:
        if count.source or count.name in (IMAGES, REJECTIONS):
            counts[count.source][count.name][count.label] = count.value
    waiting: dict[str, list[datetime]] = defaultdict(list)
    suspected: Counter[str] = Counter()
    for question in seen.open_questions:
        waiting[question.source_id].append(question.opened_at)
        suspected[question.source_id] += question.pool_id not in seen.probed
    for name in sorted({*counts, *waiting}):
        found = counts[name]
        note = _mapping(seen.sources.get(name))
        yield SourceSummary(
            name=name,
            images=_whole(found[IMAGES]),
            rejected=_whole(found[REJECTIONS]),
            settled=_whole(found["settled"]),
            above=sum(found["above"].values()),
            expected_above=sum(found["expected_above"].values()),
            ratios=found["score_ratio"],
            ratio_sum=sum(found["score_ratio_sum"].values()),
            reused=int(sum(found[REUSED].values())),
            reuse_checks=int(sum(found[REUSE_CHECKS].values())),
            reuse_change=sum(found[REUSE_CHANGE].values()),
            questions_open=len(waiting[name]),
            questions_suspected=suspected[name],
            oldest_question_at=min(waiting[name], default=None),
            implausible=int(sum(found["implausible_times"].values())),
            last_captured_at=_moment(note.get("last_captured_at")),
            last_commit_at=_moment(note.get("last_commit_at")),
            drift=_drift(seen.drift.get(name)),
            corrected=name in seen.corrected,
        )


def _drift(note: Any) -> DriftSummary | None:
    verdict = _mapping(_mapping(note).get("verdict"))
    level, strength = verdict.get("level"), verdict.get("strength")
    if not isinstance(level, int | float) or not isinstance(strength, int | float):
        return None
    since, words = verdict.get("since"), verdict.get("words")
    return DriftSummary(
        level=float(level),
        strength=float(strength),
        active=bool(verdict.get("shifted")),
        learning=int(verdict.get("learning") or 0),
        since=datetime.fromtimestamp(since, UTC) if isinstance(since, int | float) else None,
        words=", ".join(map(str, words)) if isinstance(words, list) and words else None,
    )


def _discovery(event: Event) -> DiscoverySummary:
    payload = event.payload
    return DiscoverySummary(
        at=event.at,
        class_id=str(payload.get("class_id", "")),
        name=str(payload.get("name", "")),
        source=event.source,
        version=payload.get("version"),
        pool=payload.get("pool"),
        human=int(payload.get("human") or 0),
        pseudo=int(payload.get("pseudo") or 0),
        sources=_mapping(payload.get("sources")),
    )


def _whole(counts: Mapping[str, float]) -> dict[str, int]:
    return {label: int(value) for label, value in counts.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    """Notes are written by others, and by other versions: what is no mapping says nothing."""
    return value if isinstance(value, Mapping) else {}


def _moment(value: Any) -> datetime | None:
    """
    >>> _moment("2024-05-17T06:00:00+00:00"), _moment("yesterday"), _moment(None)
    (datetime.datetime(2024, 5, 17, 6, 0, tzinfo=datetime.timezone.utc), None, None)
    """
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
