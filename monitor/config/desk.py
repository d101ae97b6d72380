"""The section of the desk."""

from __future__ import annotations

from pydantic import Field

from monitor.config.values import Section


class Desk(Section):
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
