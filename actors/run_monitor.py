"""The whole monitor, from a configuration to its end: what ``conclad run`` does.

It goes on through outages, and stops when asked from the first moment. The feed is worth more than
what runs beside it (metrics, webhooks, the desk): one of these that cannot start, because a port is
taken, say, is reported and left out, and the monitor goes on.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from actors.coordinator import Coordinator
from actors.coordinator_lease import acquire_lease, begin_run, end_run, renew_lease
from actors.desk_beside_monitor import DeskKeeper
from actors.event_sentences import Listener, MonitorMessage
from actors.periodic_tasks import Observer, PeriodicTasks
from actors.worker_pool import EngineFactory, InlineWorkerPool, WorkerPool
from monitor.config import Config
from monitor.errors import ConcladError, ErrorKind, is_outage, kind_of
from monitor.jobs.from_config import (
    as_fitted,
    current_version,
    open_engine_of,
    open_state_to_write,
)
from monitor.novelty.fingerprint import Fingerprint
from monitor.outages import Outages
from monitor.store import Store, recover
from monitor.store.counters_and_image_account import account
from monitor.store.database import Database
from monitor.store.errors import LeaseLost, StoreUnreachable
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Lease
from monitor.store.store import Clock

T = TypeVar("T")

#: Transactions take milliseconds, and wait for others for some seconds.
STORE_HANGS_SECONDS = 20.0
STORE_LOOK_SECONDS = 2.0


class StoppedInOutage(ConcladError):
    """Asked to stop while the store is away: a clean end, of which there is no summary."""


class Stop:
    """That somebody asked to stop; safe to set from a signal handler."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._then: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self._asked.set()
        self._then()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def then(self, action: Callable[[], None]) -> None:
        """What to do when it is asked for; at once if it has been."""
        self._then = action
        if self.is_asked:
            action()

    def wait(self, seconds: float) -> bool:
        """Sleep, unless asked to stop."""
        return self._asked.wait(seconds)


class Waiting:
    """Does something again and again until no outage keeps it from being done.

    Not ``forever``: at the start of a bounded run an outage is reported at once, in one sentence.
    """

    def __init__(self, outages: Outages, stop: Stop, *, forever: bool = True) -> None:
        self._outages, self._stop, self._forever = outages, stop, forever
        self._kind: ErrorKind | None = None
        self.note: Callable[[], None] = lambda: None
        """Tells others what is away, where there is a way to tell them."""

    def until_done(self, action: Callable[[], T], *, forever: bool | None = None) -> T:
        """What the action returns; raises what is no outage, and the outage when asked to stop."""
        while True:
            try:
                done = action()
            except Exception as error:
                may_wait = self._forever if forever is None else forever
                if not is_outage(error) or not may_wait:
                    raise
                self._begin(error)
                if self._stop.wait(self._outages.pause(kind_of(error))):
                    raise
            else:
                self.is_over()
                return done

    def is_waiting_for(self, kind: ErrorKind) -> bool:
        return self._kind is kind

    def _begin(self, error: Exception) -> None:
        kind = kind_of(error)
        if self._kind is not None and self._kind is not kind:
            self.is_over()
        self._kind = kind
        if self._outages.begin(error):
            self.note()

    def is_over(self) -> None:
        """What was waited for answers again."""
        if self._kind is not None and self._outages.end(self._kind) is not None:
            self.note()
        self._kind = None


