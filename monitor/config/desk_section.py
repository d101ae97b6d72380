"""The section of the desk."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field, field_validator

from monitor.config.value_types import AsTuple, Section

RoleWord = Literal["reader", "annotator", "admin"]


class ProxySection(Section):
    """People whom a proxy has signed in already (oauth2-proxy, Authelia)."""

    user_header: str | None = Field(
        default=None,
        description="The header that names them, such as X-Forwarded-User or Remote-User; without "
        "it no proxy is believed.",
    )
    groups_header: str | None = Field(
        default=None,
        description="The header that lists their groups, with commas between them.",
    )
    addresses: Annotated[tuple[str, ...], AsTuple] = Field(
        default=("127.0.0.1/32", "::1/128"),
        description="The proxies that are believed, by address or network; the headers of all "
        "others mean nothing.",
    )
    roles: dict[str, RoleWord] = Field(
        default_factory=dict,
        description="Roles by group or by name, such as {operators: admin}; the highest counts.",
    )
    default_role: RoleWord | None = Field(
        default=None,
        description="The role of whoever has none by group or name; without it they are refused.",
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
        description="The address of the provider, such as https://login.example.org/realms/main; "
        "without it there is none.",
    )
    client_id: str = Field(default="conclad", description="How the desk is registered there.")
    client_secret_file: str | None = Field(
        default=None, description="A file that holds the client's secret."
    )
    scopes: str = Field(default="openid profile email", description="What is asked for.")
    name_claim: str = Field(
        default="preferred_username", description="The claim under which answers are recorded."
    )
    groups_claim: str = Field(default="groups", description="The claim that lists groups.")
    roles: dict[str, RoleWord] = Field(
        default_factory=dict,
        description="Roles by group or by name, such as {operators: admin}; the highest counts.",
    )
    default_role: RoleWord | None = Field(
        default=None,
        description="The role of whoever has none by group or name; without it they are refused.",
    )


class DeskSection(Section):
    """The page where people answer."""

    enabled: bool = Field(
        default=True,
        description="Serve it together with 'conclad run'; 'conclad desk' always does.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="The address it listens on. Anything but loopback needs a token first: "
        "conclad tokens add NAME.",
    )
    port: int = Field(default=8484, ge=0, le=65535, description="0 takes any free port.")
    address: str | None = Field(
        default=None,
        description="How people reach it when a proxy stands in front, such as "
        "https://desk.example.org; other host names are refused.",
    )
    lease_seconds: int = Field(
        default=120,
        ge=5,
        le=86400,
        description="How long a question is shown to one person only, after they last looked.",
    )
    shown: int = Field(
        default=60, ge=1, le=500, description="Questions that one person is shown at once."
    )
    keep_pictures_days: int | None = Field(
        default=90,
        ge=1,
        description="Pictures of questions are deleted so long after their round has ended; "
        "nothing keeps them for ever.",
    )
    proxy: ProxySection = ProxySection()
    oidc: OpenIdSection = OpenIdSection()

    @property
    def knows_people(self) -> bool:
        """Whether people can sign in without a token."""
        return self.proxy.user_header is not None or self.oidc.issuer is not None
