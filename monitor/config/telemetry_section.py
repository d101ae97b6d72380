"""Metrics, messages to people, and webhooks."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from monitor.config.value_types import AsTuple, Section

#: The events that are sent to webhooks by default.
WEBHOOK_EVENTS = ("class.discovered", "questions.opened", "drift.detected", "detector.updated")


class MetricsSection(Section):
    """The page that Prometheus reads."""

    enabled: bool = Field(default=True, description="Serve metrics for Prometheus.")
    host: str = Field(
        default="127.0.0.1",
        description="The address to listen on; '0.0.0.0' lets other machines read the page, "
        "which shows the names of your sources and classes without a password.",
    )
    port: int = Field(default=9464, ge=0, le=65535, description="0 takes any free port.")
    sources_most: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Sources with metrics of their own; all others are added up as 'other'.",
    )
    desk_url: str | None = Field(
        default=None,
        description="Where people reach the desk; alerts and messages link to it. By default "
        "desk.address, or else localhost and desk.port.",
    )
    grafana_url: str = Field(
        default="http://localhost:3000",
        description="Where people reach Grafana; alerts link to its dashboards.",
    )
    runbooks_url: str = Field(
        default="docs/runbooks",
        description="Where people find the runbooks; alerts link to the page of each.",
    )


#: The events that people get messages about by default.
MESSAGE_EVENTS = (
    "class.discovered",
    "questions.opened",
    "drift.detected",
    "detector.held",
    "pool.unresolved",
    "budget.exhausted",
)


class MessagesSection(Section):
    """Messages to people by chat, phone notification and mail."""

    targets: Annotated[tuple[str, ...], AsTuple] = Field(
        default=(),
        description="The addresses of the messages: slack+https://…, teams+https://…, "
        "mattermost+https://…, discord+https://…, ntfy+https://…, webhook+https://… "
        "(signed JSON), smtp://user:password@host:587/?from=A&to=B,C, smtps://…, or "
        "file:PATH, a file that contains such an address.",
    )
    secret_file: str | None = Field(
        default=None,
        description="A file with the secret that signs webhook+ messages (HMAC-SHA256).",
    )
    events: Annotated[tuple[str, ...], AsTuple] = Field(
        default=MESSAGE_EVENTS, description="The kinds of event that are sent."
    )
    urgent: Annotated[tuple[str, ...], AsTuple] = Field(
        default=("class.discovered",),
        description="The kinds of event that are sent at once, also during quiet hours.",
    )
    digest_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Events within this time are sent as one message; 0 sends each at once.",
    )
    quiet_hours: str | None = Field(
        default=None,
        pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$",
        description="When only urgent events are sent, such as 22:00-07:00; the others are sent "
        "afterwards.",
    )
    timezone: str = Field(
        default="UTC", description="The time zone of quiet_hours, such as Europe/Berlin."
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, description="How long a target may take to respond."
    )
    give_up_hours: float = Field(
        default=24.0,
        gt=0,
        description="Messages that could not be delivered for this long are dropped.",
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{value}: no such time zone; write one such as UTC") from error
        return value


class WebhooksSection(Section):
    """Addresses that events are sent to."""

    urls: Annotated[tuple[str, ...], AsTuple] = Field(
        default=(), description="Each event is sent to each of these by POST, as JSON."
    )
    secret_file: str | None = Field(
        default=None,
        description="A file with the secret that signs the events (HMAC-SHA256); without it "
        "they are not signed.",
    )
    events: Annotated[tuple[str, ...], AsTuple] = Field(
        default=WEBHOOK_EVENTS, description="The kinds of event that are sent."
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, description="How long a receiver may take to respond."
    )
    give_up_hours: float = Field(
        default=24.0,
        gt=0,
        description="Events that could not be delivered for this long are dropped.",
    )

    @field_validator("urls")
    @classmethod
    def _web_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url}: a webhook begins with http:// or https://")
        return value
