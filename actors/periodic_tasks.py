"""What the coordinator does at intervals: heartbeat, notes on sources, merging, forgetting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from actors.worker_pool import WorkerPool
from monitor import __version__
from monitor.config import Config
from monitor.errors import is_outage
from monitor.outages import Outages
from monitor.people.resettle_corrections import resettle_corrections
from monitor.pipeline.pool_steps import WEEK
from monitor.store import ScoredBatch, Store, compact, drop_spools
from monitor.store.errors import LeaseHeld, LeaseLost, StoreBusy
from monitor.store.growth_limits import forget_old
from monitor.store.note_and_counter_names import HEARTBEAT, OUTAGES, SOURCES
from monitor.store.records import Count, Lease

#: How often the heartbeat and the readings by source are written.
NOTES_SECONDS = 5.0
#: The readings of more sources than this are noted each half minute: who is silent is seen in time.
SOURCES_AT_ONCE, SOURCES_SECONDS = 1000, 30.0
#: Small output files are merged after so many commits, those of earlier runs included.
COMPACT_AFTER = 500
#: How often a piece of what is old is forgotten: all digests come up once a day.
FORGET_SECONDS = 60.0
#: Files that are counted as waiting at most: more would not bring more embedders.
UNOPENED_MOST = 1000
#: A time of capture further ahead than this is a camera's wrong clock: zones differ by less.
AHEAD_MOST = timedelta(days=1)
#: One before this is what a clock shows that was never set.
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)


class Observer(Protocol):
    """Who wants to know how long things take."""

    def observe_stage(self, stage: str, seconds: float) -> None: ...

    def show_outages(self, outages: Outages) -> None: ...


class PeriodicTasks:
    """Everything here may be skipped for a while; nothing of it is on an image's way."""

    def __init__(
        self,
        store: Store,
        config: Config,
        workers: WorkerPool,
        lease: Lease,
        *,
        observer: Observer | None = None,
        outages: Outages | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._config, self._workers, self._lease = store, config, workers, lease
        self._observer = observer
        self._outages = outages or Outages()
        self._noted_outages: dict[str, Any] = {}
        self._clock = clock
        self._noted = -float("inf")
        self._noted_sources = clock()
        # Source and time of capture of what was committed since the last note.
        self._captured: list[pa.Table] = []
        self._restarts: dict[str, int] = {}
        self._forgot = self._clock()
        self._forgetting: Future[None] | None = None
        self._cleaning: Future[None] | None = None
        self._resettling: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="cleaning")
        with store.transaction(lease) as tx:
            self._started_at = tx.now.isoformat()
            # A monitor that is started again every hour has files to merge, too.
            self._commits = tx.counts.output_files("verdicts")
            tx.events.append("monitor.started", {"owner": lease.owner, "version": __version__})

    def _wall(self) -> datetime:
        return datetime.now(UTC)

    def observe(self, stage: str, seconds: float) -> None:
        if self._observer is not None:
            self._observer.observe_stage(stage, seconds)

    def committed(self, batches: Sequence[ScoredBatch]) -> None:
        """Batches are done; what their sources look like is noted with the next note."""
        self._commits += len(batches)
        self._captured += [batch.verdicts.select(_CAPTURED) for batch in batches]

    def tick(self, unfinished: int) -> None:
        now = self._clock()
        if now - self._noted >= NOTES_SECONDS or self._outages.as_note() != self._noted_outages:
            self._noted = now
            self._note(unfinished)
            if self._resettling is None:
                self._resettling = self._background.submit(self._resettle)
        if self._resettling is not None and self._resettling.done():
            self._resettling.result()
            self._resettling = None
        if now - self._forgot >= FORGET_SECONDS and self._forgetting is None:
            self._forgot = now
            self._forgetting = self._background.submit(self._forget)
        if self._forgetting is not None and self._forgetting.done():
            self._forgetting.result()
            self._forgetting = None
        if self._commits >= COMPACT_AFTER and self._cleaning is None:
            self._commits = 0
            self._cleaning = self._background.submit(self._clean)
        if self._cleaning is not None and self._cleaning.done():
            self._cleaning.result()
            self._cleaning = None

    def note_outages(self) -> None:
        """For the desk and ``conclad status``, unless it is the store that is away."""
        outages = self._outages.as_note()
        try:
            with self._store.transaction(self._lease) as tx:
                tx.notes.set(*OUTAGES, outages)
        except Exception as error:
            if not is_outage(error) and not isinstance(error, LeaseLost):
                raise
        else:
            self._noted_outages = outages

    def finish(self) -> None:
        """A clean end: what was still to be noted, and that we stop."""
        self._note(0, final=True)
        with self._store.transaction(self._lease) as tx:
            tx.events.append("monitor.stopped", {"owner": self._lease.owner})

    def close(self) -> None:
        self._background.shutdown(wait=True)

    def _note(self, unfinished: int, *, final: bool = False) -> None:
        restarts, outages = self._workers.restarts(), self._outages.as_note()
        captured = self._captured if final or self._sources_are_due() else []
        readings = _by_source(captured, before=self._wall() + AHEAD_MOST)
        with self._store.transaction(self._lease) as tx:
            before = tx.notes.get_many(SOURCES, [source for source, _, _ in readings])
            now = tx.now.isoformat()
            tx.notes.set_many(
                SOURCES, {s: _merged(before.get(s, {}), at, now) for s, at, _ in readings}
            )
            tx.counters.add([Count("implausible_times", s, "", n) for s, _, n in readings if n])
            tx.notes.set(*OUTAGES, outages)
            fresh = {r: n - self._restarts.get(r, 0) for r, n in restarts.items()}
            tx.counters.add(
                [Count("actor_restarts", "", role, n) for role, n in fresh.items() if n]
            )
            for role, number in fresh.items():
                if number:
                    tx.events.append("actor.restarted", {"role": role, "count": number})
            waiting = tx.counts.pending_batches()
            # A file that nobody has opened yet is at least one batch.
            unopened = tx.counts.new_files(UNOPENED_MOST)
            tx.notes.set(*HEARTBEAT, self._heartbeat(tx, unfinished, waiting))
        if captured:
            self._captured, self._noted_sources = [], self._clock()
        self._restarts, self._noted_outages = restarts, outages
        self._workers.scale(waiting + unopened)

    def _sources_are_due(self) -> bool:
        """Whether few have sent since the last note, or the last note of many is long ago."""
        if self._clock() - self._noted_sources >= SOURCES_SECONDS or not self._captured:
            return True
        sources = pa.chunked_array([c for one in self._captured for c in one["source_id"].chunks])
        return bool(pc.count_distinct(sources).as_py() <= SOURCES_AT_ONCE)

    def _heartbeat(self, tx: Any, unfinished: int, waiting: int) -> dict[str, Any]:
        labels = self._config.labels.per_week
        return {
            "started_at": self._started_at,
            "seen_at": tx.now.isoformat(),
            "version": __version__,
            "owner": self._lease.owner,
            "address": self._config.run.address,
            "actors_up": self._workers.up(),
            "actors_starting": self._workers.starting(),
            "listing": {
                "files_unfinished": unfinished,
                "batches_waiting": waiting,
            },
            "labels": {
                "per_week": labels,
                "spent_this_week": tx.counts.questions_since(tx.now - WEEK),
            },
        }

    def _clean(self) -> None:
        """Merge small files and drop what settled pools left; a busy store is tried later."""
        try:
            for kind in ("verdicts", "rejected", "settled"):
                compact(self._store, kind, owner=self._lease.owner)
            with self._store.reading() as tx:
                if not tx.ages_count:
                    return  # features go by their age
                before = tx.now - timedelta(hours=self._config.pools.keep_features_hours)
            drop_spools(self._store, before=before)
        except (LeaseHeld, StoreBusy):
            return
        except Exception as error:
            if not is_outage(error):
                raise
            # Whatever needs the store now will say so; this can wait.

    def _forget(self) -> None:
        """Forget a piece of what is older than it is kept; a busy store is tried later."""
        keep = self._config.state
        try:
            with self._store.reading() as tx:
                if not tx.ages_count:
                    return
            forget_old(
                self._store,
                digests=timedelta(days=keep.keep_digests_days),
                events=timedelta(days=keep.keep_events_days),
                lease=self._lease,
            )
        except (LeaseLost, StoreBusy):
            return
        except Exception as error:
            if not is_outage(error):
                raise

    def _resettle(self) -> None:
        """Let what people have corrected reach settled verdicts, a bounded piece at a time."""
        try:
            resettle_corrections(self._store, lease=self._lease)
        except (LeaseLost, StoreBusy):
            return
        except Exception as error:
            if not is_outage(error):
                raise


