"""The section of the actors: their number and their placement."""

from __future__ import annotations

from pydantic import Field

from monitor.config.value_types import Section


class RunSection(Section):
    """How the monitor processes the feed: its actors, their number and their placement."""

    address: str = Field(
        default="local",
        description="The Ray that 'conclad run' uses: 'local' starts one, 'auto' or HOST:PORT "
        "joins a cluster, 'none' does all work in one process.",
    )
    embedders: int | None = Field(
        default=None,
        ge=1,
        description="Actors that run the backbone; by default one for each GPU, else one for each "
        "node with CPUs.",
    )
    embedders_most: int | None = Field(
        default=None,
        ge=1,
        description="Lets the number of embedders follow the feed, from run.embedders (then 1 "
        "by default) up to this; without it the number is fixed.",
    )
    lag_seconds: float = Field(
        default=60.0,
        gt=0,
        description="With run.embedders_most: embedders are added while the waiting batches "
        "would take longer than this.",
    )
    idle_seconds: float = Field(
        default=300.0,
        gt=0,
        description="With run.embedders_most: embedders that were not needed for this long "
        "finish their batches and stop.",
    )
    scorers: int = Field(default=1, ge=1, description="Actors that score features.")
    embedder_cpus: float | None = Field(
        default=None,
        ge=0,
        description="CPU cores, and threads, of an embedder; by default 1 with a GPU, else the "
        "cores divided among the embedders.",
    )
    embedder_gpus: float | None = Field(
        default=None,
        ge=0,
        description="GPUs of an embedder, fractions allowed; by default 1 if the cluster has any.",
    )
    embedder_share: float | None = Field(
        default=None,
        gt=0,
        description="Groups of sources that set this share embedders, as far as their backbones "
        "are the same, and each gets this share of them while all have work; by default each "
        "group has embedders of its own.",
    )
    embedder_resources: dict[str, float] = Field(
        default_factory=dict,
        description="Further Ray resources that an embedder's node must have, such as "
        "{camera_site: 1}.",
    )
    embedder_labels: dict[str, str] = Field(
        default_factory=dict,
        description="Labels that an embedder's node must have, such as {region: north}, in Ray's "
        "notation for selectors.",
    )
    helper_resources: dict[str, float] = Field(
        default_factory=dict,
        description="Ray resources of scorers, the querier and the updater, such as {CPU: 0.5}; "
        "by default none, together on a node with CPUs and without a GPU.",
    )
    helper_labels: dict[str, str] = Field(
        default_factory=dict,
        description="Labels that the nodes of scorers, querier and updater must have.",
    )
    in_flight: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Batches that wait at each embedder; more hide longer network delays and "
        "take more memory.",
    )
    poll_seconds: float = Field(
        default=0.5,
        gt=0,
        description="How often the feed is listed; less often if a listing takes long.",
    )
    tries: int = Field(
        default=4,
        ge=1,
        description="Worker deaths on a batch before it is quarantined; more if workers also "
        "die on other batches, so that a batch is not quarantined by chance.",
    )
    grace_seconds: float = Field(
        default=30.0, ge=0, description="How long batches in flight may take after SIGTERM."
    )
    resources_seconds: float = Field(
        default=120.0,
        ge=0,
        description="How long to wait for a cluster that lacks the resources of the actors; an "
        "autoscaler may need minutes.",
    )
    seed: int = Field(default=0, ge=0, description="The seed of all random choices of the monitor.")
