"""Everything that can be set, in the order of the data flow.

A description is what a person reads in the file and on the reference page: what it does, and
what to think of when changing it. Keys exist only for behaviour that exists.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from monitor.config.suggest import nearest
from monitor.config.values import Section


class Columns(Section):
    """How the feed names the columns of the contract; a dot reaches into a struct."""

    image_id: str = Field(
        default="image_id", description="Text or integer, unique within a source."
    )
    captured_at: str = Field(
        default="captured_at", description="Timestamp or ISO 8601 text; UTC where it names no zone."
    )
    source_id: str = Field(default="source_id", description="Which camera or station it came from.")
    image: str = Field(
        default="image",
        description="Encoded bytes, or a struct with a field 'bytes'; paths are not read.",
    )
    label: str = Field(
        default="label", description="The class, where people gave one; needed to fit."
    )


class Feed(Section):
    """Where the images come from."""

    path: str = Field(
        default="feed",
        description="Folder or bucket of Parquet files: a path, s3://… or gs://… . Scored when "
        "'conclad score' is given no files.",
    )
    columns: Columns = Columns()


class Novelty(Section):
    """The method."""

    preset: Literal["robust", "paper"] = Field(
        default="robust",
        description="'robust' is the better one everywhere we measured; 'paper' follows the "
        "published text.",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Single numbers of the method that differ from the preset, such as "
        "{variance: 0.95}.",
    )

    @field_validator("settings")
    @classmethod
    def _known_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value:
            # Here rather than above: most commands never touch the method's own module.
            from monitor.novelty.settings import Settings

            known = Settings.preset("robust").to_dict()
            for name in value:
                if name not in known:
                    near = nearest(name, known)
                    hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
                    raise PydanticCustomError(
                        "unknown_key", "unknown key; {hint}", {"key": name, "hint": hint}
                    )
        return value


class State(Section):
    """What the monitor remembers."""

    dir: str = Field(
        default="state",
        description="Folder for the ledger, detectors and verdicts; relative to where the command "
        "runs.",
    )
    url: str | None = Field(
        default=None,
        description="A PostgreSQL address (postgresql://user@host/name) in place of the SQLite "
        "file in state.dir.",
    )


class Config(Section):
    """The whole configuration.

    >>> Config().state.dir
    'state'
    """

    feed: Feed = Feed()
    novelty: Novelty = Novelty()
    state: State = State()
