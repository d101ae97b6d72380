"""From the feed to embedded batches: list, plan, hand out, and deal with what fails there."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from actors.batch_retries import RETRY_SECONDS, BatchRetries, LossRecord
from actors.batches_in_flight import BatchesInFlight, BatchInFlight, Stage
from actors.coordinator_lease import record_attempt, record_survival
from actors.event_sentences import Listener, MonitorMessage
from actors.worker_pool import Done, WorkerPool
from monitor.config import Config
from monitor.errors import OUTAGES, ErrorKind, kind_of
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.errors import (
    FeedError,
    FileChanged,
    FileGone,
    SourceError,
    SourceMissing,
    SourceUnavailable,
)
from monitor.feed.feed_storage import FeedFile
from monitor.feed.new_files import FeedWatch, Sight
from monitor.jobs.from_config import columns_of, feed_storage_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.outages import Outages
from monitor.pipeline.file_intake import FileIntake, IntakeResult, PendingBatches, quarantine_file
from monitor.pipeline.worker_tasks import EmbedBatch
from monitor.store import Store
from monitor.store.records import Lease

#: How long a turn waits for a listing that may be over at once.
LISTING_WAIT_SECONDS = 0.005
#: A folder that does not say within this time whether it is there hangs.
HANG_SECONDS = 30.0
#: Names that are not taken in, said after one listing: somebody may have put thousands there.
REFUSED_SHOWN = 20
#: A file that stays away for so long while others are read is gone: uploads and mounts take less.
ALONE_SECONDS = 600.0


class BatchFeeder:
    """Keeps embedders busy with the next batches of the ledger.

    With ``once`` the feed is listed a single time.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        workers: WorkerPool,
        lease: Lease,
        fingerprint: Fingerprint,
        *,
        once: bool,
        listener: Listener,
        outages: Outages | None = None,
    ) -> None:
        self._store, self._config, self._workers, self._lease = store, config, workers, lease
        self._once = once
        self._listener = listener
        self._outages = outages or Outages(report=self._say)
        self._source = feed_storage_of(config)
        self._intake = FileIntake(
            store,
            self._source,
            columns_of(config),
            rows=rows_per_batch(config, fingerprint),
            lease=lease,
        )
        self.in_flight = BatchesInFlight()
        self.retries = BatchRetries(
            store, lease, self.in_flight, tries=config.run.tries, listener=listener
        )
        self._pending = PendingBatches(store, under_way=self.in_flight.ids)
        self._watch = FeedWatch(self._source, seconds=config.run.poll_seconds)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="listing")
        self._listing: Future[Sight] | None = None
        self._listing_began = 0.0
        # While a listing takes long: whether the folder answers at all, and since when it is asked.
        self._probe: tuple[threading.Thread, float] | None = None
        self._has_listed = False
        self._may_have_new_files = False
        self._plan_not_before = -float("inf")
        self._refused: frozenset[str] = frozenset()

    @property
    def unfinished(self) -> int:
        """Files that somebody still seems to write."""
        return self._intake.unfinished

    def is_drained(self) -> bool:
        """Whether everything that the one listing showed has been dealt with."""
        if not self._has_listed or len(self.in_flight):
            return False
        if time.monotonic() < self._plan_not_before:
            return False
        if self.unfinished:
            self._void(self._intake.look_again())
        found = self._intake.plan(final=True)
        if found.batches:
            self._pending.read_again()
        return not self._hold_planning(found) and not self._pending.has(1)

    def _hold_planning(self, found: IntakeResult) -> bool:
        """Whether files are left that cannot be reached now: they are tried again in a while."""
        if found.outage is None:
            return False
        self.is_away(found.outage)
        self._may_have_new_files = True
        self._plan_not_before = time.monotonic() + self._outages.pause(ErrorKind.FEED)
        return True

    def close(self) -> None:
        self._background.shutdown(wait=False, cancel_futures=True)

    # -- the feed ---------------------------------------------------------------------------

    @property
    def seconds_until_look(self) -> float:
        """Until the feed is to be looked at again, or a look under way may be over."""
        if self._listing is not None:
            return 4 * LISTING_WAIT_SECONDS
        return float("inf") if self._once and self._has_listed else self._watch.seconds_until_due

    def take_in(self) -> None:
        """List the feed now and then, in the background; enter and plan what is new."""
        if self._listing is None and self._watch.is_due and not (self._once and self._has_listed):
            self._listing = self._background.submit(self._watch.look)
            self._listing_began = time.monotonic()
            # A listing of a local folder is mostly over at once, and a turn is long beside it.
            wait([self._listing], timeout=LISTING_WAIT_SECONDS)
        if self._listing is not None and self._listing.done():
            self._enter(self._listing)
            self._listing = self._probe = None
        elif self._listing is not None:
            self._look_for_hang(time.monotonic())
        may_plan = self._may_have_new_files and time.monotonic() >= self._plan_not_before
        if may_plan and not self._pending.has(self._window()):
            found = self._intake.plan()
            self._may_have_new_files = bool(found.batches or found.problems)
            if not self._hold_planning(found) and found.batches:
                self.is_reachable()
            if found.batches:
                self._pending.read_again()
            for problem in found.problems:
                self._say("file.quarantined", problem)

    def _look_for_hang(self, now: float) -> None:
        """A listing may take long; a folder that answers nothing (a dead mount) is away."""
        if now - self._listing_began < HANG_SECONDS:
            return
        if self._probe is None:
            # A daemon: one that hangs for good must not keep us from ending.
            asked = threading.Thread(target=self._source.is_there, name="probe", daemon=True)
            asked.start()
            self._probe = asked, now
        elif not self._probe[0].is_alive():
            self._probe, self._listing_began = None, now
        elif now - self._probe[1] > HANG_SECONDS:
            place = self._source.location
            self.is_away(SourceUnavailable(f"{place}: has not answered for {HANG_SECONDS:g} s"))

    def _enter(self, listing: Future[Sight]) -> None:
        try:
            sight = listing.result()
        except SourceUnavailable as error:
            if isinstance(error, SourceMissing) and self._is_first_listing():
                # Nothing was ever seen there: a mistake in feed.path, not an outage.
                raise SourceError(str(error)) from error
            self.is_away(error)
            self._watch.postpone(self._outages.pause(ErrorKind.FEED))
            return
        self._void(self._intake.register(sight.files, whole=sight.is_whole))
        if time.monotonic() >= self._plan_not_before:
            self.is_reachable()
        if sight.is_whole:
            for problem in sorted(set(sight.refused) - self._refused)[:REFUSED_SHOWN]:
                self._say("file.refused", f"passed over: {problem}")
            self._refused = frozenset(sight.refused)
            # The truth, also about what others did to the ledger and about unfinished files.
            self._has_listed = self._may_have_new_files = True
            self._pending.read_again()
        elif sight.files:
            self._may_have_new_files = True

    def _void(self, found: IntakeResult) -> None:
        """Say what a listing showed, and forget batches that are not what they were."""
        for problem in found.problems:
            self._say("file.changed", problem)
        for file_id in found.moved:
            self.in_flight.remove_file(file_id)
            self._pending.remove_file(file_id)
        if found.moved:
            self._pending.read_again()
        if found.outage is not None:
            self.is_away(found.outage)
        self._may_have_new_files = self._may_have_new_files or bool(found.new)

    def _is_first_listing(self) -> bool:
        if self._has_listed:
            return False
        with self._store.reading() as tx:
            return not tx.counts.files_by_state()

    def is_away(self, error: BaseException, kind: ErrorKind | None = None) -> None:
        """Something that we need does not answer; it is said once, and waited for."""
        self._outages.begin(error, kind)

    def is_reachable(self) -> None:
        """Something of the feed was read; it is back unless a batch still waits for its file."""
        if not any(one.away_since is not None for one in self.in_flight):
            self._outages.end(ErrorKind.FEED)

    def _window(self) -> int:
        """Batches under way at most: twice what embedders take, so that none ever waits."""
        return 2 * self._workers.capacity("embedder") + 2

    # -- embedding --------------------------------------------------------------------------

    def hand_out(self) -> None:
        free = self._window() - len(self.in_flight)
        if free > 0 and self._has_listed:
            self._fill(free)
        for one in self.in_flight.at(Stage.WAITING):
            if self._workers.room("embedder") < 1:
                break
            if time.monotonic() < one.not_before:
                continue
            if not self._may_start(one):
                break
            if one.batch.tries and not one.is_recorded:
                record_attempt(self._store, self._lease, one.batch.id)
                one.is_recorded = True
            one.stage, one.began = Stage.EMBEDDING, time.monotonic()
            self._workers.submit(EmbedBatch(one.batch.id, one.planned, alone=one.is_suspect))

    def _fill(self, free: int) -> None:
        for batch, file in self._pending.take(free):
            stat = FeedFile(file.path, file.size, file.mtime_ns, file.digest)
            one = BatchInFlight(batch, PlannedBatch(stat, batch.first_row, batch.rows))
            if batch.tries >= self._config.run.tries:
                self.retries.quarantine(one, "it was in work each time that the monitor died")
            else:
                self.in_flight.add(one)

    def _may_start(self, one: BatchInFlight) -> bool:
        """Suspects run alone, so that a death is not counted against others."""
        running = self.in_flight.at(Stage.EMBEDDING)
        return not running if one.is_suspect else not any(other.is_suspect for other in running)

    def receive(self, one: BatchInFlight, done: Done) -> None:
        """Take an embedded batch, or do what its error asks for (:data:`TREATMENT`)."""
        now = time.monotonic()
        if done.error is None:
            _, one.features = done.result
            one.stage = Stage.EMBEDDED
            if one.is_recorded:
                record_survival(self._store, self._lease, one.batch.id)
                one.batch, one.is_recorded = replace(one.batch, tries=0), False
            one.away_since = None
            if not one.fails_late:
                one.losses, one.failing_since = LossRecord(), None
            self.retries.passed("embedding")
            self._outages.end(ErrorKind.DEVICE)
            self.is_reachable()
            return
        one.back_to(Stage.WAITING)
        kind = kind_of(done.error)
        if kind is ErrorKind.FEED:
            self._file_is_away(one, done.error, now)
        elif isinstance(done.error, FileChanged):
            self._register_again(one, done.error)
        elif kind is ErrorKind.FILE:
            self._quarantine_file(one, done.error)
        elif kind in (ErrorKind.DEVICE, ErrorKind.WORKER):
            # Nothing is known about the batch. The worker pool has replaced a broken worker.
            self.is_away(done.error, ErrorKind.DEVICE)
            one.not_before = now + self._outages.pause(ErrorKind.DEVICE)
        elif kind in OUTAGES:
            raise done.error
        elif done.died:
            deaths = sum(self._workers.restarts().values())
            self.retries.count_death(one, done.error, of_all=deaths)
        else:
            self.retries.count_error(one, done.error, "embedding")

    def _file_is_away(self, one: BatchInFlight, error: BaseException, now: float) -> None:
        """Wait for the storage; a file that alone stays away while others are read is gone."""
        one.away_since = now if one.away_since is None else one.away_since
        is_alone = self.retries.has_passed_since(one.away_since)
        if is_alone and now - one.away_since > ALONE_SECONDS:
            self._quarantine_file(one, FileGone(str(error)))
            return
        self.is_away(error)
        one.not_before = now + self._outages.pause(ErrorKind.FEED)

    def _register_again(self, one: BatchInFlight, error: BaseException) -> None:
        """The file is not the one that was planned: what has not been read is planned again."""
        try:
            now = self._source.stat(one.planned.file.path)
        except FeedError as problem:
            one.not_before = time.monotonic() + RETRY_SECONDS
            if kind_of(problem) is ErrorKind.FEED:
                self.is_away(problem)
            else:
                self._quarantine_file(one, problem)
            return
        found = self._intake.register([now], whole=False, again=True)
        self._void(found)
        if one.batch.file_id in found.moved or found.outage is not None:
            return
        self.retries.count_error(one, error, "embedding")

    def _quarantine_file(self, one: BatchInFlight, problem: BaseException) -> None:
        assert isinstance(problem, FeedError)
        with self._store.transaction(self._lease) as tx:
            quarantine_file(tx, one.batch.file_id, one.planned.file.path, problem)
        self.in_flight.remove_file(one.batch.file_id)
        self._pending.remove_file(one.batch.file_id)
        self._say("file.quarantined", str(problem))

    def _say(self, kind: str, text: str) -> None:
        self._listener(MonitorMessage(kind, text))


def rows_per_batch(config: Config, fingerprint: Fingerprint) -> int:
    """As configured, else by what computes: half a second's work of a core, or of a GPU.

    Of unchanged frames a batch may hold more: most of them cost nothing.
    """
    if config.feed.batch_rows is not None:
        return config.feed.batch_rows
    if config.feed.reuse_unchanged == "always":
        return 256
    return 256 if fingerprint.precision == "float16" else 32
