"""Takes pools from full to finished, one durable step at a time.

:mod:`monitor.store.pool_transitions` has the table of states and events. Each arrow in it is one
transaction, and between two of them nothing is remembered that the store does not hold: whoever
starts again with the same store takes the next step as if nothing had happened.

``advance`` takes the next step that can be taken, or hands out the task that it needs, one at a
time. What comes of the task is given to ``receive``, ``fail`` or ``lose``; then ``advance`` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from monitor.config import Config
from monitor.pipeline.drift_states import DriftStates
from monitor.pipeline.finish_pool import PoolSettlement
from monitor.pipeline.inner_loop_driver import LoopConclusion, RoundToAsk
from monitor.pipeline.pool_inspection import PoolInspection, SourceHistory
from monitor.pipeline.pool_results import (
    attach_thumbnails,
    commit_settlement,
    commit_undecided,
    next_missing_thumbnails,
    publish_growth,
    publish_version,
    store_thumbnails,
)
from monitor.pipeline.pool_samples import (
    PoolSamples,
    answer_from_lessons,
    samples_in,
    taught_samples,
)
from monitor.pipeline.pool_steps import (
    CurrentDetector,
    answer_from_column,
    class_names,
    close_round,
    decide_pool,
    drift_settings,
    give_up,
    is_over,
    learn_nothing,
    loop_input,
    open_round,
    questions_left,
    report_swapped,
    settlement_input,
    suggestion,
)
from monitor.pipeline.worker_tasks import (
    AdvanceInnerLoop,
    ClusterPool,
    InspectPool,
    PoolTask,
    RenderThumbnails,
    RowThumbnail,
    SettlePool,
)
from monitor.store import Store
from monitor.store.atomic_files import declare
from monitor.store.errors import (
    BudgetExceeded,
    ClassNameTaken,
    NotFound,
    QuestionClosed,
    WrongState,
)
from monitor.store.exemplars import want_pictures
from monitor.store.pool_transitions import PoolEvent, PoolState
from monitor.store.records import Count, Lease, Pool

#: Steps that are one transaction each; versions and settled verdicts are committed by the store.
_STEPS = ("close", "decide", "ask", "close_round", "give_up", "attach")
declare(*(f"pool.{when}_{step}" for step in _STEPS for when in ("before", "after")))

#: A result that does not fit what people did meanwhile is computed again so often. They cannot be
#: quicker for ever: after that something else is wrong, and the feed must go on.
MISFITS_MOST = 10


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one call of ``advance`` came to.

    ``idle``: nothing to do but to wait for images or people. ``moved``: a step was taken, another
    one may follow at once. ``working``: a task is under way; ``task`` if it was handed out now.
    """

    step: Literal["idle", "moved", "working"]
    task: PoolTask | None = None


IDLE, MOVED, WORKING = Advanced("idle"), Advanced("moved"), Advanced("working")


