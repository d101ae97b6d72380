"""What the operator is shown, and who is told."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from monitor.config.value_types import AsTuple, Section

#: What is worth a message to somebody else's system.
WEBHOOK_EVENTS = ("class.discovered", "questions.opened", "drift.detected", "detector.updated")


class MetricsSection(Section):
    """The page that Prometheus reads."""

    enabled: bool = Field(default=True, description="false: nothing listens.")
    host: str = Field(
        default="127.0.0.1",
        description="The address to listen on; '0.0.0.0' lets other machines read the page, which "
        "names your sources and classes and asks for no password.",
    )
    port: int = Field(default=9464, ge=0, le=65535, description="0 takes any free port.")
    sources_most: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Sources with figures of their own; those beyond are added up as 'other'.",
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


#: What people are told of unless they say otherwise.
MESSAGE_EVENTS = (
    "class.discovered",
    "questions.opened",
    "drift.detected",
    "detector.held",
    "pool.unresolved",
    "budget.exhausted",
)


class MessagesSection(Section):
    """Messages to people: chat, telephone and mail."""

    targets: Annotated[tuple[str, ...], AsTuple] = Field(
        default=(),
        description="Where they go: slack+https://…, teams+https://…, mattermost+https://…, "
        "discord+https://…, ntfy+https://…, webhook+https://… (signed JSON), "
        "smtp://user:password@host:587/?from=A&to=B,C, smtps://…, or file:PATH, whose content is "
        "such an address.",
    )
    secret_file: str | None = Field(
        default=None,
        description="A file that holds the secret that webhook+ messages are "
        "signed with (HMAC-SHA256).",
    )
    events: Annotated[tuple[str, ...], AsTuple] = Field(
        default=MESSAGE_EVENTS, description="The kinds of event that are told."
    )
    urgent: Annotated[tuple[str, ...], AsTuple] = Field(
        default=("class.discovered",),
        description="Of these, the kinds that neither gather nor wait for the morning.",
    )
    digest_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Events gather for so long and come as one message; 0 sends each at once.",
    )
    quiet_hours: str | None = Field(
        default=None,
        pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$",
        description="When nobody is disturbed, such as 22:00-07:00; what happens then comes after.",
    )
    timezone: str = Field(default="UTC", description="The zone of quiet_hours: Europe/Berlin.")
    timeout_seconds: float = Field(
        default=10.0, gt=0, description="How long a target may take to answer."
    )
    give_up_hours: float = Field(
        default=24.0, gt=0, description="What could not be delivered for this long is passed over."
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
    """Addresses that are told when something happens."""

    urls: Annotated[tuple[str, ...], AsTuple] = Field(
        default=(), description="Each event is sent to each of these by POST, as JSON."
    )
    secret_file: str | None = Field(
        default=None,
        description="A file that holds the secret with which messages are signed (HMAC-SHA256); "
        "without it they are not.",
    )
    events: Annotated[tuple[str, ...], AsTuple] = Field(
        default=WEBHOOK_EVENTS, description="The kinds of event that are sent."
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, description="How long a receiver may take to answer."
    )
    give_up_hours: float = Field(
        default=24.0,
        gt=0,
        description="An event that could not be delivered for this long is passed over.",
    )

    @field_validator("urls")
    @classmethod
    def _web_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url}: a webhook begins with http:// or https://")
        return value
