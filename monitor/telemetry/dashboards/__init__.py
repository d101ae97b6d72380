"""The Grafana dashboards, as code: ``scripts/dashboards`` writes them to ``deploy/grafana``."""

from monitor.telemetry.dashboards.detector import detector
from monitor.telemetry.dashboards.model import Board, to_json
from monitor.telemetry.dashboards.overview import overview
from monitor.telemetry.dashboards.pipeline import pipeline
from monitor.telemetry.dashboards.source import source

BOARDS = (overview(), detector(), pipeline(), source())

__all__ = ["BOARDS", "Board", "to_json"]
