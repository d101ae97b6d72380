"""Who does the work: the section of actors, their number and their places."""

from __future__ import annotations

from pydantic import Field

from monitor.config.value_types import Section


class RunSection(Section):
    """How the monitor works through the feed: which actors, how many, and where."""

    address: str = Field(
        default="local",
        description="The Ray that 'conclad run' uses: 'local' starts one, 'auto' or HOST:PORT "
        "joins a cluster, 'none' does the work in the one process.",
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
        description="Lets their number follow the feed, from run.embedders (then 1 by default) up "
        "to this; without it the number is fixed.",
    )
    lag_seconds: float = Field(
        default=60.0,
        gt=0,
        description="With run.embedders_most: embedders are added while what waits would take "
        "longer than this.",
    )
    idle_seconds: float = Field(
        default=300.0,
        gt=0,
        description="With run.embedders_most: embedders that were not needed for this long are let "
        "go, after what they have in hand.",
    )
    scorers: int = Field(default=1, ge=1, description="Actors that score features.")
    embedder_cpus: float | None = Field(
        default=None,
        ge=0,
        description="CPU cores of an embedder, which is also how many threads it computes with; by "
        "default 1 beside a GPU, else the cores divided among the embedders.",
    )
    embedder_gpus: float | None = Field(
        default=None,
        ge=0,
        description="GPUs of an embedder, fractions allowed; by default 1 where the cluster has "
        "any.",
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
        description="Ray resources that scorers, the querier and the updater take, such as {CPU: "
        "0.5}; by default nothing, together on a node that computes and has no GPU.",
    )
    helper_labels: dict[str, str] = Field(
        default_factory=dict, description="Labels that their nodes must have."
    )
    in_flight: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Batches that wait at each embedder beyond those in work; more hides longer "
        "delays of the network and takes more memory.",
    )
    poll_seconds: float = Field(
        default=0.5,
        gt=0,
        description="How often the feed is listed; a listing that takes long is made less often.",
    )
    tries: int = Field(
        default=4,
        ge=1,
        description="How often a batch must have cost a worker its life before it is quarantined; "
        "oftener where workers die anyway, so that no batch is blamed for chance.",
    )
    grace_seconds: float = Field(
        default=30.0, ge=0, description="How long batches in flight may take after SIGTERM."
    )
    resources_seconds: float = Field(
        default=120.0,
        ge=0,
        description="How long to wait for a cluster that does not have what the actors ask for; an "
        "autoscaler may need minutes.",
    )
    seed: int = Field(default=0, ge=0, description="Of everything that the monitor draws by lot.")
