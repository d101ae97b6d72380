"""Everything that can be set, in the order of the data flow.

A description is what a person reads in the file and on the reference page: what it does, and
what to think of when changing it. Keys exist only for behaviour that exists.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from monitor.config.actors_section import RunSection
from monitor.config.desk_section import DeskSection
from monitor.config.key_suggestions import nearest
from monitor.config.telemetry_section import MessagesSection, MetricsSection, WebhooksSection
from monitor.config.value_types import AsTuple, Section


class ColumnsSection(Section):
    """The names of the columns in the feed; a dot selects a field of a struct."""

    image_id: str = Field(
        default="image_id", description="Text or integer, unique within a source."
    )
    captured_at: str = Field(
        default="captured_at", description="Timestamp or ISO 8601 text; UTC if it has no zone."
    )
    source_id: str = Field(
        default="source_id", description="The camera or station that the image comes from."
    )
    image: str = Field(
        default="image",
        description="Encoded bytes, or a struct with a field 'bytes'; paths are not read.",
    )
    label: str = Field(default="label", description="The class, if people gave one; needed to fit.")


class BandsSection(Section):
    """Which bands of a multi-band TIFF are used; other images are read as they are."""

    mapping: Annotated[tuple[int, int, int], AsTuple] | None = Field(
        default=None,
        description="The bands that become red, green and blue, counted from 1, such as "
        "[4, 3, 2]. Without it multi-band images are rejected.",
    )
    stretch: Annotated[tuple[float, float], AsTuple] = Field(
        default=(0.0, 3000.0), description="The values that become black and white."
    )
    unit: Literal["value", "percentile"] = Field(
        default="value",
        description="'value' keeps brightness comparable between images; 'percentile' stretches "
        "each by itself.",
    )


class FeedSection(Section):
    """Where the images come from, and how they are read."""

    path: str = Field(
        default="feed",
        description="Folder or bucket of Parquet files: a path, s3://… or gs://… . 'conclad "
        "score' without files scores all of it.",
    )
    columns: ColumnsSection = ColumnsSection()
    default_source: str | None = Field(
        default=None,
        description="The source of rows without one, neither in a column nor by a folder "
        "'source_id=…'. By default the name of the folder that holds the file.",
    )
    batch_rows: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Images that the monitor embeds, scores and commits at once. By default 32 on "
        "a CPU, where that is half a second's work, and 256 on a GPU or with 'reuse_unchanged: "
        "always'.",
    )
    reuse_unchanged: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether a frame that shows what an earlier frame of its source in the same "
        "batch shows shares that frame's features. 'auto' looks at a few frames of each source in "
        "a batch first; 'always' is for fixed cameras, and makes larger batches.",
    )
    max_pixels: int = Field(
        default=8192 * 8192,
        ge=1,
        le=178_956_970,
        description="Larger images are rejected before they are decoded.",
    )
    bands: BandsSection = BandsSection()


class BackboneSection(Section):
    """The network that computes features. A detector needs the backbone it was fitted with."""

    name: str = Field(
        default="embedded",
        description="'embedded' needs no download; 'dino-vits16', 'swav-resnet50', or any name "
        "of timm. NAME+depths also uses earlier layers.",
    )
    weights: str | None = Field(
        default=None,
        description="A .safetensors or .pth file to use instead of the weights of the named "
        "backbone.",
    )
    sha256: str | None = Field(
        default=None, description="The hash that the weights must have; others are refused."
    )
    engine: Literal["auto", "cuda", "openvino", "torch"] = Field(
        default="auto",
        description="'auto' uses a GPU if there is one, else OpenVINO if installed, else torch.",
    )
    precision: Literal["auto", "float32", "bfloat16", "int8", "float16"] = Field(
        default="auto",
        description="'auto': the precision of the detector. 'conclad fit' uses int8 or bfloat16 if "
        "the processor supports it and accuracy on the labelled images does not drop, else "
        "float32; float16 on a GPU.",
    )
    size: Annotated[int, Field(ge=32, le=1024)] | Literal["auto"] = Field(
        default="auto",
        description="Height and width of the backbone's input, in pixels. 'auto': the size of the "
        "detector. 'conclad fit' uses less than the backbone's own size for small images if "
        "accuracy on the labelled images does not drop.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads on a CPU; by default as many as the process may use.",
    )


class NoveltySection(Section):
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
    def _known_settings(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if not value:
            return value
        # Here rather than above: most commands never touch the method's own module.
        from monitor.novelty.errors import InvalidSettings
        from monitor.novelty.presets import preset_settings, settings_from_dict, settings_to_dict

        numbers = settings_to_dict(preset_settings(info.data.get("preset", "robust")))
        known = [name for name in numbers if name != "preset"]
        for name, chosen in value.items():
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
                raise PydanticCustomError(
                    "unknown_key", "unknown key; {hint}", {"key": name, "hint": hint}
                )
            try:
                settings_from_dict({**numbers, name: chosen})
            except InvalidSettings as error:
                raise PydanticCustomError(
                    "invalid_setting", "{why}", {"key": name, "why": str(error)}
                ) from None
        return value


class FitSection(Section):
    """How the first detector is made."""

    seed: int = Field(
        default=0,
        ge=0,
        description="Decides which images are left out of which fit to calibrate T_inner.",
    )


class PoolsSection(Section):
    """How scored images are collected and when people are asked about them."""

    size: int = Field(
        default=2000,
        ge=10,
        description="Images of a pool; it takes whole batches, so it may hold a few more.",
    )
    least: int = Field(
        default=100,
        ge=1,
        description="Images that a pool needs before its age or the end of '--once' closes it.",
    )
    age_hours: float = Field(
        default=24.0, gt=0, description="A pool that is not full closes after this time."
    )
    trigger: Literal["significant", "any"] = Field(
        default="significant",
        description="'significant': people are asked when a pool, or several together, hold "
        "more images that look new than chance explains. 'any': whenever one image "
        "is above T_inner.",
    )
    false_rounds_per_month: float = Field(
        default=1.0,
        ge=0,
        description="Needless rounds of questions in a month of this feed, at most on average, "
        "whatever the number of pools and sources. Each detector version may add a "
        "tenth of a round.",
    )
    look_minutes: float = Field(
        default=10.0,
        gt=0,
        description="A pool that fills slowly is inspected after this time, once it holds "
        "'least' images, and again whenever its size has doubled.",
    )
    waiting_most: int = Field(
        default=8,
        ge=1,
        description="Pools that may wait while people answer about another; if there are more, "
        "the oldest is given up as unresolved.",
    )
    unanswered: Literal["keep", "cluster"] = Field(
        default="keep",
        description="What happens to a pool that nobody answered about: 'keep' leaves it "
        "unresolved, 'cluster' makes provisional classes of it that a person can "
        "name later.",
    )
    keep_features_hours: float = Field(
        default=24.0,
        ge=0,
        description="How long the features of a settled pool are kept. During this time its map "
        "can be seen and its images can be named at the desk. About 5 kB per image.",
    )


class LabelsSection(Section):
    """How many questions people are asked."""

    budget: float = Field(
        default=0.0125,
        gt=0,
        le=1,
        description="Largest number of questions about a pool, as a share of its images.",
    )
    least: int = Field(
        default=8,
        ge=1,
        description="Questions that every pool may ask, however small. A class is confirmed by "
        "three answers, so with fewer a small pool cannot confirm two.",
    )
    most: int = Field(default=200, ge=1, description="Largest number of questions about one pool.")
    per_week: int = Field(
        default=1000,
        ge=0,
        description="Largest number of questions in any seven days; further pools wait.",
    )
    trickle_per_week: int = Field(
        default=21,
        ge=0,
        description="Part of per_week: questions in seven days about the images of a quiet feed "
        "that look newest, to find rare classes. With 0 a quiet feed asks nothing.",
    )
    probe: int = Field(
        default=3,
        ge=1,
        description="At most this many of the questions of trickle_per_week are about one pool; "
        "if an answer is new, the pool is asked about further.",
    )
    confirm_people: int = Field(
        default=2,
        ge=1,
        description="People who must have named a class before it is confirmed, if at least as "
        "many annotate; an image like an unconfirmed class gets its name and stays "
        "novel.",
    )
    timeout_hours: float = Field(
        default=72.0,
        gt=0,
        description="A round of questions ends after this time with the answers it has.",
    )
    oracle_column: str | None = Field(
        default=None,
        description="A column of the feed that answers instead of people, for evaluations.",
    )


class GateSection(Section):
    """The limits that a new detector version must meet; others are held for an operator."""

    false_novel_most: float = Field(
        default=0.15,
        ge=0,
        le=1,
        description="Largest share of held-out known images that it may call novel.",
    )
    stolen_most: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Largest share of a known class's images, those that were fitted or named by "
        "people, that may move to a new class; held back is what exceeds it beyond chance.",
    )
    least_labels: int = Field(
        default=1, ge=0, description="Answers by people that each new class must have."
    )


class DriftSection(Section):
    """How known classes are checked for drift, such as from a dirty lens or other light."""

    false_alarm_days: float = Field(
        default=30.0,
        ge=0.01,
        description="Days between two false alarms of a source, on average at least.",
    )
    quiet_pools: int = Field(
        default=20,
        ge=2,
        description="The first pools of a source, from which its normal appearance is learnt; "
        "they should cover day and night.",
    )
    least_images: int = Field(
        default=60,
        ge=10,
        description="Images of a source in one observation; smaller pools are combined.",
    )
    least_strength: float = Field(
        default=0.08,
        ge=0,
        description="The smallest shift that is reported, where 1 is the spread within a class.",
    )
    calm_pools: int = Field(
        default=3,
        ge=1,
        description="Consecutive pools that must look normal before a shift has ended.",
    )
    conditions: int = Field(
        default=4,
        ge=1,
        description="Different appearances that may be normal for one source, such as day and "
        "night.",
    )
    confirm_labels: int = Field(
        default=6,
        ge=0,
        description="Questions that may be asked about a shift without anything new, once for "
        "each shift.",
    )


class StateSection(Section):
    """Where the monitor keeps its state."""

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
    keep_digests_days: float = Field(
        default=30.0,
        gt=0,
        description="How long an image is remembered as seen; one that returns later is scored "
        "again. Some 30 bytes an image.",
    )
    keep_events_days: float = Field(
        default=90.0,
        gt=0,
        description="How long the timeline keeps what happens with every pool and restart. What "
        "people did and what was learnt is kept for good.",
    )


#: Names of folders, and parts of a database's name.
GroupName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class Config(Section):
    """The whole configuration.

    >>> Config().state.dir
    'state'
    """

    feed: FeedSection = FeedSection()
    backbone: BackboneSection = BackboneSection()
    novelty: NoveltySection = NoveltySection()
    fit: FitSection = FitSection()
    run: RunSection = RunSection()
    pools: PoolsSection = PoolsSection()
    labels: LabelsSection = LabelsSection()
    gate: GateSection = GateSection()
    drift: DriftSection = DriftSection()
    desk: DeskSection = DeskSection()
    state: StateSection = StateSection()
    metrics: MetricsSection = MetricsSection()
    webhooks: WebhooksSection = WebhooksSection()
    messages: MessagesSection = MessagesSection()
    groups: dict[GroupName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Groups of sources that learn separately, each with its own monitor: their "
        "names and the keys that differ, such as {harbour: {pools: {size: 500}}}. A "
        "group has a folder of its name in feed.path and in state.dir unless it "
        "sets others.",
    )
    group: GroupName | None = Field(
        default=None, description="The group that a command applies to; --group sets it."
    )

    @property
    def desk_url(self) -> str:
        """Where people reach the desk: as the configuration says, or where it listens.

        >>> Config().desk_url
        'http://localhost:8484'
        """
        listens = f"http://localhost:{self.desk.port}"
        return self.metrics.desk_url or self.desk.address or listens
