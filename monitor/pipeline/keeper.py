"""Takes pools from full to settled, one durable step at a time.

A pool's way: filling → closed → (quiet | asking ⇄ waiting) → resolved, unresolved or held. Each
arrow is one transaction, and between two of them nothing is remembered that the store does not
hold; whoever starts again with the same store takes the next step as if nothing had happened.
What takes long (scoring a pool again, the inner loop, rendering pictures) is handed out as a
:class:`Job` and comes back through :meth:`Keeper.receive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np

from monitor.config import Config
from monitor.novelty.drift_settings import DriftSettings
from monitor.pipeline.answering import (
    open_round,
    recorded_answers,
    suggestion,
    tell,
    what_answers_said,
)
from monitor.pipeline.deciding import GROUP, Current, decide, nothing_new
from monitor.pipeline.drifting import read_states
from monitor.pipeline.fencing import fenced
from monitor.pipeline.learning import Ask, Conclusion, Progress
from monitor.pipeline.looking import Looked, Past
from monitor.pipeline.pictures import Picture
from monitor.pipeline.portraits import hang, next_portraits, places, store_pictures
from monitor.pipeline.publishing import publish
from monitor.pipeline.samples import PoolSamples, read_samples
from monitor.store import Store, Transaction
from monitor.store.errors import WrongState
from monitor.store.exemplars import want_pictures
from monitor.store.faults import declare, fault_point
from monitor.store.rows import Count, Lease, Pool
from monitor.store.states import PoolState

declare(
    "pool.before_close",
    "pool.after_close",
    "pool.before_decide",
    "pool.after_decide",
    "pool.after_thumbnails",
    "pool.in_ask",
    "pool.after_ask",
    "pool.before_close_round",
    "pool.after_close_round",
    "pool.before_give_up",
    "pool.after_give_up",
    "pool.before_conclude",
    "pool.after_conclude",
    "pool.before_hang",
    "pool.after_hang",
)

WEEK = timedelta(days=7)

Moved = Literal["idle", "moved", "working"]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work that takes long, for the detector ``version``.

    ``base`` is the version that the pool was first asked about with.
    """

    kind: Literal["look", "advance", "paint", "portray", "cluster"]
    pool_id: int
    version: int
    arguments: tuple[Any, ...] = ()
    base: int | None = None


