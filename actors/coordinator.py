"""The coordinator: moves batches through the workers, commits them, and advances pools.

Only the coordinator writes to the store, under a lease, and only what is in the store counts.
Workers may be lost at any time: their tasks are given to others. Batches are embedded side by side
but committed in the order of the ledger, each with the version that is in use at that moment, so
what a pool holds does not depend on which worker was quick.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from actors.batch_feeder import BatchFeeder
from actors.batches_in_flight import BatchInFlight, Stage
from actors.event_sentences import KINDS, Listener, MonitorMessage, sentence
from actors.periodic_tasks import PeriodicTasks
from actors.worker_pool import DetectorVersions, Done, WorkerPool
from monitor.config import Config
from monitor.errors import ErrorKind, is_outage, kind_of
from monitor.novelty.fingerprint import Fingerprint
from monitor.outages import Outages
from monitor.pipeline.pool_lifecycle import PoolLifecycle
from monitor.pipeline.pool_steps import CurrentDetector
from monitor.pipeline.worker_tasks import EmbedBatch, ScoreBatch, Task
from monitor.store import Store, commit_batches
from monitor.store.errors import DiskUnavailable
from monitor.store.records import Lease
from monitor.store.scored_batches import FeaturesMissing, SpoolPlace, discard

log = logging.getLogger(__name__)

#: How long one turn waits for a task to end: short, so that answers and signals are seen.
TURN_SECONDS = 0.1
#: How often the store is asked whether people changed the detector or answered.
STORE_SECONDS = 0.5
#: A task of a pool that failed because of an outage (of the feed, say) is tried again after this.
POOL_RETRY_SECONDS = 5.0
#: Batches that are committed together at most: one transaction and one file for all of them.
COMMITTED_AT_ONCE = 32


class Coordinator:
    """Runs until it is stopped or, with ``once``, until nothing is left to do.

    With ``lockstep`` (an oracle answers at once) no batch is committed while a pool can advance.
    People are never waited for. ``progress`` is called when a batch was committed, or when there is
    nothing to commit: whatever was away before is back then.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        workers: WorkerPool,
        lease: Lease,
        fingerprint: Fingerprint,
        *,
        once: bool = False,
        listener: Listener = lambda message: None,
        periodic: PeriodicTasks | None = None,
        outages: Outages | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._config, self._workers, self._lease = store, config, workers, lease
        self._once = once
        self._progress = progress
        self._lockstep = config.labels.oracle_column is not None
        self._listener = listener
        self._feeder = BatchFeeder(
            store,
            config,
            workers,
            lease,
            fingerprint,
            once=once,
            listener=listener,
            outages=outages,
        )
        self._pool_tasks_due = -float("inf")
        self._pool_errors: dict[tuple[str, int], int] = {}
        self._spool = SpoolPlace.open(store.folder)
        self._in_flight, self._retries = self._feeder.in_flight, self._feeder.retries
        self._pools = PoolLifecycle(store, config, lease, oracle=self._lockstep)
        self._periodic = periodic or PeriodicTasks(store, config, workers, lease)
        self._versions = DetectorVersions(store, fingerprint, workers.send)
        with store.reading() as tx:
            self._current: CurrentDetector = self._versions.refreshed(tx, None)
            self._last_event = tx.events.last()
        self._store_read_at = -float("inf")
        self._pools_are_due = True
        self._pools_are_idle = False
        self._is_over = False
        self._stopping: float | None = None

    # -- the loop ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Finish what is in flight and return; safe to call from a signal handler."""
        if self._stopping is None:
            self._stopping = time.monotonic()

    def run(self) -> None:
        # What is loaded by now stays: the collector need not look at it again and again.
        gc.freeze()
        try:
            while not self._is_over:
                self.turn()
        finally:
            gc.unfreeze()
            self._feeder.close()
            with contextlib.suppress(DiskUnavailable):  # the next start removes the mark
                self._spool.close()

    def turn(self) -> None:
        """One round through everything that there may be to do."""
        if self._stopping is None:
            self._feeder.take_in()
            self._feeder.hand_out()
        self._read_store()
        for done in self._workers.wait(self._patience() if self._is_waiting() else 0.0):
            self._receive(done)
        self._score()
        self._advance_pools()
        self._commit()
        self._periodic.tick(self._feeder.unfinished)
        if not len(self._in_flight) and not self._pools.is_working:
            self._progress()
        if self._stopping is not None:
            self._is_over = self._is_late() or not self._is_busy()

    def _is_late(self) -> bool:
        assert self._stopping is not None
        return time.monotonic() - self._stopping > self._config.run.grace_seconds

    def _is_busy(self) -> bool:
        """Whether something is in flight that a stop should wait for."""
        batches = any(one.stage is not Stage.WAITING for one in self._in_flight)
        return batches or (self._pools.is_working and self._lockstep)

    def _is_waiting(self) -> bool:
        """Whether there is nothing to do but to wait for workers or people."""
        if self._pools_are_due:
            return False
        return self._is_held() or next(self._in_flight.front(Stage.SCORED), None) is None

    def _patience(self) -> float:
        """How long to wait: no longer than until the feed is to be looked at."""
        if self._stopping is not None:
            return TURN_SECONDS
        return min(TURN_SECONDS, self._feeder.seconds_until_look)

    def _is_held(self) -> bool:
        return self._lockstep and not self._pools_are_idle

    def _submit(self, task: Task, *features: object) -> None:
        self._workers.submit(task, self._versions.refs_of(task), *features)

    def _receive(self, done: Done) -> None:
        task = done.task
        if not isinstance(task, EmbedBatch | ScoreBatch):
            self._receive_pool_task(done)
            return
        one = self._in_flight.get(task.batch_id)
        if one is None:
            return
        if isinstance(task, EmbedBatch) and task.planned != one.planned:
            return  # of a file that has been planned again, or of a batch that has been halved
        if isinstance(task, EmbedBatch):
            self._feeder.receive(one, done)
            if done.error is None:
                self._periodic.observe("embed", done.result[0])
        elif one.stage is not Stage.SCORING:
            return
        elif done.error is None:
            one.stage, one.scored = Stage.SCORED, done.result
            self._retries.passed("scoring")
        else:
            # The features may have gone with the node that held them: from the beginning.
            one.back_to(Stage.WAITING)
            if not done.died:
                self._retries.count_error(one, done.error, "scoring")

    # -- batches ----------------------------------------------------------------------------

    def _score(self) -> None:
        for one in self._in_flight.at(Stage.EMBEDDED):
            if self._workers.room("scorer") < 1:
                return
            one.stage = Stage.SCORING
            current = self._current
            task = ScoreBatch(one.batch.id, current.number, current.corrections, self._spool)
            self._submit(task, one.features)

    def _commit(self) -> None:
        """Commit what has been scored at the front, up to where the pool is full."""
        if self._is_held() or next(self._in_flight.front(Stage.SCORED), None) is None:
            return
        ready: list[BatchInFlight] = []
        pool = self._pools.filling()
        room = self._config.pools.size - (pool.size if pool else 0)
        judged_by = (self._current.number, self._current.corrections.revision)
        for one in list(self._in_flight.front(Stage.SCORED)):
            assert one.scored is not None
            if room <= 0 or len(ready) == COMMITTED_AT_ONCE:
                break
            if (one.scored.detector_version, one.scored.shift_revision) != judged_by:
                discard(self._store.folder, one.scored)
                one.back_to(Stage.EMBEDDED)
                break
            room -= one.scored.samples
            ready.append(one)
        self._pools_are_due = self._pools_are_due or room <= 0
        if not ready:
            return
        pool = pool or self._pools.begin()
        if not self._commit_together(ready, pool.id) and len(ready) > 1:
            # One of them cannot be committed: each by itself, up to that one.
            all(self._commit_together([one], pool.id) for one in ready)

    def _commit_together(self, ready: Sequence[BatchInFlight], pool_id: int) -> bool:
        """Commit batches; False if it is their content that cannot be.

        A single one of those is tried again, then halved, like one that its workers die of.
        """
        began = time.perf_counter()
        scored = [replace(one.scored, pool_id=pool_id) for one in ready if one.scored is not None]
        try:
            commit_batches(self._store, scored, lease=self._lease)
        except FeaturesMissing as missing:
            for one in ready:
                if one.batch.id in missing.batches:
                    one.back_to(Stage.EMBEDDED)
            return len(ready) > 1  # nothing that follows a single one may overtake it
        except OSError as error:
            # Whatever the system says about writing, it does not say about what is written.
            raise DiskUnavailable(
                f"{self._store.folder}: a batch could not be written ({error}); make the folder "
                "of the state writable again"
            ) from error
        except Exception as error:
            if kind_of(error) not in (ErrorKind.BATCH, ErrorKind.OURS):
                raise
            if len(ready) == 1:
                ready[0].back_to(Stage.WAITING)
                self._retries.count_error(ready[0], error, "committing")
            return False
        for one in ready:
            self._in_flight.remove(one.batch.id)
        self._retries.passed("committing")
        self._progress()
        self._periodic.committed(scored)
        self._periodic.observe("commit", (time.perf_counter() - began) / len(ready))
        return True

    # -- pools ------------------------------------------------------------------------------

    def _advance_pools(self) -> None:
        """Take the step that a pool can take, or hand out the task that it needs."""
        may_end = self._once and self._stopping is None and not self._pools.is_working
        final = may_end and self._feeder.is_drained()
        if not (self._lockstep or self._pools_are_due or final):
            return
        if time.monotonic() < self._pool_tasks_due:
            return
        advanced = self._pools.advance(self._current, final=final)
        self._pools_are_idle = advanced.step == "idle"
        self._pools_are_due = advanced.step == "moved"
        self._is_over = final and self._pools_are_idle
        if advanced.task is not None:
            self._submit(advanced.task)

    def _receive_pool_task(self, done: Done) -> None:
        self._pools_are_due = True
        if done.error is None:
            self._pool_errors.pop(_key(done.task), None)
            self._feeder.is_reachable()
            self._read_store(now=True)
            self._pools.receive(done.result, self._current)
            self._read_store(now=True)
        elif done.died or self._may_pass(done.task, done.error):
            self._pools.lose()
            if kind_of(done.error) is ErrorKind.FEED:
                self._feeder.is_away(done.error)
            self._pool_tasks_due = time.monotonic() + (0.0 if done.died else POOL_RETRY_SECONDS)
        elif self._pools.fail(done.error):
            self._say("pool.unresolved", f"a pool was given up: {done.error}")

    def _may_pass(self, task: Task, error: BaseException) -> bool:
        """Whether a task of a pool is to be tried again: always after an outage or a broken worker.

        After anything else (memory, too many open files, a bug) some times: a pool that is given
        up stays so.
        """
        if is_outage(error) or kind_of(error) is ErrorKind.WORKER:
            return True
        key = _key(task)
        self._pool_errors[key] = self._pool_errors.get(key, 0) + 1
        log.warning("%s of pool %d failed", *key, exc_info=error)
        if self._pool_errors[key] < self._config.run.tries:
            return True
        del self._pool_errors[key]
        return False

    # -- the detector in use ----------------------------------------------------------------

    def _read_store(self, *, now: bool = False) -> None:
        """See what happened, and whether another version is in use: ours, or a person's choice."""
        moment = time.monotonic()
        if not now and moment - self._store_read_at < STORE_SECONDS:
            return
        self._store_read_at = moment
        self._pools_are_due = True
        before = self._current
        with self._store.reading() as tx:
            self._current = self._versions.refreshed(tx, before)
            events = tx.events.after(self._last_event, kinds=KINDS)
            jump = tx.clock_jump()
        if jump is not None:
            hours = jump.total_seconds() / 3600
            self._say("clock.jumped", f"the clock jumped by {hours:+.1f} h: no age counts for now")
        for event in events:
            self._last_event = event.id
            if text := sentence(event):
                self._say(event.kind, text)
        if self._current.number != before.number:
            names = ", ".join(known.name for known in self._current.detector.classes)
            self._say(
                "detector.updated",
                f"detector version {self._current.number} is in use; it knows {names}",
            )

    def _say(self, kind: str, text: str) -> None:
        self._listener(MonitorMessage(kind, text))


def _key(task: Task) -> tuple[str, int]:
    """What a task of a pool does, and of which pool."""
    assert not isinstance(task, EmbedBatch | ScoreBatch)
    return type(task).__name__, task.pool_id
