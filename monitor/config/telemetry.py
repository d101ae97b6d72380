"""What the operator is shown, and who is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from monitor.config.values import AsTuple, Section

#: What is worth a message to somebody else's system.
WEBHOOK_EVENTS = ("class.discovered", "queries.opened", "drift.detected", "detector.updated")


class Metrics(Section):
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
    desk_url: str = Field(
        default="http://localhost:8484",
        description="Where people reach the desk; alerts link to it.",
    )
    grafana_url: str = Field(
        default="http://localhost:3000",
        description="Where people reach Grafana; alerts link to its dashboards.",
    )
    runbooks_url: str = Field(
        default="docs/runbooks",
        description="Where people find the runbooks; alerts link to the page of each.",
    )


class Webhooks(Section):
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
