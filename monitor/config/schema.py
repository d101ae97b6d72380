"""Everything that can be set, in the order of the data flow.

A description is what a person reads in the file and on the reference page: what it does, and
what to think of when changing it. Keys exist only for behaviour that exists.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from monitor.config.suggest import nearest
from monitor.config.values import AsTuple, Section


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


class Bands(Section):
    """Which bands of a multi-band TIFF are shown; other images are not touched by it."""

    mapping: Annotated[tuple[int, int, int], AsTuple] | None = Field(
        default=None,
        description="The bands that become red, green and blue, counted from 1, such as "
        "[4, 3, 2]. Without it multi-band images are rejected.",
    )
    stretch: Annotated[tuple[float, float], AsTuple] = Field(
        default=(0.0, 3000.0), description="Which values become black and white."
    )
    unit: Literal["value", "percentile"] = Field(
        default="value",
        description="'value' keeps brightness comparable between images; 'percentile' stretches "
        "each by itself.",
    )


class Feed(Section):
    """Where the images come from, and how they are read."""

    path: str = Field(
        default="feed",
        description="Folder or bucket of Parquet files: a path, s3://… or gs://… . Scored when "
        "'conclad score' is given no files.",
    )
    columns: Columns = Columns()
    default_source: str | None = Field(
        default=None,
        description="The source of rows that name none, neither in a column nor by a folder "
        "'source_id=…'. Without it, the name of the folder that holds the file.",
    )
    max_pixels: int = Field(
        default=8192 * 8192,
        ge=1,
        le=178_956_970,
        description="Larger images are rejected before they are decoded.",
    )
    bands: Bands = Bands()


class Backbone(Section):
    """What turns an image into features. A detector only understands those it was fitted on."""

    name: str = Field(
        default="embedded",
        description="'embedded' needs no download; 'dino-vits16', 'swav-resnet50', or any name "
        "that timm knows. NAME+multi also looks at earlier layers.",
    )
    weights: str | None = Field(
        default=None,
        description="A .safetensors or .pth file, in place of the weights that the name stands "
        "for.",
    )
    sha256: str | None = Field(
        default=None, description="The hash that the weights must have; others are refused."
    )
    engine: Literal["auto", "cuda", "openvino", "torch"] = Field(
        default="auto",
        description="'auto' takes a GPU if there is one, else OpenVINO if installed, else torch.",
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="'auto' is float32 on a CPU and float16 on a GPU. Fit and score with the same.",
    )
    threads: int | None = Field(
        default=None, ge=1, description="For CPUs; by default as many as the process may use."
    )


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


class Fit(Section):
    """How the first detector is made."""

    seed: int = Field(
        default=0, ge=0, description="Decides which images are held out to calibrate T_inner."
    )


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
    backbone: Backbone = Backbone()
    novelty: Novelty = Novelty()
    fit: Fit = Fit()
    state: State = State()
