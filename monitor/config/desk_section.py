"""The section of the desk."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field, field_validator

from monitor.config.value_types import AsTuple, Section

RoleWord = Literal["reader", "annotator", "admin"]


class ProxySection(Section):
    """People who are signed in by a proxy (oauth2-proxy, Authelia)."""

    user_header: str | None = Field(
        default=None,
        description="The header with the person's name, such as X-Forwarded-User or "
        "Remote-User; without it no proxy is accepted.",
    )
    groups_header: str | None = Field(
        default=None,
        description="The header with the person's groups, separated by commas.",
    )
    addresses: Annotated[tuple[str, ...], AsTuple] = Field(
        default=("127.0.0.1/32", "::1/128"),
        description="Addresses or networks of the proxies; headers from all others are ignored.",
    )
    roles: dict[str, RoleWord] = Field(
        default_factory=dict,
        description="Roles by group or by name, such as {operators: admin}; the highest counts.",
    )
    default_role: RoleWord | None = Field(
        default=None,
        description="The role of people without one by group or name; without it they are refused.",
    )

    @field_validator("addresses")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ip_network(one)
            except ValueError as error:
                raise ValueError(f"{one}: no address or network, such as 10.0.0.0/8") from error
        return value


class OpenIdSection(Section):
    """Signing in with OpenID Connect; needs the extra 'oidc'."""

    issuer: str | None = Field(
        default=None,
        description="The address of the provider, such as "
        "https://login.example.org/realms/main; without it OpenID Connect is off.",
    )
    client_id: str = Field(
        default="conclad", description="The client id of the desk at the provider."
    )
    client_secret_file: str | None = Field(
        default=None, description="A file that holds the client's secret."
    )
    scopes: str = Field(
        default="openid profile email", description="The scopes that are requested."
    )
    name_claim: str = Field(
        default="preferred_username",
        description="The claim with the name that answers are recorded under.",
    )
    groups_claim: str = Field(default="groups", description="The claim that lists groups.")
    roles: dict[str, RoleWord] = Field(
        default_factory=dict,
        description="Roles by group or by name, such as {operators: admin}; the highest counts.",
    )
    default_role: RoleWord | None = Field(
        default=None,
        description="The role of people without one by group or name; without it they are refused.",
    )


class DeskSection(Section):
    """The web page where people answer questions."""

    enabled: bool = Field(
        default=True,
        description="Serve the desk together with 'conclad run'; 'conclad desk' always does.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="The address it listens on. Anything but loopback needs a token first: "
        "conclad tokens add NAME.",
    )
    port: int = Field(default=8484, ge=0, le=65535, description="0 takes any free port.")
    address: str | None = Field(
        default=None,
        description="The address that people use if there is a proxy in front, such as "
        "https://desk.example.org; other host names are refused.",
    )
    lease_seconds: int = Field(
        default=120,
        ge=5,
        le=86400,
        description="How long a question is shown to one person only, after they last looked at "
        "it.",
    )
    shown: int = Field(
        default=60, ge=1, le=500, description="Questions that are shown to one person at once."
    )
    keep_pictures_days: int | None = Field(
        default=90,
        ge=1,
        description="Pictures of questions are deleted this long after their round has ended; "
        "null keeps them.",
    )
    proxy: ProxySection = ProxySection()
    oidc: OpenIdSection = OpenIdSection()

    @property
    def knows_people(self) -> bool:
        """Whether people can sign in without a token."""
        return self.proxy.user_header is not None or self.oidc.issuer is not None
