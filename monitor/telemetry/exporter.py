"""The page that Prometheus reads, made from the store and served by a thread of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from monitor.config.telemetry_section import MetricsSection
from monitor.errors import ConcladError, ErrorKind
from monitor.outages import Outages
from monitor.store import Store
from monitor.store.disk_space import disk_of
from monitor.store.note_and_counter_names import COORDINATOR_LEASE
from monitor.telemetry.errors import MetricsUnavailable
from monitor.telemetry.metric_catalog import STAGES, families, page_families
from monitor.telemetry.metric_series import Family
from monitor.telemetry.source_label_cap import Cap
from monitor.telemetry.store_reading import StoreSummaryReader

#: Two scrapers, or a person who reloads the page, share one look at the store.
CACHE_SECONDS = 1.0

#: For how long a page waits for the store: Prometheus waits ten seconds.
PATIENCE_SECONDS = 5.0

#: Meanwhile the last answer is shown, if it came less than so long ago: the longest usual
#: interval of scrapes. A large store on a busy machine may take longer than a page waits.
YOUNG_SECONDS = 60.0

#: Readers at a time, each a thread for as long as it takes; the next ones are turned away.
MOST_READERS = 64

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

#: From a cached batch of a few images to an inner loop over a large pool.
STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

#: What a store that is out of reach raises.
_UNREADABLE = (ConcladError, SQLAlchemyError, OSError)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class Exporter:
    """Serves ``/metrics``, and two pages for liveness probes.

    ``/healthz`` says that this thread lives; ``/alive`` that a monitor holds its lease on the
    state, which one that hangs does not. Both are cheap enough to be asked every few seconds.

    Figures come from the store; the durations of stages are this process's own, told to
    :meth:`observe_stage`. A store that cannot be read shows as ``conclad_store_up 0``. With a
    ``group`` every figure has it as a label.

    >>> import tempfile, urllib.request
    >>> store = Store.open(tempfile.mkdtemp())
    >>> with Exporter(store, MetricsSection(port=0)) as exporter:
    ...     page = urllib.request.urlopen(exporter.url).read().decode()
    >>> "conclad_monitor_running 0.0" in page
    True
    >>> store.close()
    """

    def __init__(self, store: Store, settings: MetricsSection, *, group: str | None = None) -> None:
        self._store = store
        self._settings = settings
        self._registry = CollectorRegistry()
        self._stages = Histogram(
            STAGES.name, STAGES.help, STAGES.labels, buckets=STAGE_BUCKETS, registry=None
        )
        self._truth = _StoreCollector(store, settings)
        for collector in (
            self._truth,
            _WithoutCreated(self._stages),
            ProcessCollector(registry=None),
        ):
            self._registry.register(collector if group is None else _Labelled(collector, group))
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def registry(self) -> CollectorRegistry:
        return self._registry

    @property
    def url(self) -> str | None:
        """Where the page is; nothing while it is not served."""
        if self._server is None:
            return None
        host = self._settings.host
        host = "127.0.0.1" if host in ("", "0.0.0.0") else host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_port}/metrics"

    def start(self) -> str | None:
        """Begin to serve and say where; None where the metrics are turned off."""
        if not self._settings.enabled or self._server is not None:
            return self.url
        host, port = self._settings.host, self._settings.port
        try:
            self._server = make_server(
                host,
                port,
                _named(host, _routes(self._registry, self._is_alive)),
                _server_class(host),
                _Quiet,
            )
        except (OSError, OverflowError) as error:
            raise MetricsUnavailable(
                f"metrics cannot be served on {host}:{port} ({error}); choose another address with "
                "metrics.host and metrics.port, or turn them off with metrics.enabled=false"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="conclad-metrics", daemon=True
        )
        self._thread.start()
        return self.url

    def close(self) -> None:
        """Stop serving; harmless when nothing was."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join()

    def _is_alive(self) -> bool:
        if self._truth.outages is not None and self._truth.outages.is_waiting():
            return True  # it waits on purpose; starting it again would not bring anything back
        try:
            with self._store.reading() as tx:
                lease = tx.leases.get(COORDINATOR_LEASE)
                return lease is not None and lease.is_held(tx.now)
        except _UNREADABLE:
            return False

    def show_outages(self, outages: Outages) -> None:
        """Show what the monitor of this process waits for, also while nothing can be written."""
        self._truth.outages = outages

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Note how long a stage took: decode, embed, score, commit, …"""
        self._stages.labels(stage).observe(seconds)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Found:
    """What the store said, what it said is away, and when it had answered."""

    families: Sequence[Family] = ()
    away: frozenset[ErrorKind] = frozenset()
    at: float = float("-inf")


_NOTHING = _Found()


class _StoreCollector(Collector):
    """Looks at the store when somebody asks, but not more often than makes sense."""

    def __init__(self, store: Store, settings: MetricsSection) -> None:
        self._store = store
        self._reader = StoreSummaryReader(store)
        self._cap = Cap(store, settings.sources_most)
        self._settings = settings
        self.outages: Outages | None = None
        self._lock = threading.Lock()
        self._page: tuple[Metric, ...] = ()
        self._read_at = float("-inf")
        self._reading: threading.Thread | None = None
        self._found = _NOTHING

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                self._page = tuple(as_metric(family) for family in self._look())
                self._read_at = time.monotonic()
            return self._page

    def _look(self) -> Iterator[Family]:
        began = time.monotonic()
        found = self._ask()
        seconds = time.monotonic() - began
        yield from page_families(
            self._settings,
            store_up=bool(found.families),
            seconds=seconds,
            disk=disk_of(self._store),
            away=found.away | {outage.kind for outage in self.outages.current()}
            if self.outages
            else found.away,
        )
        yield from found.families

    def _ask(self) -> _Found:
        """What the store says; nothing if it fails, or has not answered for a while.

        A server that hangs is asked once, by a thread that nobody waits for any longer. What a
        slow one answers after a page has gone is shown by the next one.
        """
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read, name="conclad-truth", daemon=True)
            self._reading.start()
        self._reading.join(PATIENCE_SECONDS)
        found = self._found
        if self._reading.is_alive() and time.monotonic() - found.at >= YOUNG_SECONDS:
            return _NOTHING
        return found

    def _read(self) -> None:
        found = _NOTHING
        with suppress(*_UNREADABLE):
            try:
                truth = self._reader.read()
                shown = self._cap.apply(truth.sources)
                away = frozenset(outage.kind for outage in truth.outages)
                found = _Found(tuple(families(truth, shown)), away, time.monotonic())
            finally:
                self._found = found
            # A store that is read and cannot be written just now is tried again at the next look.
            self._reader.keep_pace()


class _WithoutCreated(Collector):
    """Prometheus has no use for the moment at which a process-local series was made."""

    def __init__(self, inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


class _Labelled(Collector):
    """Adds the label ``group`` to every metric."""

    def __init__(self, inner: Collector, group: str) -> None:
        self._inner, self._group = inner, group

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            labelled = Metric(metric.name, metric.documentation, metric.type)
            labelled.samples = [
                s._replace(labels={**s.labels, "group": self._group}) for s in metric.samples
            ]
            yield labelled


def as_metric(family: Family) -> Metric:
    """In the form that prometheus-client writes out."""
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, buckets in (family.buckets or {}).items():
            histogram.add_metric(labels, buckets, sum_value=family.values[labels])
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.values.items():
        metric.add_metric(labels, value)
    return metric


def _routes(
    registry: CollectorRegistry, is_alive: Callable[[], bool]
) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    # Uncompressed: the usual reader is on the same machine, and packing costs more than sending.
    metrics = make_wsgi_app(registry, disable_compression=True)

    def app(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            # Always the plain text format: every Prometheus reads it, and with a thousand
            # sources it is written in half the time that OpenMetrics takes.
            page: Iterable[bytes] = metrics({**environ, "HTTP_ACCEPT": "text/plain"}, start)
            return page
        if path == "/alive":
            alive = is_alive()
            said = "200 OK" if alive else "503 Service Unavailable"
            start(said, [("Content-Type", "text/plain")])
            return [b"ok\n" if alive else b"no monitor holds the lease on this state\n"]
        found = path == "/healthz"
        start("200 OK" if found else "404 Not Found", [("Content-Type", "text/plain")])
        return [b"ok\n" if found else b"the metrics are at /metrics\n"]

    return app


def _named(
    host: str, app: Callable[[Environ, StartResponse], Iterable[bytes]]
) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    """On loopback, answer only to names of this machine: a web page may point another one at us."""
    if host not in _LOOPBACK:
        return app  # reached by whatever name; who may reach it is the network's business

    def checked(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        name = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname
        if name not in _LOOPBACK:
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this host name is not the monitor's\n"]
        return app(environ, start)

    return checked


class _Server(ThreadingMixIn, WSGIServer):
    """Slow readers do not delay others, and no reader keeps the process alive."""

    daemon_threads = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._room = threading.BoundedSemaphore(MOST_READERS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


def _server_class(host: str) -> type[WSGIServer]:
    if ":" not in host:
        return _Server

    class _Server6(_Server):
        address_family = socket.AF_INET6

    return _Server6


class _Quiet(WSGIRequestHandler):
    """A line in the log for every scrape would be all that the log says."""

    # A reader that connects and says nothing must not hold a thread for ever.
    timeout = 5

    def log_message(self, format: str, *args: Any) -> None:
        return
