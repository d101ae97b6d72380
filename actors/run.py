"""The whole monitor, from a configuration to its end: what ``conclad run`` does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from actors.coordinator import Coordinator
from actors.crew import Crew, InlineCrew
from actors.embedder import EngineFactory
from actors.holding import hold, renewing
from actors.housekeeping import Housekeeper, Observer
from actors.suspicion import begin_run, end_run
from actors.telling import Listener, Told
from monitor.config import Config
from monitor.jobs.parts import current_version, open_engine_of, open_existing_store
from monitor.store import Store, recover
from monitor.store.errors import LeaseLost
from monitor.store.states import ClassOrigin
from monitor.store.store import Clock

#: The address that stands for no Ray at all.
NO_RAY = "none"
#: More batches than any run has in hand at once, on one machine.
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
    open_queries: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(
    config: Config,
    *,
    once: bool = False,
    listener: Listener = lambda told: None,
    open_engine: EngineFactory = open_engine_of,
    services: Services | None = None,
    clock: Clock | None = None,
) -> Summary:
    """Watch the feed until SIGTERM or SIGINT, or with ``once`` until nothing is left to do.

    ``services`` opens what runs beside the monitor (metrics, desk), as a context that yields
    somebody who wants to know how long things take, or None. ``clock`` takes the place of the
    database's in tests.
    """
    with open_existing_store(config, clock) as store:
        current_version(store)
        lease = hold(store)
        try:
            recover(store, lease)
            if begin_run(store, lease, in_hand=SUSPECTS):
                listener(
                    Told("suspicion", "the last runs died without progress: trying batches alone")
                )
            with contextlib.ExitStack() as stack:
                stack.enter_context(renewing(store, lease))
                # The embedders have every core: products of several threads would wait for them.
                stack.enter_context(threadpool_limits(1, "blas"))
                say = partial(_say, listener)
                observer = stack.enter_context(services(store, config, say)) if services else None
                crew = stack.enter_context(_crew(config, open_engine, listener))
                fingerprint = crew.start()
                house = Housekeeper(store, config, crew, lease, observer=observer)
                stack.callback(house.close)
                coordinator = Coordinator(
                    store,
                    config,
                    crew,
                    lease,
                    fingerprint,
                    once=once,
                    listener=listener,
                    housekeeper=house,
                )
                with stopping_on_signals(coordinator.stop):
                    coordinator.run()
                    house.say_goodbye()
            return summarise(store)
        finally:
            with contextlib.suppress(LeaseLost):
                end_run(store, lease)
            store.release_lease(lease)


def _say(listener: Listener, text: str) -> None:
    listener(Told("service", text))


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
            open_queries=tx.queries.count_open(),
        )


@contextlib.contextmanager
def _crew(config: Config, open_engine: EngineFactory, listener: Listener) -> Iterator[Crew]:
    if config.run.address == NO_RAY:
        yield InlineCrew(config, open_engine)
        return
    # Late: Ray takes seconds to import, and a wrong configuration should not wait for it.
    import ray

    from actors.cluster import connect, wait_for_resources
    from actors.ray_crew import RayCrew

    connect(config.run.address)
    try:
        chosen = wait_for_resources(config, say=lambda text: listener(Told("cluster", text)))
        crew = RayCrew(config, chosen, open_engine)
        try:
            yield crew
        finally:
            crew.close()
    finally:
        ray.shutdown()


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C finish what is in flight; a second Ctrl-C is as rude as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {name: signal.signal(name, handle) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