@contextmanager
def watching_store(
    database: Database,
    outages: Outages,
    is_waited_for: Callable[[ErrorKind], bool],
    *,
    look_seconds: float = STORE_LOOK_SECONDS,
    hangs_seconds: float = STORE_HANGS_SECONDS,
) -> Iterator[None]:
    """Report an outage while a transaction of this thread hangs.

    A database that is frozen, or on a disk that hangs, neither answers nor hangs up: who asks it
    waits in the kernel and cannot say so. A thread beside it can. Not where it is waited for
    already: whoever waits says so.
    """
    thread, over = threading.get_ident(), threading.Event()

    def watch() -> None:
        is_ours = False
        while not over.wait(look_seconds):
            hangs = database.busy_seconds(thread) > hangs_seconds
            if hangs:
                sentence = f"{database.where}: has not answered for {hangs_seconds:g} s"
                is_ours = outages.begin(StoreUnreachable(sentence)) or is_ours
            elif is_ours:
                is_ours = False
                if not is_waited_for(ErrorKind.STORE):
                    outages.end(ErrorKind.STORE)

    watcher = threading.Thread(target=watch, name="store-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(look_seconds)


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C finish what is in flight; a second Ctrl-C ends at once."""
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


Say = Callable[[str], None]


@contextmanager
def services(
    store: Store, config: Config, say: Say, *, with_desk: bool = True
) -> Iterator[Observer | None]:
    """Start what the configuration asks for; yields who wants to know how long things take."""
    from monitor.telemetry.exporter import Exporter
    from monitor.telemetry.message_delivery import MessageSender, WebhookSender

    observer: Observer | None = None
    with ExitStack() as stack:
        try:
            metrics = config.metrics.model_copy(update={"desk_url": config.desk_url})
            exporter = stack.enter_context(Exporter(store, metrics, group=config.group))
            observer = exporter
            if exporter.url:
                say(f"metrics: {exporter.url}")
        except ConcladError as error:
            say(f"without metrics: {error}")
        for what, sender in (
            ("webhooks", lambda: WebhookSender(store, config.webhooks)),
            ("messages", lambda: MessageSender(store, config.messages, config.desk_url)),
        ):
            try:
                stack.enter_context(sender())
            except ConcladError as error:
                if is_outage(error):
                    raise  # of the store: waited for, and then all of them are there
                say(f"without {what}: {error}")
        if with_desk and config.desk.enabled:
            _open_desk(stack, config, say)
        yield observer


def _open_desk(stack: ExitStack, config: Config, say: Say) -> None:
    from monitor.desk.server import start

    stack.callback(DeskKeeper(config, say, start).close)


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
    quarantined: dict[str, int]
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
    database's in tests. Raises StoppedInOutage where it was asked to stop and cannot say what the
    state holds.
    """
    stop = Stop()
    with stopping_on_signals(stop):
        try:
            return _run(config, stop, once, listener, open_engine, services, clock)
        except Exception as error:
            if not (stop.is_asked and is_outage(error)):
                raise
            raise StoppedInOutage(f"stopped while waiting: {error}") from error


def _run(
    config: Config,
    stop: Stop,
    once: bool,
    listener: Listener,
    open_engine: EngineFactory,
    services: Services | None,
    clock: Clock | None,
) -> Summary:
    outages = Outages(report=lambda kind, text: listener(MonitorMessage(kind, text)))
    with contextlib.ExitStack() as outer:
        waiting = Waiting(outages, stop, forever=not once)
        store = outer.enter_context(waiting.until_done(lambda: open_state_to_write(config, clock)))
        store.watch_clock()
        waiting.until_done(lambda: current_version(store))
        config = waiting.until_done(partial(as_fitted, config, store))
        outer.enter_context(watching_store(store.database, outages, waiting.is_waiting_for))
        lease = waiting.until_done(lambda: acquire_lease(store))
        outer.callback(_leave, store, lease)
        waiting.until_done(lambda: recover(store, lease))
        waiting.until_done(lambda: _enter(store, lease, listener))
        if stop.is_asked:
            return summarise(store)
        with contextlib.ExitStack() as stack:
            stack.enter_context(renew_lease(store, lease))
            # The embedders have every core: products of several threads would wait for them.
            stack.enter_context(threadpool_limits(1, "blas"))
            say = partial(_say, listener)

            def open_services() -> Observer | None:
                return stack.enter_context(services(store, config, say)) if services else None

            observer = waiting.until_done(open_services, forever=True)
            if observer is not None:
                observer.show_outages(outages)
            workers = stack.enter_context(_worker_pool(config, open_engine, listener))

            def start() -> Fingerprint:
                workers.resume()
                return workers.start()

            fingerprint = waiting.until_done(start, forever=True)
            periodic = waiting.until_done(
                lambda: PeriodicTasks(
                    store,
                    config,
                    workers,
                    lease,
                    observer=observer,
                    outages=outages,
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
                    progress=waiting.is_over,
                )
                stop.then(coordinator.stop)
                try:
                    coordinator.run()
                    periodic.finish()
                finally:
                    # The next one starts from the store: nobody waits for what is under way.
                    workers.forget()

            try:
                waiting.until_done(watch, forever=True)
            except Exception as error:
                # Asked to stop while something is away: nothing is in flight, so that is the end.
                if not (stop.is_asked and is_outage(error)):
                    raise
        return summarise(store)


def _enter(store: Store, lease: Lease, listener: Listener) -> None:
    """Note that a run begins, and say so if the last ones came to nothing."""
    if begin_run(store, lease, first=SUSPECTS):
        said = "the last runs died without progress: trying batches alone"
        listener(MonitorMessage("runs.died", said))


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
            pools={str(state): n for state, n in tx.counts.pools_by_state().items()},
            files={str(state): n for state, n in tx.counts.files_by_state().items()},
            pending=tx.counts.pending_batches(),
            open_questions=tx.counts.open_questions(),
            quarantined=tx.counts.quarantined(),
            unaccounted=account(tx).unaccounted,
        )


@contextlib.contextmanager
def _worker_pool(
    config: Config, open_engine: EngineFactory, listener: Listener
) -> Iterator[WorkerPool]:
    if config.run.address == NO_RAY:
        inline = InlineWorkerPool(config, open_engine)
        try:
            yield inline
        finally:
            inline.close()
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
