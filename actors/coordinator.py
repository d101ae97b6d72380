"""The one who moves batches: list, embed, score, commit; pools, questions, updates; and again.

Only the coordinator writes to the store, under a lease, and only what is in the store counts.
Workers may be lost at any time: what they had in hand is given to others. Batches are embedded
side by side but committed in the order of the ledger, each with the version that is in use at
that moment, so what a pool holds does not depend on who was quick.
"""

from __future__ import annotations

import time
from functools import partial

from actors.crew import Crew, Done
from actors.feeding import Feeder
from actors.flights import Flight, Stage
from actors.housekeeping import Housekeeper
from actors.telling import KINDS, Listener, Told, sentence
from actors.versions import Versions
from monitor.config import Config
from monitor.novelty.fingerprint import Fingerprint
from monitor.pipeline.deciding import GROUP, Current
from monitor.pipeline.fencing import fenced
from monitor.pipeline.judging import score_counts
from monitor.pipeline.keeper import Job, Keeper
from monitor.store import ScoredBatch, Store, commit_batches
from monitor.store.rows import Count, Lease

#: How long one turn waits for work to end: short, so that answers and signals are seen.
TURN_SECONDS = 0.1
#: How often the store is asked whether people changed the detector or answered.
LOOK_SECONDS = 0.5
#: Batches that are committed together at most: one transaction and one file for all of them.
COMMITTED_AT_ONCE = 32


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
        self._once = once
        self._lockstep = config.labels.oracle_column is not None
        self._listener = listener
        self._feeder = Feeder(store, config, crew, lease, fingerprint, once=once, listener=listener)
        self._flights = self._feeder.flights
        self._keeper = Keeper(store, config, lease, oracle=self._lockstep)
        self._house = housekeeper or Housekeeper(store, config, crew, lease)
        self._versions = Versions(store, crew, fingerprint)
        self._current: Current = self._versions.current()
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
        try:
            while not self._is_over():
                self.turn()
        finally:
            self._feeder.close()

    def turn(self) -> None:
        """One round through everything that there may be to do."""
        if self._stopping is None:
            self._feeder.take_in()
            self._feeder.hand_out()
        self._look()
        for done in self._crew.wait(TURN_SECONDS if self._is_waiting() else 0.0):
            self._receive(done)
        self._score()
        self._commit()
        self._settle()
        self._house.tick(self._feeder.unfinished)

    def _is_over(self) -> bool:
        if self._stopping is not None:
            late = time.monotonic() - self._stopping > self._config.run.grace_seconds
            busy = any(f.stage is not Stage.WAITING for f in self._flights)
            return late or not (busy or (self._keeper.working and self._lockstep))
        if not self._once or self._keeper.working or not self._feeder.is_drained():
            return False
        moved, job = self._keeper.step(self._current, final=True)
        if job is not None:
            self._submit(job)
        return moved == "idle"

    def _is_waiting(self) -> bool:
        """Whether there is nothing to do but to wait for others."""
        return self._is_held or next(self._flights.front(Stage.SCORED), None) is None

    # -- batches ----------------------------------------------------------------------------

    def _receive(self, done: Done) -> None:
        if done.role in ("updater", "querier"):
            self._receive_job(done)
            return
        flight = self._flights.get(done.key)  # type: ignore[arg-type]
        if flight is None:
            return
        if done.role == "embedder":
            self._feeder.receive(flight, done)
            if done.error is None:
                self._house.observe("embed", done.value[0].seconds)
        elif done.error is None:
            flight.stage, flight.judged = Stage.SCORED, done.value
        else:
            # The features may have gone with the node that held them: from the beginning.
            flight.back_to(Stage.WAITING)
            if not done.died:
                self._feeder.blame(flight, done.error)

    def _score(self) -> None:
        for flight in self._flights.at(Stage.EMBEDDED):
            if self._crew.room("scorer") < 1:
                return
            flight.stage = Stage.SCORING
            box = self._versions.box(self._current.number)
            self._crew.submit("scorer", flight.batch.id, "score", flight.handle, box)

    def _commit(self) -> None:
        """Commit what has been scored at the front, up to where the pool is full."""
        self._is_held = self._lockstep and not self._is_settled()
        if self._is_held or next(self._flights.front(Stage.SCORED), None) is None:
            return
        ready: list[Flight] = []
        with self._store.reading() as tx:
            pool = tx.pools.filling(GROUP)
        room = self._config.pools.size - (pool.size if pool else 0)
        if room <= 0:
            self._keeper.close_if_full()
            return
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
            self._flights.remove(flight.batch.id)
        self._house.committed([flight.judged for flight in ready if flight.judged is not None])
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
        if job.kind in ("paint", "portray"):
            self._crew.submit("querier", job, "paint", *job.arguments)
            return
        boxes = [self._versions.box(job.version)]
        if job.kind == "advance":
            assert job.base is not None
            boxes.insert(0, self._versions.box(job.base))
        self._crew.submit("updater", job, job.kind, *boxes, *job.arguments)

    def _receive_job(self, done: Done) -> None:
        if done.error is not None:
            if done.died:
                self._keeper.lost()
            elif self._keeper.abandon(done.error):
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
            self._current = self._versions.current()
            names = ", ".join(known.name for known in self._current.detector.classes)
            self._tell(
                "detector.updated",
                f"detector version {self._current.number} is in use; it knows {names}",
            )

    def _tell(self, kind: str, text: str) -> None:
        self._listener(Told(kind, text))


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
