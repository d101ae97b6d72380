"""The one who moves batches: list, embed, score, commit; pools, questions, updates; and again.

Only the coordinator writes to the store, under a lease, and only what is in the store counts.
Workers may be lost at any time: what they had in hand is given to others. Batches are embedded
side by side but committed in the order of the ledger, each with the version that is in use at
that moment, so what a pool holds does not depend on who was quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from actors.boxes import Box
from actors.crew import Crew, Done
from actors.flights import Flight, Flights, Stage
from actors.housekeeping import Housekeeper
from actors.telling import KINDS, sentence
from monitor.config import Config
from monitor.errors import ConcladError
from monitor.feed.errors import FeedError, SourceUnavailable
from monitor.feed.plan import BatchSpec
from monitor.feed.source import FeedFile, Source
from monitor.jobs.parts import columns_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.deciding import GROUP, Current
from monitor.pipeline.fencing import fenced
from monitor.pipeline.intake import Intake
from monitor.pipeline.judging import score_counts
from monitor.pipeline.keeper import Job, Keeper
from monitor.store import ScoredBatch, Store, commit_batches
from monitor.store.faults import declare, fault_point
from monitor.store.rows import Batch, Count, Lease
from monitor.store.snapshots import load_snapshot

declare("coordinator.before_quarantine", "coordinator.after_quarantine")

#: A look at the feed takes at most this share of the time.
LISTING_SHARE = 0.1
#: How long one turn waits for work to end: short, so that answers and signals are seen.
TURN_SECONDS = 0.1
#: How often the store is asked whether people changed the detector or answered.
LOOK_SECONDS = 0.25
#: A storage that did not answer is tried again after this time.
PATIENCE_SECONDS = 5.0
#: Batches that are committed together at most: one transaction and one file for all of them.
COMMITTED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Told:
    """Something that happened, for whoever watches."""

    kind: str
    text: str


Listener = Callable[[Told], None]


class Coordinator:
    """Runs until it is stopped or, with ``once``, until nothing is left to do.

    With ``lockstep`` (an oracle answers at once) no batch is committed while a pool is being
    settled. People are never waited for.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        crew: Crew,
        lease: Lease,
        fingerprint: Fingerprint,
        *,
        once: bool = False,
        listener: Listener = lambda told: None,
        housekeeper: Housekeeper | None = None,
    ) -> None:
        self._store, self._config, self._crew, self._lease = store, config, crew, lease
        self._fingerprint = fingerprint
        self._once = once
        self._lockstep = config.labels.oracle_column is not None
        self._listener = listener
        self._source = Source.at(config.feed.path)
        self._intake = Intake(
            store,
            self._source,
            columns_of(config),
            rows=rows_per_batch(config, fingerprint),
            lease=lease,
        )
        self._keeper = Keeper(store, config, lease, oracle=self._lockstep)
        self._house = housekeeper or Housekeeper(store, config, crew, lease)
        self._flights = Flights()
        self._boxes: dict[int, Box] = {}
        self._current = self._read_current()
        self._listing: Future[tuple[tuple[FeedFile, ...], float]] | None = None
        self._listed_at = -float("inf")
        self._listing_pause = 0.0
        self._has_listed = False
        self._may_have_new_files = False
        self._looked_at = -float("inf")
        self._is_held = False
        with store.reading() as tx:
            self._last_event = tx.events.last()
        self._stopping: float | None = None

    # -- the loop ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Finish what is in flight and return; safe to call from a signal handler."""
        if self._stopping is None:
            self._stopping = time.monotonic()

    def run(self) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="listing") as self._background:
            while not self._is_over():
                self.turn()

    def turn(self) -> None:
        """One round through everything that there may be to do."""
        if self._stopping is None:
            self._take_in()
            self._hand_out()
        self._look()
        for done in self._crew.wait(TURN_SECONDS if self._is_waiting() else 0.0):
            self._receive(done)
        self._score()
        self._commit()
        self._settle()
        self._house.tick(self._intake.unfinished)

    def _is_over(self) -> bool:
        if self._stopping is not None:
            late = time.monotonic() - self._stopping > self._config.run.grace_seconds
            busy = any(f.stage is not Stage.WAITING for f in self._flights)
            return late or not (busy or (self._keeper.working and self._lockstep))
        if not self._once or not self._has_listed or len(self._flights) or self._keeper.working:
            return False
        if self._intake.plan(final=True).batches or self._next_pending(1):
            return False
        moved, job = self._keeper.step(self._current, final=True)
        if job is not None:
            self._submit(job)
        return moved == "idle"

    def _is_waiting(self) -> bool:
        """Whether there is nothing to do but to wait for others."""
        return self._is_held or next(self._flights.front(Stage.SCORED), None) is None

    # -- the feed ---------------------------------------------------------------------------

    def _take_in(self) -> None:
        """Look at the feed now and then, in the background; enter and plan what is new."""
        if self._listing is not None and self._listing.done():
            self._take_listing(self._listing)
            self._listing = None
        now = time.monotonic()
        due = not (self._once and self._has_listed)
        if self._listing is None and due and now - self._listed_at >= self._listing_pause:
            self._listed_at = now
            self._listing = self._background.submit(_timed, self._source.list)
        if self._may_have_new_files and not self._has_backlog():
            taken = self._intake.plan()
            self._may_have_new_files = bool(taken.batches or taken.problems)
            for problem in taken.problems:
                self._tell("file.quarantined", problem)

    def _take_listing(self, listing: Future[tuple[tuple[FeedFile, ...], float]]) -> None:
        pause = self._config.run.poll_seconds
        try:
            files, seconds = listing.result()
        except SourceUnavailable as error:
            self._tell("feed.unavailable", str(error))
            self._listing_pause = max(pause, PATIENCE_SECONDS)
            return
        self._listing_pause = max(pause, seconds / LISTING_SHARE)
        for problem in self._intake.register(files).problems:
            self._tell("file.changed", problem)
        self._has_listed = self._may_have_new_files = True

    def _has_backlog(self) -> bool:
        """Whether enough batches are planned to keep everybody busy for a while."""
        window = self._window()
        return len(self._next_pending(window)) >= window

    def _next_pending(self, limit: int) -> list[Batch]:
        """The next batches that nobody has in hand, in the order of the ledger."""
        with self._store.reading() as tx:
            found = tx.batches.pending(limit + len(self._flights))
        return [batch for batch in found if self._flights.get(batch.id) is None][:limit]

    def _window(self) -> int:
        """Batches under way at most: twice what embedders take, so that none ever waits."""
        return 2 * self._crew.capacity("embedder") + 2

    # -- embedding --------------------------------------------------------------------------

    def _hand_out(self) -> None:
        free = self._window() - len(self._flights)
        if free > 0 and self._has_listed:
            self._fill(free)
        for flight in self._flights.at(Stage.WAITING):
            if self._crew.room("embedder") < 1 or not self._may_start(flight):
                break
            if flight.is_suspect:
                # Durable before the work: should it take this process along, it is known.
                with fenced(self._store, self._lease) as tx:
                    tx.batches.start([flight.batch.id])
            flight.stage = Stage.EMBEDDING
            self._crew.submit("embedder", flight.batch.id, "embed", flight.spec)

    def _fill(self, free: int) -> None:
        batches = self._next_pending(free)
        if not batches:
            return
        with self._store.reading() as tx:
            files = {i: tx.files.get(i) for i in {b.file_id for b in batches}}
        for batch in batches:
            file = files[batch.file_id]
            spec = BatchSpec(
                FeedFile(file.path, file.size, file.mtime_ns), batch.first_row, batch.rows
            )
            flight = Flight(batch, spec, deaths=batch.tries)
            if flight.deaths >= self._config.run.tries:
                self._quarantine(flight, "it was in work each time that a worker was lost")
            else:
                self._flights.add(flight)

    def _may_start(self, flight: Flight) -> bool:
        """Suspects run alone, so that the innocent beside them are not blamed."""
        if time.monotonic() < flight.not_before:
            return False
        running = self._flights.at(Stage.EMBEDDING)
        return not running if flight.is_suspect else not any(f.is_suspect for f in running)

    def _receive(self, done: Done) -> None:
        if done.role in ("updater", "querier"):
            self._receive_job(done)
            return
        flight = self._flights.get(done.key)  # type: ignore[arg-type]
        if flight is None:
            return
        if done.role == "embedder":
            self._receive_embedded(flight, done)
        elif done.error is None:
            flight.stage, flight.judged = Stage.SCORED, done.value
        else:
            # The features may have gone with the node that held them: from the beginning.
            flight.back_to(Stage.WAITING)
            if not done.died:
                self._blame(flight, done.error)

    def _receive_embedded(self, flight: Flight, done: Done) -> None:
        if done.error is None:
            header, flight.handle = done.value
            flight.stage = Stage.EMBEDDED
            self._house.observe("embed", header.seconds)
            return
        flight.back_to(Stage.WAITING)
        if isinstance(done.error, SourceUnavailable):
            flight.not_before = time.monotonic() + PATIENCE_SECONDS
            self._tell("feed.unavailable", str(done.error))
        elif isinstance(done.error, FeedError):
            self._quarantine_file(flight, str(done.error))
        else:
            self._blame(flight, done.error)

    def _blame(self, flight: Flight, error: BaseException) -> None:
        """One more failure that this batch may have caused; too many, and it is set aside."""
        was_suspect = flight.is_suspect
        flight.deaths += 1
        if flight.deaths >= self._config.run.tries:
            self._quarantine(flight, f"failed {flight.deaths} times, at last with: {error}")
        elif not was_suspect:
            with fenced(self._store, self._lease) as tx:
                tx.batches.start([flight.batch.id])

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
        self._flights.remove(flight.batch.id)
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
        self._flights.remove_file(flight.batch.file_id)
        self._tell("file.quarantined", reason)

    # -- scoring and commit -----------------------------------------------------------------

    def _score(self) -> None:
        for flight in self._flights.at(Stage.EMBEDDED):
            if self._crew.room("scorer") < 1:
                return
            flight.stage = Stage.SCORING
            box = self._box(self._current.number)
            self._crew.submit("scorer", flight.batch.id, "score", flight.handle, box)

    def _commit(self) -> None:
        """Commit what has been scored at the front, up to where the pool is full."""
        self._is_held = self._lockstep and not self._is_settled()
        if self._is_held:
            return
        ready: list[Flight] = []
        with self._store.reading() as tx:
            pool = tx.pools.filling(GROUP)
        room = self._config.pools.size - (pool.size if pool else 0)
        for flight in list(self._flights.front(Stage.SCORED)):
            assert flight.judged is not None
            if room <= 0 or len(ready) == COMMITTED_AT_ONCE:
                break
            if flight.judged.version != self._current.number:
                flight.back_to(Stage.EMBEDDED)
                break
            room -= flight.judged.verdicts.num_rows
            ready.append(flight)
        if not ready:
            return
        if pool is None:
            with fenced(self._store, self._lease) as tx:
                pool = tx.pools.open(GROUP, seed=self._config.run.seed)
        began = time.perf_counter()
        exceedance = self._current.detector.calibration.exceedance
        scored = [_scored(flight, pool.id, exceedance) for flight in ready]
        commit_batches(self._store, scored, lease=self._lease)
        for flight in ready:
            assert flight.judged is not None
            self._flights.remove(flight.batch.id)
            self._house.committed(flight.judged)
        self._house.observe("commit", (time.perf_counter() - began) / len(ready))
        if room <= 0:
            self._keeper.close_if_full()

    # -- pools ------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Whether no pool needs attention before the next batch may be committed."""
        if self._keeper.working:
            return False
        moved, job = self._keeper.step(self._current)
        if job is not None:
            self._submit(job)
        return moved == "idle"

    def _settle(self) -> None:
        """Take what steps can be taken with the pools; people are not waited for."""
        if not self._lockstep and self._looked_at_now and not self._keeper.working:
            moved, job = self._keeper.step(self._current)
            if job is not None:
                self._submit(job)
            elif moved == "moved":
                self._looked_at = -float("inf")

    def _submit(self, job: Job) -> None:
        if job.kind == "paint":
            self._crew.submit("querier", job, "paint", *job.arguments)
            return
        boxes = [self._box(job.version)]
        if job.kind == "advance":
            assert job.base is not None
            boxes.insert(0, self._box(job.base))
        self._crew.submit("updater", job, job.kind, *boxes, *job.arguments)

    def _receive_job(self, done: Done) -> None:
        if done.error is not None:
            if done.died:
                self._keeper.lost()
            else:
                self._keeper.abandon(done.error)
                self._tell("pool.unresolved", f"a pool was given up: {done.error}")
            return
        self._look(now=True)
        follow = self._keeper.receive(done.value, self._current)
        if follow is not None:
            self._submit(follow)
        self._look(now=True)

    # -- the detector in use ----------------------------------------------------------------

    def _look(self, *, now: bool = False) -> None:
        """See whether another version is in use: ours, or one that a person chose."""
        moment = time.monotonic()
        self._looked_at_now = now or moment - self._looked_at >= LOOK_SECONDS
        if not self._looked_at_now:
            return
        self._looked_at = moment
        with self._store.reading() as tx:
            version = tx.versions.current()
            events = tx.events.after(self._last_event, kinds=KINDS)
        for event in events:
            self._last_event = event.id
            if text := sentence(event):
                self._tell(event.kind, text)
        if version is not None and version.number != self._current.number:
            self._current = self._read_current()
            names = ", ".join(known.name for known in self._current.detector.classes)
            self._tell(
                "detector.updated",
                f"detector version {self._current.number} is in use; it knows {names}",
            )

    def _read_current(self) -> Current:
        with self._store.reading() as tx:
            version = tx.versions.current()
        if version is None:
            raise ConcladError(
                f"{self._store.folder}: holds no detector yet; fit one with conclad fit "
                "--data FILES"
            )
        detector = load_snapshot(
            self._store.folder,
            version.snapshot,
            fingerprint=self._fingerprint,
            sha256=version.sha256,
        )
        self._boxes = dict(sorted(self._boxes.items())[-1:])
        self._boxes[version.number] = self._crew.box(version.number, detector)
        return Current(version.number, detector)

    def _box(self, number: int) -> Box:
        if number not in self._boxes:
            with self._store.reading() as tx:
                version = tx.versions.get(number)
            load = partial(load_snapshot, self._store.folder, version.snapshot)
            detector = load(fingerprint=self._fingerprint, sha256=version.sha256)
            self._boxes[number] = self._crew.box(number, detector)
        return self._boxes[number]

    def _tell(self, kind: str, text: str) -> None:
        self._listener(Told(kind, text))


def rows_per_batch(config: Config, fingerprint: Fingerprint) -> int:
    """As configured, else by what computes: half a second's work of a core, or of a GPU."""
    if config.feed.batch_rows is not None:
        return config.feed.batch_rows
    return 256 if fingerprint.precision == "float16" else 32


def _scored(flight: Flight, pool_id: int, exceedance: float) -> ScoredBatch:
    judged = flight.judged
    assert judged is not None
    return ScoredBatch(
        batch_id=flight.batch.id,
        detector_version=judged.version,
        verdicts=judged.verdicts,
        rejected=judged.rejected,
        features={pool_id: judged.features} if judged.features.num_rows else {},
        counts=[Count("batches", "", "done", 1)],
        counting=partial(score_counts, exceedance=exceedance),
    )


def _timed(
    work: Callable[[], tuple[FeedFile, ...]],
) -> tuple[tuple[FeedFile, ...], float]:
    began = time.monotonic()
    return work(), time.monotonic() - began
