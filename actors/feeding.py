"""From the feed to embedded batches: listing, planning, handing out, and what can fail there."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from actors.backlog import Backlog
from actors.crew import Crew, Done
from actors.flights import Flight, Flights, Stage
from actors.suspicion import Record, note_survival, note_try
from actors.telling import Listener, Told
from monitor.config import Config
from monitor.feed.errors import FeedError, SourceUnavailable
from monitor.feed.plan import BatchSpec
from monitor.feed.source import FeedFile, Source
from monitor.feed.watching import Sight, Watch
from monitor.jobs.parts import columns_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.fencing import fenced
from monitor.pipeline.intake import Intake
from monitor.store import Store
from monitor.store.faults import declare, fault_point
from monitor.store.rows import Count, Lease

declare("coordinator.before_quarantine", "coordinator.after_quarantine")

#: How long a turn waits for a look at the feed that may be over at once.
GLANCE_PATIENCE_SECONDS = 0.005
#: A storage that did not answer is tried again after this time.
PATIENCE_SECONDS = 5.0


class Feeder:
    """Keeps embedders busy with the next batches of the ledger.

    With ``once`` the feed is listed a single time.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        crew: Crew,
        lease: Lease,
        fingerprint: Fingerprint,
        *,
        once: bool,
        listener: Listener,
    ) -> None:
        self._store, self._config, self._crew, self._lease = store, config, crew, lease
        self._once = once
        self._listener = listener
        self._source = Source.at(config.feed.path)
        self._intake = Intake(
            store,
            self._source,
            columns_of(config),
            rows=rows_per_batch(config, fingerprint),
            lease=lease,
        )
        self.flights = Flights()
        self._backlog = Backlog(store, self.flights)
        self._watch = Watch(self._source, seconds=config.run.poll_seconds)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="listing")
        self._looking: Future[Sight] | None = None
        self._has_listed = False
        self._may_have_new_files = False

    @property
    def unfinished(self) -> int:
        """Files that somebody still seems to write."""
        return self._intake.unfinished

    def is_drained(self) -> bool:
        """Whether everything that the one listing showed has been dealt with."""
        if not self._has_listed or len(self.flights):
            return False
        if self._intake.plan(final=True).batches:
            self._backlog.look_again()
        return not self._backlog.holds(1)

    def close(self) -> None:
        self._background.shutdown(wait=False, cancel_futures=True)

    # -- the feed ---------------------------------------------------------------------------

    def take_in(self) -> None:
        """Look at the feed now and then, in the background; enter and plan what is new."""
        if self._looking is None and self._watch.is_due and not (self._once and self._has_listed):
            self._looking = self._background.submit(self._watch.look)
            # Most glances at a local folder are over at once, and a turn is long beside them.
            wait([self._looking], timeout=GLANCE_PATIENCE_SECONDS)
        if self._looking is not None and self._looking.done():
            self._see(self._looking)
            self._looking = None
        if self._may_have_new_files and not self._backlog.holds(self._window()):
            taken = self._intake.plan()
            self._may_have_new_files = bool(taken.batches or taken.problems)
            if taken.batches:
                self._backlog.look_again()
            for problem in taken.problems:
                self._tell("file.quarantined", problem)

    def _see(self, looking: Future[Sight]) -> None:
        try:
            sight = looking.result()
        except SourceUnavailable as error:
            self._tell("feed.unavailable", str(error))
            self._watch.postpone(PATIENCE_SECONDS)
            return
        taken = self._intake.register(sight.files, whole=sight.is_whole)
        for problem in taken.problems:
            self._tell("file.changed", problem)
        if sight.is_whole:
            # The truth, also about what others did to the ledger and about unfinished files.
            self._has_listed = self._may_have_new_files = True
            self._backlog.look_again()
        elif sight.files:
            self._may_have_new_files = True

    def _window(self) -> int:
        """Batches under way at most: twice what embedders take, so that none ever waits."""
        return 2 * self._crew.capacity("embedder") + 2

    # -- embedding --------------------------------------------------------------------------

    def hand_out(self) -> None:
        free = self._window() - len(self.flights)
        if free > 0 and self._has_listed:
            self._fill(free)
        for flight in self.flights.at(Stage.WAITING):
            if self._crew.room("embedder") < 1 or not self._may_start(flight):
                break
            if flight.batch.tries and not flight.is_noted:
                note_try(self._store, self._lease, flight.batch.id)
                flight.is_noted = True
            flight.stage, flight.began = Stage.EMBEDDING, time.monotonic()
            self._crew.submit("embedder", flight.batch.id, "embed", flight.spec)

    def _fill(self, free: int) -> None:
        for batch, file in self._backlog.take(free):
            stat = FeedFile(file.path, file.size, file.mtime_ns)
            flight = Flight(batch, BatchSpec(stat, batch.first_row, batch.rows))
            if batch.tries >= self._config.run.tries:
                self._quarantine(flight, "it was in work each time that the monitor died")
            else:
                self.flights.add(flight)

    def _may_start(self, flight: Flight) -> bool:
        """Suspects run alone, so that the innocent beside them are not blamed."""
        if time.monotonic() < flight.not_before:
            return False
        running = self.flights.at(Stage.EMBEDDING)
        return not running if flight.is_suspect else not any(f.is_suspect for f in running)

    def receive(self, flight: Flight, done: Done) -> None:
        if done.error is None:
            _, flight.handle = done.value
            flight.stage = Stage.EMBEDDED
            if flight.is_noted:
                note_survival(self._store, self._lease, flight.batch.id)
                flight.batch, flight.is_noted = replace(flight.batch, tries=0), False
            flight.record = Record()
            return
        flight.back_to(Stage.WAITING)
        if isinstance(done.error, SourceUnavailable):
            flight.not_before = time.monotonic() + PATIENCE_SECONDS
            self._tell("feed.unavailable", str(done.error))
        elif isinstance(done.error, FeedError):
            self._quarantine_file(flight, str(done.error))
        elif done.died:
            self._mourn(flight, done.error)
        else:
            self.blame(flight, done.error)

    def _mourn(self, flight: Flight, error: BaseException) -> None:
        """A worker died with this batch in hand; its own fault, if chance cannot explain it."""
        now = time.monotonic()
        flight.record = flight.record.died(
            at=now,
            total=sum(self._crew.restarts().values()),
            alone=now - flight.began if flight.is_suspect else None,
        )
        if flight.record.is_damning(self._config.run.tries):
            number = flight.record.losses
            self._quarantine(flight, f"{number} workers died of it, at last with: {error}")

    def blame(self, flight: Flight, error: BaseException) -> None:
        """One more error that this batch has caused; too many, and it is set aside."""
        flight.record = flight.record.failed()
        if flight.record.is_damning(self._config.run.tries):
            number = flight.record.errors
            self._quarantine(flight, f"failed {number} times, at last with: {error}")

    def _quarantine(self, flight: Flight, reason: str) -> None:
        fault_point("coordinator.before_quarantine")
        with fenced(self._store, self._lease) as tx:
            tx.batches.quarantine(flight.batch.id, reason)
            place = {
                "file": flight.spec.file.path,
                "first_row": flight.spec.first_row,
                "rows": flight.spec.rows,
            }
            tx.events.append("batch.quarantined", {**place, "reason": reason})
            tx.counters.add([Count("batches", "", "quarantined", 1)])
        fault_point("coordinator.after_quarantine")
        self.flights.remove(flight.batch.id)
        self._tell(
            "batch.quarantined",
            f"{flight.spec.file.path}, rows {flight.spec.first_row} to "
            f"{flight.spec.end_row - 1}: set aside, {reason}",
        )

    def _quarantine_file(self, flight: Flight, reason: str) -> None:
        with fenced(self._store, self._lease) as tx:
            tx.files.quarantine(flight.batch.file_id, reason)
            path = flight.spec.file.path
            tx.events.append("file.quarantined", {"file": path, "reason": reason})
        self.flights.remove_file(flight.batch.file_id)
        self._backlog.remove_file(flight.batch.file_id)
        self._tell("file.quarantined", reason)

    def _tell(self, kind: str, text: str) -> None:
        self._listener(Told(kind, text))


def rows_per_batch(config: Config, fingerprint: Fingerprint) -> int:
    """As configured, else by what computes: half a second's work of a core, or of a GPU."""
    if config.feed.batch_rows is not None:
        return config.feed.batch_rows
    return 256 if fingerprint.precision == "float16" else 32
