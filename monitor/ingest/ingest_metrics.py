"""What Prometheus reads of a running ingest: images by source, and cameras that are silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.ingest.cameras import CameraState
from monitor.ingest.errors import OptionRefused
from monitor.ingest.ingest_tally import Tally


class IngestCollector(Collector):
    """Reads the figures when it is asked, so that nothing has to be kept twice."""

    def __init__(self, tally: Tally, cameras: Sequence[CameraState]) -> None:
        self._tally, self._cameras = tally, cameras

    def collect(self) -> Iterator[Metric]:
        yield _by_source(
            CounterMetricFamily(
                "conclad_ingest_images", "Images brought into the feed.", labels=["source"]
            ),
            dict(self._tally.by_source),
        )
        yield CounterMetricFamily(
            "conclad_ingest_left_out",
            "Files, rows and tiles that gave no image.",
            value=sum(self._tally.left_out.values()),
        )
        yield GaugeMetricFamily(
            "conclad_ingest_waiting_for_space",
            "1 while ingest waits because the disk is nearly full.",
            value=float(self._tally.waits_for_space),
        )
        states = self._cameras
        yield _by_source(
            GaugeMetricFamily(
                "conclad_ingest_silent_seconds",
                "Seconds since the last frame of a camera.",
                labels=["source"],
            ),
            {state.source_id: state.silent_seconds() for state in states},
        )
        yield _by_source(
            GaugeMetricFamily(
                "conclad_ingest_connected", "1 while a camera sends frames.", labels=["source"]
            ),
            {state.source_id: float(state.is_connected) for state in states},
        )
        yield _by_source(
            CounterMetricFamily(
                "conclad_ingest_reconnects",
                "How often a camera had to be opened again.",
                labels=["source"],
            ),
            {state.source_id: state.reconnects for state in states},
        )


def serve(address: str, tally: Tally, cameras: Sequence[CameraState]) -> None:
    """Serve the metrics at HOST:PORT until the process ends."""
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(IngestCollector(tally, cameras))
    try:
        start_http_server(int(port), host or "127.0.0.1", registry)
    except (ValueError, OverflowError) as error:
        raise OptionRefused(f"--metrics {address}: give HOST:PORT, such as :9108") from error
    except OSError as error:
        raise OptionRefused(
            f"--metrics {address}: cannot be served ({error.strerror}); choose another port"
        ) from error


def _by_source(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]
) -> Metric:
    for source, value in values.items():
        family.add_metric([source], value)
    return family