_CAPTURED = ("source_id", "captured_at")


def _by_source(
    captured: Sequence[pa.Table], *, before: datetime
) -> list[tuple[str, datetime | None, int]]:
    """Of each source: its latest plausible time of capture, and how many were not plausible."""
    if not captured:
        return []
    rows = pa.concat_tables(captured)
    times = pc.cast(rows.column("captured_at"), pa.timestamp("us", tz="UTC"))
    late = pc.greater(times, pa.scalar(before, times.type))
    early = pc.less(times, pa.scalar(EARLIEST, times.type))
    odd = pc.fill_null(pc.or_(late, early), False)
    plausible = pc.if_else(odd, pa.scalar(None, times.type), times)
    found = (
        pa.table({"source": rows.column("source_id"), "at": plausible, "odd": odd})
        .group_by("source")
        .aggregate([("at", "max"), ("odd", "sum")])
    )
    columns = (found.column(name).to_pylist() for name in ("source", "at_max", "odd_sum"))
    return list(zip(*columns, strict=True))


def _merged(before: dict[str, Any], at: datetime | None, now: str) -> dict[str, Any]:
    times = (at.isoformat() if at else None, before.get("last_captured_at"))
    return {"last_captured_at": max(filter(None, times), default=None), "last_commit_at": now}
