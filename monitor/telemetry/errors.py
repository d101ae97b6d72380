"""Errors of metrics, messages and webhooks."""

from __future__ import annotations

from monitor.errors import ConcladError


class TelemetryError(ConcladError):
    """The root of everything this package refuses."""


class MetricsUnavailable(TelemetryError):
    """The page cannot be served where the configuration says."""


class WebhookRefused(TelemetryError):
    """The webhooks cannot be used as they are configured."""


class Undelivered(TelemetryError):
    """A message did not arrive, or was not accepted."""