class Keeper:
    """The one who looks after pools. Everything that it decides is written down at once."""

    def __init__(
        self,
        store: Store,
        config: Config,
        lease: Lease | None,
        *,
        oracle: bool = False,
    ) -> None:
        self._store = store
        self._config = config
        self._lease = lease
        self._oracle = oracle
        self._job: Job | None = None
        self._asking: Ask | None = None
        self._samples: PoolSamples | None = None
        # Of the pool that is filling: its size and the time when it was looked at last. Not kept:
        # a monitor that starts again looks again.
        self._early: dict[int, tuple[int, datetime]] = {}

    @property
    def working(self) -> bool:
        return self._job is not None

    # -- one step ---------------------------------------------------------------------------

    def step(self, current: Current, *, final: bool = False) -> tuple[Moved, Job | None]:
        """Take the next step that can be taken now, or hand out the work that it needs.

        ``final`` closes a pool that is not full: nothing more will come.
        """
        if self._job is not None:
            return "working", None
        if self.close_if_full(final=final):
            return "moved", None
        with self._store.reading() as tx:
            active = tx.pools.in_state(PoolState.ASKING, PoolState.WAITING)
            closed = tx.pools.in_state(PoolState.CLOSED)
            # What an operator has yet to release would be found, and asked about, again.
            held = tx.pools.in_state(PoolState.HELD, limit=1)
            portraits = next_portraits(tx)
        if portraits is not None:
            pool_id, wanted = portraits
            return self._hand_out(Job("portray", pool_id, current.number, (places(wanted),)))
        for pool in active:
            moved, job = self._go_on(pool, current)
            if moved != "idle":
                return moved, job
        # What is new in a pool is asked about once: the next ones wait for what comes of it. A
        # few questions about a quiet pool keep nobody waiting.
        blocked = bool(held) or any(not _is_probe(pool) for pool in active)
        if closed and not blocked and self._has_budget(closed[0]):
            return self._hand_out(self._look_job(closed[0], current))
        if len(closed) > self._config.pools.waiting_most:
            self._leave_unresolved(
                closed[0].id,
                f"more than {self._config.pools.waiting_most} pools were waiting for people",
            )
            return "moved", None
        if blocked:
            return "idle", None
        early = None if closed else self._due_early()
        if early is not None:
            return self._hand_out(self._look_job(early, current))
        return "idle", None

    def _hand_out(self, job: Job) -> tuple[Moved, Job]:
        self._job = job
        return "working", job

    def close_if_full(self, *, final: bool = False) -> bool:
        """Close the pool that is filling, if it is full or old enough."""
        limits = self._config.pools
        with self._store.reading() as tx:
            pool = tx.pools.filling(GROUP)
            if pool is None:
                return False
            old = tx.now - pool.opened_at >= timedelta(hours=limits.age_hours)
        full = pool.size >= limits.size
        if not full and not ((old or final) and pool.size >= limits.least):
            return False
        fault_point("pool.before_close")
        with self._transaction() as tx:
            tx.pools.move(pool.id, PoolState.CLOSED)
        fault_point("pool.after_close")
        return True

    def _due_early(self) -> Pool | None:
        """The pool that is filling, if it fills slowly and has doubled since it was looked at."""
        limits = self._config.pools
        with self._store.reading() as tx:
            pool = tx.pools.filling(GROUP)
            if pool is None or pool.size < limits.least:
                return None
            now = tx.now
        size, since = self._early.get(pool.id, (0, pool.opened_at))
        if pool.size < 2 * size or now - since < timedelta(minutes=limits.look_minutes):
            return None
        self._early = {pool.id: (pool.size, now)}
        return pool

    # -- is it worth asking? ----------------------------------------------------------------

    def _has_budget(self, pool: Pool) -> bool:
        """Whether this week's questions are not used up; if they are, it is said once."""
        with self._store.reading() as tx:
            left = self._left_this_week(tx)
            said = tx.notes.get("monitor", "budget_exhausted_at_pool")
        if left > 0:
            return True
        if said != pool.id:
            with self._transaction() as tx:
                tx.notes.set("monitor", "budget_exhausted_at_pool", pool.id)
                tx.events.append("budget.exhausted", {"pool": pool.id})
        return False

    def _left_this_week(self, tx: Transaction) -> int:
        return self._config.labels.per_week - tx.queries.count_opened(tx.now - WEEK)

    def _look_job(self, pool: Pool, current: Current) -> Job:
        samples = self._read(pool)
        latest = samples.latest()
        names = set(samples.sources.tolist())
        with self._store.reading() as tx:
            states = read_states(tx, names)
            # Images without a time of their own were taken when the pool was closed.
            closed = (pool.closed_at or tx.now).timestamp()
        past = Past(states, {name: latest.get(name, closed) for name in names})
        settings = DriftSettings(**self._config.drift.model_dump())
        work = (samples.features, samples.sources, samples.stats, past, settings)
        return Job("look", pool.id, current.number, work)

    def _decide(self, job: Job, looked: Looked, current: Current) -> None:
        """What a look at a pool leads to; one that is still filling may go on filling."""
        past: Past = job.arguments[3]
        fault_point("pool.before_decide")
        with self._transaction() as tx:
            closing = tx.pools.get(job.pool_id).state is PoolState.CLOSED
            decide(
                tx,
                job.pool_id,
                looked,
                current,
                self._config,
                # The feed's own clock runs faster than ours while it is caught up with.
                at=max(past.seen_at.values(), default=tx.now.timestamp()),
                left=self._left_this_week(tx),
                closing=closing,
                probing=bool(tx.pools.in_state(PoolState.ASKING, PoolState.WAITING, limit=1)),
            )
        fault_point("pool.after_decide")

    # -- asking and waiting -----------------------------------------------------------------

    def _go_on(self, pool: Pool, current: Current) -> tuple[Moved, Job | None]:
        if pool.state is PoolState.WAITING:
            return ("moved", None) if self._close_round(pool) else ("idle", None)
        assert pool.detector_version is not None
        samples = self._read(pool)
        with self._store.reading() as tx:
            over = tx.queries.of_pool(pool.id)
            answers = recorded_answers(tx, pool.id, samples)
            names = {row.id: row.name for row in tx.classes.all()}
        if pool.evidence.get("stopped") == "unanswered" and not any(answers.values()):
            if self._config.pools.unanswered == "cluster":
                work = (pool.id, samples.features, self._config.run.seed)
                return self._hand_out(Job("cluster", pool.id, current.number, work))
            self._leave_unresolved(pool.id, self._unanswered())
            return "moved", None
        progress = Progress(
            pool_id=pool.id,
            budget=pool.budget,
            seed=self._config.run.seed,
            rounds=len({query.round for query in over}),
            answers=answers,
            stop="stopped" in pool.evidence,
            shifted={
                source: np.flatnonzero(samples.sources == source)
                for source in pool.evidence.get("shifted", ())
            },
            probe=pool.evidence.get("probe", 0),
        )
        return self._hand_out(
            Job(
                "advance",
                pool.id,
                current.number,
                (progress, names, samples.features),
                base=pool.detector_version,
            )
        )

    def _close_round(self, pool: Pool) -> bool:
        """End a round when all have answered, or when its time is over."""
        with self._store.reading() as tx:
            asked = tx.queries.of_pool(pool.id, pool.round)
            unanswered = tx.queries.count_open(pool.id)
            limit = timedelta(hours=self._config.labels.timeout_hours)
            late = bool(asked) and tx.now - asked[0].opened_at >= limit
        if unanswered and not late:
            return False
        fault_point("pool.before_close_round")
        with self._transaction() as tx:
            closed = tx.queries.close_round(pool.id, pool.round)
            missing = sum(query.answer_id is None for query in closed)
            stopped = {"stopped": "unanswered"} if missing and late else None
            tx.pools.move(pool.id, PoolState.ASKING, evidence=stopped)
            tx.events.append(
                "queries.closed",
                {
                    "pool": pool.id,
                    "round": pool.round,
                    "answered": len(closed) - missing,
                    "unanswered": missing,
                },
            )
            tx.counters.add(what_answers_said(tx, pool.id, pool.round))
        fault_point("pool.after_close_round")
        return True

    def _unanswered(self) -> str:
        return f"nobody answered within {self._config.labels.timeout_hours:g} hours"

    def _leave_unresolved(self, pool_id: int, reason: str) -> None:
        fault_point("pool.before_give_up")
        with self._transaction() as tx:
            tx.pools.move(pool_id, PoolState.UNRESOLVED, reason=reason)
            tx.events.append("pool.unresolved", {"pool": pool_id, "reason": reason})
            tx.counters.add([Count("inner_loops", "", "unresolved", 1)])
        fault_point("pool.after_give_up")

    # -- what came back ---------------------------------------------------------------------

    def receive(self, result: Any, current: Current) -> Job | None:
        """Take the result of the job that was handed out; it may need one more."""
        job, self._job = self._job, None
        assert job is not None, "nothing was handed out"
        if isinstance(result, Ask):
            return self._paint(job, result)
        if isinstance(result, Conclusion):
            self._conclude(job, result, current)
        elif job.kind == "portray":
            self._hang(job, result)
        elif job.kind == "look":
            # A version that was published meanwhile may explain the pool: look again.
            if job.version == current.number:
                self._decide(job, result, current)
        else:
            self._open(job, result, current)
        return None

    def lost(self) -> None:
        """The work was lost with its worker; the next step hands it out again."""
        self._job = None

    def abandon(self, error: BaseException) -> bool:
        """The work itself failed, and would again: the pool is left as it is, the feed goes on.

        Whether that gave up a pool; a class stands without its pictures, too.
        """
        job, self._job = self._job, None
        assert job is not None, "nothing was handed out"
        if job.kind == "portray":
            with self._transaction() as tx:
                want_pictures(tx, job.pool_id, {})
            return False
        with self._transaction() as tx:
            tx.counters.add([Count("update_failures", "", "", 1)])
        self._leave_unresolved(job.pool_id, f"its inner loop failed: {error}")
        return True

    def _paint(self, job: Job, ask: Ask) -> Job:
        samples = self._read_again(job.pool_id)
        self._asking = ask
        places = [samples.place(i) for i in ask.samples]
        return self._hand_out(Job("paint", job.pool_id, job.version, (places,)))[1]

    def _open(self, job: Job, pictures: Sequence[Picture], current: Current) -> None:
        """Ask people about a round's samples; the oracle, if any, answers at once."""
        ask = self._asking
        assert ask is not None, "pictures without a question"
        samples = self._read_again(job.pool_id)
        digests = store_pictures(self._store, pictures)
        fault_point("pool.after_thumbnails")
        with self._transaction() as tx:
            asked = [
                samples.sample(index, suggestion(tx, guess, current.detector), digest)
                for index, guess, digest in zip(ask.samples, ask.suggestions, digests, strict=True)
            ]
            opened = open_round(tx, job.pool_id, ask.round, asked)
            fault_point("pool.in_ask")
            if self._oracle:
                for query, picture in zip(opened, pictures, strict=True):
                    tell(tx, query, picture.label, current.detector)
        self._asking = None
        fault_point("pool.after_ask")

    def _conclude(self, job: Job, found: Conclusion, current: Current) -> None:
        fault_point("pool.before_conclude")
        if found.detector is None and found.provisional:
            self._leave_unresolved(job.pool_id, self._unanswered())
        elif found.detector is None:
            with self._transaction() as tx:
                nothing_new(tx, job.pool_id, found)
        elif job.version == current.number:
            samples = self._read_again(job.pool_id)
            try:
                publish(self._store, found, samples, current.number, self._config.gate, self._lease)
            except WrongState:
                # A person changed the detector in the same moment: the loop concludes again.
                with self._transaction() as tx:
                    tx.counters.add([Count("update_failures", "", "", 1)])
        fault_point("pool.after_conclude")

    def _hang(self, job: Job, pictures: Sequence[Picture]) -> None:
        """Show what was concluded without people, so that they can contradict it."""
        (wanted,) = job.arguments
        painted = dict(zip(wanted, store_pictures(self._store, pictures), strict=True))
        fault_point("pool.before_hang")
        with self._transaction() as tx:
            hang(tx, job.pool_id, painted)
        fault_point("pool.after_hang")

    # -- helpers ----------------------------------------------------------------------------

    def _read(self, pool: Pool) -> PoolSamples:
        return self._read_again(pool.id)

    def _read_again(self, pool_id: int) -> PoolSamples:
        # A pool that was looked at while it was filling has grown since.
        if self._samples is None or self._samples.pool_id != pool_id or self._early:
            self._samples = read_samples(self._store, pool_id)
        return self._samples

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return fenced(self._store, self._lease)


def _is_probe(pool: Pool) -> bool:
    """Whether a few questions are out about a quiet pool, and nothing new has come of them."""
    return bool(pool.evidence.get("probe")) and pool.round == 0