class PoolLifecycle:
    """Looks after all pools of a state. Everything that it decides is written down at once.

    With ``oracle`` a column of the feed answers at once. While ``tx.ages_count`` says no, nothing
    ends because it is old: the clock has jumped.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        lease: Lease | None,
        *,
        oracle: bool = False,
    ) -> None:
        self._store, self._config, self._lease = store, config, lease
        self._oracle = oracle
        self._task: PoolTask | None = None
        # The round that the inner loop of a pool has chosen, until its thumbnails are there.
        self._chosen: tuple[int, RoundToAsk] | None = None
        self._samples: PoolSamples | None = None
        self._drift_states = DriftStates()
        # Of the pool that is filling, its size and the time of its inspection; not durable.
        self._early: dict[int, tuple[int, datetime]] = {}
        # How often in a row the result of a pool's task did not fit the state any more.
        self._misfits: dict[int, int] = {}

    @property
    def is_working(self) -> bool:
        return self._task is not None

    def filling(self) -> Pool | None:
        """The pool that takes what is committed, if there is one."""
        with self._store.reading() as tx:
            return tx.pools.filling()

    def begin(self) -> Pool:
        """A pool for what is committed next."""
        with self._store.transaction(self._lease) as tx:
            return tx.pools.open(seed=self._config.run.seed)

    # -- the next step ----------------------------------------------------------------------

    def advance(self, current: CurrentDetector, *, final: bool = False) -> Advanced:
        """Take the next step that can be taken now, or hand out the task that it needs.

        ``final`` closes a pool that is not full: nothing more will come.
        """
        if self._close_if_full(final=final and not self.is_working):
            return MOVED
        if self.is_working:
            return WORKING
        with self._store.reading() as tx:
            active = tx.pools.in_state(PoolState.ASKING, PoolState.WAITING)
            closed = tx.pools.in_state(PoolState.CLOSED)
            # What an operator has yet to release would be found, and asked about, again.
            held = tx.pools.in_state(PoolState.HELD, limit=1)
            missing = next_missing_thumbnails(tx)
            over = tx.settlements.next_unsettled()
        if missing is not None:
            places = tuple((one.file, one.row) for one in missing[1])
            digests = tuple(one.digest for one in missing[1])
            return self._hand_out(
                RenderThumbnails(missing[0], places, of="pseudo-labels", digests=digests)
            )
        if over is not None:
            return self._hand_out(self._settlement_of(over, current))
        for pool in active:
            advanced = self._advance_active(pool, current)
            if advanced is not IDLE:
                return advanced
        # What is new in a pool is asked about once: the next ones wait for what comes of it. A
        # few questions about a quiet pool keep nobody waiting.
        blocked = bool(held) or any(not pool.is_probe for pool in active)
        if closed and not blocked and self._has_budget(closed[0]):
            return self._hand_out(self._inspection_of(closed[0], current))
        if len(closed) > self._config.pools.waiting_most:
            limit = self._config.pools.waiting_most
            return self._give_up(closed[0].id, f"more than {limit} pools were waiting for people")
        if closed or blocked:
            return IDLE
        early = self._due_early()
        return IDLE if early is None else self._hand_out(self._inspection_of(early, current))

    def _hand_out(self, task: PoolTask) -> Advanced:
        self._task = task
        return Advanced("working", task)

    def _close_if_full(self, *, final: bool) -> bool:
        """Close the pool that is filling, if it is full or old enough."""
        limits = self._config.pools
        with self._store.reading() as tx:
            pool = tx.pools.filling()
            if pool is None:
                return False
            age = tx.now - pool.opened_at if tx.ages_count else timedelta()
        full, old = pool.size >= limits.size, age >= timedelta(hours=limits.age_hours)
        if not full and not ((old or final) and pool.size >= limits.least):
            return False
        with self._store.step("pool", "close", self._lease) as tx:
            tx.pools.apply(pool.id, PoolEvent.FILLED)
        return True

    def _due_early(self) -> Pool | None:
        """The pool that is filling, if it fills slowly and has doubled since its inspection."""
        limits = self._config.pools
        with self._store.reading() as tx:
            pool = tx.pools.filling()
            if pool is None or pool.size < limits.least or not tx.ages_count:
                return None
            now = tx.now
        size, since = self._early.get(pool.id, (0, pool.opened_at))
        if pool.size < 2 * size or now - since < timedelta(minutes=limits.look_minutes):
            return None
        self._early = {pool.id: (pool.size, now)}
        return pool

    def _has_budget(self, pool: Pool) -> bool:
        """Whether this week's questions are not used up; if they are, it is said once."""
        with self._store.reading() as tx:
            if questions_left(tx, self._config.labels) > 0:
                return True
            said = tx.notes.get("monitor", "budget_exhausted_at_pool")
        if said != pool.id:
            with self._store.transaction(self._lease) as tx:
                tx.notes.set("monitor", "budget_exhausted_at_pool", pool.id)
                tx.events.append("budget.exhausted", {"pool": pool.id})
        return False

    def _inspection_of(self, pool: Pool, current: CurrentDetector) -> InspectPool:
        samples = self._read(pool.id)
        latest = samples.latest()
        names = set(samples.sources.tolist())
        with self._store.reading() as tx:
            states = self._drift_states.read(tx, names)
            # Images without a time of their own were taken when the pool was closed.
            closed = (pool.closed_at or tx.now).timestamp()
        return InspectPool(
            pool_id=pool.id,
            version=current.number,
            features=samples.features,
            sources=samples.sources,
            stats=samples.stats,
            history=SourceHistory(states, {name: latest.get(name, closed) for name in names}),
            settings=drift_settings(self._config),
        )

    def _settlement_of(self, pool: Pool, current: CurrentDetector) -> SettlePool:
        samples = self._read(pool.id)
        with self._store.reading() as tx:
            state = settlement_input(tx, self._store, pool, samples, self._config)
        return SettlePool(
            pool_id=pool.id,
            version=current.number,
            base=pool.detector_version or current.number,
            state=state,
            features=samples.features,
        )

    # -- asking and waiting -----------------------------------------------------------------

    def _advance_active(self, pool: Pool, current: CurrentDetector) -> Advanced:
        if pool.state is PoolState.WAITING:
            return MOVED if self._close_round(pool) else IDLE
        samples = self._read(pool.id)
        if self._chosen is not None and self._chosen[0] == pool.id:
            rows = tuple(samples.place(index) for index in self._chosen[1].samples)
            scored = tuple(samples.digest(index) for index in self._chosen[1].samples)
            return self._hand_out(RenderThumbnails(pool.id, rows, of="questions", digests=scored))
        assert pool.detector_version is not None
        with self._store.reading() as tx:
            state = loop_input(tx, pool, samples, self._config)
            names = class_names(tx)
        if pool.evidence.get("stopped") == "unanswered" and not any(state.answers.values()):
            if self._config.pools.unanswered == "keep":
                return self._give_up(pool.id, self._unanswered())
            return self._hand_out(
                ClusterPool(pool.id, current.number, samples.features, state.seed)
            )
        return self._hand_out(
            AdvanceInnerLoop(
                pool_id=pool.id,
                version=current.number,
                base=pool.detector_version,
                state=state,
                names=names,
                features=samples.features,
            )
        )

    def _close_round(self, pool: Pool) -> bool:
        limit = timedelta(hours=self._config.labels.timeout_hours)
        with self._store.reading() as tx:
            limit = limit if tx.ages_count else timedelta.max
            if not is_over(tx, pool, limit):
                return False
        with self._store.step("pool", "close_round", self._lease) as tx:
            close_round(tx, pool, limit)
        return True

    def _unanswered(self) -> str:
        return f"nobody answered within {self._config.labels.timeout_hours:g} hours"

    def _give_up(self, pool_id: int, reason: str) -> Advanced:
        with self._store.step("pool", "give_up", self._lease) as tx:
            give_up(tx, pool_id, reason)
        return MOVED

    # -- what came of a task ----------------------------------------------------------------

    def receive(self, result: Any, current: CurrentDetector) -> bool:
        """Take the result of the task that was handed out; whether it could be used.

        People may rename, merge, retire, release or roll back at any moment. What no longer fits
        what they did is done again, with the state as it is then.
        """
        task = self._end_task()
        try:
            self._use(task, result, current)
        except (NotFound, WrongState, ClassNameTaken, BudgetExceeded, QuestionClosed) as error:
            self._chosen = None
            self._misfits[task.pool_id] = self._misfits.get(task.pool_id, 0) + 1
            with self._store.transaction(self._lease) as tx:
                tx.counters.add([Count("update_failures", "", "", 1)])
                active = tx.pools.get(task.pool_id).state in (PoolState.ASKING, PoolState.WAITING)
            if self._misfits[task.pool_id] >= MISFITS_MOST and active:
                self._give_up(task.pool_id, f"its result cannot be used: {error}")
            return False
        self._misfits.pop(task.pool_id, None)
        return True

    def _use(self, task: PoolTask, result: Any, current: CurrentDetector) -> None:
        match task:
            case InspectPool():
                # A version that was published meanwhile may explain the pool: inspect it again.
                if task.version == current.number:
                    self._decide(task, result, current)
            case RenderThumbnails(of="questions"):
                self._open_round(task, result, current)
            case RenderThumbnails():
                self._attach(task, result)
            case AdvanceInnerLoop() if isinstance(result, RoundToAsk):
                self._chosen = (task.pool_id, result)
            case SettlePool():
                self._settle(task, result, current)
            case AdvanceInnerLoop() | ClusterPool():
                self._conclude(task, result, current)

    def lose(self) -> None:
        """The task was lost with its worker; ``advance`` hands it out again."""
        self._task = None

    def fail(self, error: BaseException) -> bool:
        """The task itself failed and would fail again: the pool is given up, the feed continues.

        Whether one was given up: a class stands without thumbnails, a pool that fills goes on.
        """
        task = self._end_task()
        self._chosen = None
        with self._store.transaction(self._lease) as tx:
            if isinstance(task, RenderThumbnails) and task.of == "pseudo-labels":
                want_pictures(tx, task.pool_id, {})
                return False
            tx.counters.add([Count("update_failures", "", "", 1)])
            if tx.pools.get(task.pool_id).state is PoolState.FILLING:
                return False
        if isinstance(task, SettlePool):
            commit_undecided(self._store, self._read(task.pool_id), task.version, self._lease)
            return False
        self._give_up(task.pool_id, f"its inner loop failed: {error}")
        return True

    def _end_task(self) -> PoolTask:
        task, self._task = self._task, None
        assert task is not None, "nothing was handed out"
        return task

    def _decide(self, task: InspectPool, seen: PoolInspection, current: CurrentDetector) -> None:
        with self._store.step("pool", "decide", self._lease) as tx:
            # The feed's own clock runs faster than ours while it is caught up with.
            at = max(task.history.seen_at.values(), default=tx.now.timestamp())
            decide_pool(
                tx, task.pool_id, seen, current, self._config, at=at, states=self._drift_states
            )

    def _open_round(
        self, task: RenderThumbnails, rendered: Sequence[RowThumbnail], current: CurrentDetector
    ) -> None:
        """Ask people about a round's samples; the oracle, if any, answers at once."""
        assert self._chosen is not None, "thumbnails without a question"
        chosen, self._chosen = self._chosen[1], None
        samples = self._read(task.pool_id)
        digests = store_thumbnails(self._store, rendered)
        with self._store.step("pool", "ask", self._lease) as tx:
            asked = [
                samples.sample(index, suggestion(tx, guess, current.detector), digest)
                for index, guess, digest in zip(
                    chosen.samples, chosen.suggestions, digests, strict=True
                )
            ]
            report_swapped(tx, task.pool_id, task.rows, rendered)
            opened = open_round(tx, task.pool_id, chosen.round, asked)
            taught = taught_samples(self._store, tx, task.pool_id, samples)
            answer_from_lessons(tx, opened, chosen.samples, taught, current.detector)
            if self._oracle:
                for question, one in zip(opened, rendered, strict=True):
                    answer_from_column(tx, question, one.label, current.detector)

    def _conclude(
        self,
        task: AdvanceInnerLoop | ClusterPool,
        found: LoopConclusion,
        current: CurrentDetector,
    ) -> None:
        if found.detector is None and found.provisional:
            self._give_up(task.pool_id, self._unanswered())
        elif found.detector is None:
            with self._store.transaction(self._lease) as tx:
                learn_nothing(tx, task.pool_id, found)
        elif task.version == current.number:
            samples = self._read(task.pool_id)
            # Refused if a person changed the detector in the same moment: it concludes again.
            publish_version(
                self._store, found, samples, current.number, self._config.gate, self._lease
            )

    def _settle(self, task: SettlePool, found: PoolSettlement, current: CurrentDetector) -> None:
        if task.version != current.number:
            return
        samples = self._read(task.pool_id)
        version = current.number
        try:
            published = publish_growth(
                self._store, found, samples, version, self._config.gate, self._lease
            )
        except WrongState:
            # A person changed the detector in the same moment: settle with the one in use.
            return
        with self._store.reading() as tx:
            names = class_names(tx)
        version = published.number if published else version
        commit_settlement(self._store, found, samples, version, names, self._lease)

    def _attach(self, task: RenderThumbnails, rendered: Sequence[RowThumbnail]) -> None:
        """Show what was concluded without people, so that they can contradict it."""
        digests = dict(zip(task.rows, store_thumbnails(self._store, rendered), strict=True))
        with self._store.step("pool", "attach", self._lease) as tx:
            report_swapped(tx, task.pool_id, task.rows, rendered)
            attach_thumbnails(tx, task.pool_id, digests)

    def _read(self, pool_id: int) -> PoolSamples:
        # A pool that was inspected while it was filling has grown since.
        if self._samples is None or self._samples.pool_id != pool_id or self._early:
            with self._store.reading() as tx:
                members = tx.pools.members(pool_id)
            self._samples = samples_in(self._store.folder, pool_id, members)
        return self._samples
