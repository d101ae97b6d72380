"""The whole monitor, from a configuration to its end: what ``conclad run`` does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from actors.coordinator import Coordinator
from actors.coordinator_lease import acquire_lease, renew_lease
from actors.event_messages import Listener, MonitorMessage
from actors.periodic_tasks import Observer, PeriodicTasks
from actors.poison_batches import begin_run, end_run
from actors.waiting import Stop, Waiting, stopping_on_signals
from actors.worker import EngineFactory
from actors.worker_pool import InlineWorkerPool, WorkerPool
from monitor.config import Config
from monitor.errors import is_outage
from monitor.jobs.from_config import (
    as_fitted,
    current_version,
    open_engine_of,
    open_existing_store,
)
from monitor.outages import Outages
from monitor.store import Store, recover
from monitor.store.account import account
from monitor.store.errors import LeaseLost
from monitor.store.records import Lease
from monitor.store.states import ClassOrigin
from monitor.store.store import Clock

#: The address that stands for no Ray at all.
NO_RAY = "none"
#: More batches than any run embeds at once, on one machine.
SUSPECTS = 64

Services = Callable[[Store, Config, Callable[[str], None]], AbstractContextManager[Observer | None]]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the state holds when the monitor stops."""

    version: int
    classes: tuple[str, ...]
    discovered: tuple[str, ...]
    images: dict[str, int]
    labels: int
    pools: dict[str, int]
    files: dict[str, int]
    pending: int
    open_questions: int
    set_aside: dict[str, int]
    """Files, batches and images without a verdict, which wait for a person."""
    unaccounted: int
    """Images of which nobody knows what became; 0 unless something was lost."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(
    config: Config,
    *,
    once: bool = False,
    listener: Listener = lambda message: None,
    open_engine: EngineFactory = open_engine_of,
    services: Services | None = None,
    clock: Clock | None = None,
) -> Summary:
    """Watch the feed until SIGTERM or SIGINT, or with ``once`` until nothing is left to do.

    ``services`` opens what runs beside the monitor (metrics, desk), as a context that yields
    somebody who wants to know how long things take, or None. ``clock`` takes the place of the
    database's in tests.
    """
    outages = Outages()
    stop = Stop()
    with stopping_on_signals(stop), contextlib.ExitStack() as outer:
        waiting = Waiting(outages, stop, listener, forever=not once)
        store = outer.enter_context(waiting.until_done(lambda: open_existing_store(config, clock)))
        waiting.until_done(lambda: current_version(store))
        config = waiting.until_done(partial(as_fitted, config, store))
        lease = waiting.until_done(lambda: acquire_lease(store))
        outer.callback(_leave, store, lease)
        waiting.until_done(lambda: recover(store, lease))
        if waiting.until_done(lambda: begin_run(store, lease, first=SUSPECTS)):
            listener(
                MonitorMessage(
                    "suspicion", "the last runs died without progress: trying batches alone"
                )
            )
        if stop.is_asked:
            return summarise(store)
        with contextlib.ExitStack() as stack:
            stack.enter_context(renew_lease(store, lease))
            # The embedders have every core: products of several threads would wait for them.
            stack.enter_context(threadpool_limits(1, "blas"))
            say = partial(_say, listener)
            observer = stack.enter_context(services(store, config, say)) if services else None
            if observer is not None:
                observer.show_outages(outages)
            workers = stack.enter_context(_worker_pool(config, open_engine, listener))
            fingerprint = workers.start()
            periodic = waiting.until_done(
                lambda: PeriodicTasks(
                    store, config, workers, lease, observer=observer, outages=outages
                )
            )
            stack.callback(periodic.close)
            waiting.note = periodic.note_outages

            def watch() -> None:
                """From the state as it is, to the end or to an outage of store, disk or cluster."""
                workers.resume()
                recover(store, lease)
                coordinator = Coordinator(
                    store,
                    config,
                    workers,
                    lease,
                    fingerprint,
                    once=once,
                    listener=listener,
                    periodic=periodic,
                    outages=outages,
                )
                waiting.is_over()
                stop.then(coordinator.stop)
                try:
                    coordinator.run()
                    periodic.finish()
                finally:
                    # Whoever watches next begins anew: what is under way is nobody's.
                    workers.forget()

            waiting.until_done(watch, forever=True)
        return summarise(store)


def _leave(store: Store, lease: Lease) -> None:
    """Say that the run ended by itself; where the store is away nobody can be told."""
    try:
        with contextlib.suppress(LeaseLost):
            end_run(store, lease)
        store.release_lease(lease)
    except Exception as error:
        if not is_outage(error):
            raise


def _say(listener: Listener, text: str) -> None:
    listener(MonitorMessage("service", text))


def summarise(store: Store) -> Summary:
    with store.reading() as tx:
        version = tx.versions.current()
        rows = tx.classes.living()
        images: dict[str, int] = {}
        for count in tx.counters.all("images"):
            images[count.label] = images.get(count.label, 0) + int(count.value)
        return Summary(
            version=version.number if version else 0,
            classes=tuple(row.name for row in rows if row.created_in is not None),
            discovered=tuple(
                row.name
                for row in rows
                if row.created_in is not None and row.origin is not ClassOrigin.FIT
            ),
            images=images,
            labels=int(tx.counters.value("labels_spent")),
            pools={str(state): n for state, n in tx.pools.count_by_state().items()},
            files={str(state): n for state, n in tx.files.count_by_state().items()},
            pending=tx.batches.count_pending(),
            open_questions=tx.questions.count_open(),
            set_aside=tx.quarantine.count(),
            unaccounted=account(tx).unaccounted,
        )


@contextlib.contextmanager
def _worker_pool(
    config: Config, open_engine: EngineFactory, listener: Listener
) -> Iterator[WorkerPool]:
    if config.run.address == NO_RAY:
        yield InlineWorkerPool(config, open_engine)
        return
    # Late: Ray takes seconds to import, and a wrong configuration should not wait for it.
    from actors.ray_cluster import connect, disconnect, wait_for_resources
    from actors.ray_worker_pool import RayWorkerPool

    connect(config.run.address)
    try:
        chosen = wait_for_resources(
            config, say=lambda text: listener(MonitorMessage("cluster", text))
        )
        workers = RayWorkerPool(config, chosen, open_engine)
        try:
            yield workers
        finally:
            workers.close()
    finally:
        disconnect()
