"""The Grafana dashboards, as code: ``scripts/dashboards`` writes them to ``deploy/grafana``."""

from monitor.telemetry.dashboards.detector_dashboard import detector
from monitor.telemetry.dashboards.model import Board, to_json
from monitor.telemetry.dashboards.overview_dashboard import overview
from monitor.telemetry.dashboards.pipeline_dashboard import pipeline
from monitor.telemetry.dashboards.source_dashboard import source

BOARDS = (overview(), detector(), pipeline(), source())

__all__ = ["BOARDS", "Board", "to_json"]
