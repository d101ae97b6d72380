"""What the coordinator does now and then: its signs of life, tidying up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from actors.crew import Crew
from monitor import __version__
from monitor.config import Config
from monitor.pipeline.fencing import fenced
from monitor.pipeline.judging import Judged
from monitor.pipeline.keeper import WEEK
from monitor.store import Store, compact, drop_spools
from monitor.store.errors import LeaseHeld, StoreBusy
from monitor.store.rows import Count, Lease
from monitor.store.states import FileState

#: How often signs of life and readings by source are written.
NOTES_SECONDS = 5.0
#: Small output files are merged after so many commits.
COMPACT_AFTER = 500
#: Files that are counted as waiting at most: more would not bring more embedders.
UNOPENED_MOST = 1000
#: Features of a settled pool are kept for a while, for whoever asks what was decided and why.
SPOOLS_KEPT = timedelta(hours=1)


class Observer(Protocol):
    """Who wants to know how long things take."""

    def observe_stage(self, stage: str, seconds: float) -> None: ...


@dataclass(slots=True)
class _Reading:
    """What is known of one source since the last note."""

    captured: datetime | None = None


class Housekeeper:
    """Everything here may be skipped for a while; nothing of it is on an image's way."""

    def __init__(
        self,
        store: Store,
        config: Config,
        crew: Crew,
        lease: Lease,
        *,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._config, self._crew, self._lease = store, config, crew, lease
        self._observer = observer
        self._clock = clock
        self._noted = -float("inf")
        self._readings: dict[str, _Reading] = {}
        self._restarts: dict[str, int] = {}
        self._commits = 0
        self._tidying: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="tidying")
        with fenced(store, lease) as tx:
            self._started_at = tx.now.isoformat()
            tx.events.append("monitor.started", {"owner": lease.owner, "version": __version__})

    def observe(self, stage: str, seconds: float) -> None:
        if self._observer is not None:
            self._observer.observe_stage(stage, seconds)

    def committed(self, batches: Sequence[Judged]) -> None:
        """Batches are done; what their sources look like is noted with the next note."""
        self._commits += len(batches)
        for source, captured in _by_source(pa.concat_tables([b.verdicts for b in batches])):
            reading = self._readings.setdefault(source, _Reading())
            if captured is not None:
                reading.captured = max(captured, reading.captured or captured)

    def tick(self, unfinished: int) -> None:
        now = self._clock()
        if now - self._noted >= NOTES_SECONDS:
            self._noted = now
            self._note(unfinished)
        if self._commits >= COMPACT_AFTER and self._tidying is None:
            self._commits = 0
            self._tidying = self._background.submit(self._tidy)
        if self._tidying is not None and self._tidying.done():
            self._tidying.result()
            self._tidying = None

    def say_goodbye(self) -> None:
        """A clean end: what was still to be noted, and that we stop."""
        self._note(0)
        with fenced(self._store, self._lease) as tx:
            tx.events.append("monitor.stopped", {"owner": self._lease.owner})

    def close(self) -> None:
        self._background.shutdown(wait=True)

    def _note(self, unfinished: int) -> None:
        readings, self._readings = self._readings, {}
        restarts = self._crew.restarts()
        with fenced(self._store, self._lease) as tx:
            before = tx.notes.get_many("source", readings)
            tx.notes.set_many(
                "source", {s: _merged(before.get(s, {}), r, tx.now) for s, r in readings.items()}
            )
            fresh = {r: n - self._restarts.get(r, 0) for r, n in restarts.items()}
            tx.counters.add(
                [Count("actor_restarts", "", role, n) for role, n in fresh.items() if n]
            )
            for role, number in fresh.items():
                if number:
                    tx.events.append("actor.restarted", {"role": role, "count": number})
            waiting = tx.batches.count_pending()
            # A file that nobody has opened yet is at least one batch.
            unopened = len(tx.files.in_state(FileState.NEW, limit=UNOPENED_MOST))
            tx.notes.set("monitor", "coordinator", self._sign_of_life(tx, unfinished, waiting))
        self._restarts = restarts
        self._crew.heed(waiting + unopened)

    def _sign_of_life(self, tx: Any, unfinished: int, waiting: int) -> dict[str, Any]:
        labels = self._config.labels.per_week
        return {
            "started_at": self._started_at,
            "seen_at": tx.now.isoformat(),
            "version": __version__,
            "owner": self._lease.owner,
            "address": self._config.run.address,
            "actors_up": self._crew.up(),
            "actors_starting": self._crew.starting(),
            "listing": {
                "files_unfinished": unfinished,
                "batches_waiting": waiting,
            },
            "labels": {
                "per_week": labels,
                "spent_this_week": tx.queries.count_opened(tx.now - WEEK),
            },
        }

    def _tidy(self) -> None:
        """Merge small files and drop what settled pools left; a busy store is tried later."""
        try:
            for kind in ("verdicts", "rejected"):
                compact(self._store, kind, owner=self._lease.owner)
            with self._store.reading() as tx:
                before = tx.now - SPOOLS_KEPT
            drop_spools(self._store, before=before)
        except (LeaseHeld, StoreBusy):
            return


def _by_source(verdicts: pa.Table) -> list[tuple[str, datetime | None]]:
    if not verdicts.num_rows:
        return []
    found = verdicts.group_by("source_id").aggregate([("captured_at", "max")])
    latest = pc.cast(found.column("captured_at_max"), pa.timestamp("us", tz="UTC"))
    return list(zip(found.column("source_id").to_pylist(), latest.to_pylist(), strict=True))


def _merged(before: dict[str, Any], reading: _Reading, now: datetime) -> dict[str, Any]:
    captured = reading.captured.isoformat() if reading.captured else None
    return {
        "last_captured_at": max(
            filter(None, (captured, before.get("last_captured_at"))), default=None
        ),
        "last_commit_at": now.isoformat(),
    }
