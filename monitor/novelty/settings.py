"""Every number of the method, by name, with the two presets that users choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from monitor.novelty.errors import InvalidSettings

Labeller = Literal["linear", "graph"]
Query = Literal["ambiguous", "top", "random"]
Score = Literal["opinions", "fre"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a detector and of its inner loop.

    The defaults are the preset ``robust``. ``paper`` follows the text of the paper as literally
    as it can be followed.

    >>> Settings.preset("paper").variance
    0.995
    >>> Settings.preset("robust").replace(query="random").query
    'random'
    """

    # What a class is.
    variance: float = 0.90  # share of variance that a subspace keeps; 0.995 overfits small classes
    squared: bool = True  # FRE² instead of FRE: the same order, another T_inner
    least: int = 10  # samples of a class below which fitting it is refused
    # What known samples look like to a detector that has not seen them.
    folds: int = 10  # every sample is judged by a fit without its fold; 0 holds samples out instead
    validation: float = 0.10  # share of a class that is held out where there are no folds
    references_most: int = 400  # such samples kept per class, so that memory stays bounded
    # The verdict on a single sample.
    score: Score = "opinions"  # the mean of several standardised opinions; or FRE alone
    false_novel: float = 0.06  # share of references above T_inner; of fresh known samples about 5%
    deviations: float = 2.0  # by FRE alone, T_inner is the mean plus so many standard deviations
    own_scale: int = 100  # samples of a class at which its own scale weighs as much as that of all
    # The inner loop.
    labeller: Labeller = "graph"  # who gives pseudo-labels: a linear layer, or the pool's graph
    query: Query = "ambiguous"  # which samples are asked about once something new is known
    first_share: float = 1.0  # share of the budget spent on finding classes, before borders
    one_shot: bool = False  # ask that share at once; else in three parts, each using the last
    rounds: int = 5  # rounds in which the rest of the budget is spent
    iterations: int = 10  # iterations at most, whatever is still above T_inner
    pseudo_labels: bool = True  # without them, only answers make the new classes
    # The linear labeller of the paper.
    alpha: float = 0.20  # share of those above T_inner that an iteration pseudo-labels
    learning_rate: float = 1e-3
    batch: int = 10
    epochs: int = 5
    # The graph labeller.
    whitening: float = 0.6  # shrinkage of the within-class covariance towards a sphere
    principal: int = 100  # dimensions in which neighbours are looked for
    neighbours: int = 10
    propagation: float = 0.8  # how far a label travels from neighbour to neighbour
    confidence: float = 0.3  # share of a sample's label mass that its class must have
    keep: float = 0.9  # share of a class's pseudo-labels that is kept, the surest first
    mind_shift: bool = True  # answers of "known" that agree on a shift move all known classes
    # When to believe that nothing is new.
    quiet_labels: int = 8  # answers, none of them new, after which the loop stops
    # The look at a whole pool, before anybody is asked.
    components: int = 50  # main directions of pool and references in which neighbours are sought
    smoothing: float = 0.8  # weight of the neighbourhood against a sample's own value
    smoothing_steps: int = 12  # until less than a tenth of the own value would still move
    parts: int = 5  # in which samples take turns, so that nobody vouches for themselves
    permutations: int = 100  # of who came with the feed; the tail is normal, so few are enough
    alone: float = 0.5  # weight of "the feed brings more of this" beside "this looks unusual"
    sharpen: bool = True  # a discriminant between what seems new and known joins the pool's score
    false_novel_pool: float = 0.045  # share of references above its border; of the pool about 5%

    def __post_init__(self) -> None:
        for name, values in (("labeller", Labeller), ("query", Query), ("score", Score)):
            if getattr(self, name) not in get_args(values):
                raise InvalidSettings(
                    f"{name}: {getattr(self, name)!r} is none of {', '.join(get_args(values))}"
                )
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidSettings(f"{name}: {value} is not between {low} and {high}")

    @classmethod
    def preset(cls, name: str) -> Settings:
        if name not in _PRESETS:
            raise InvalidSettings(f"no preset {name!r}; there are {', '.join(_PRESETS)}")
        return cls(**_PRESETS[name])

    def replace(self, **changes: Any) -> Settings:
        return replace(self, **_known(changes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """From what a detector was saved with.

        >>> Settings.from_dict({"variance": 0.95}).variance
        0.95
        """
        return cls(**_known(data))


_PRESETS: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": {
        "variance": 0.995,
        "squared": False,
        "folds": 0,
        "score": "fre",
        "labeller": "linear",
        "first_share": 0.5,
        "one_shot": True,
    },
}

_RANGES: tuple[tuple[str, float, float], ...] = (
    ("variance", 0.01, 1.0),
    ("least", 2, 10**9),
    ("validation", 0.01, 0.9),
    ("folds", 0, 10**6),
    ("references_most", 2, 10**9),
    ("false_novel", 1e-6, 0.5),
    ("false_novel_pool", 1e-6, 0.5),
    ("deviations", 0.0, 100.0),
    ("own_scale", 0, 10**9),
    ("first_share", 0.01, 1.0),
    ("rounds", 0, 10**6),
    ("iterations", 1, 10**6),
    ("alpha", 0.001, 1.0),
    ("learning_rate", 1e-8, 10.0),
    ("batch", 1, 10**6),
    ("epochs", 1, 10**6),
    ("whitening", 0.001, 1.0),
    ("principal", 1, 10**6),
    ("neighbours", 1, 10**6),
    ("propagation", 0.0, 0.999),
    ("confidence", 0.0, 1.0),
    ("keep", 0.01, 1.0),
    ("quiet_labels", 1, 10**9),
    ("components", 2, 10**6),
    ("smoothing", 0.0, 0.999),
    ("smoothing_steps", 1, 10**6),
    ("parts", 2, 10**6),
    ("permutations", 20, 10**6),
    ("alone", 0.0, 100.0),
)


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are, or an error that names the nearest one."""
    names = [f.name for f in fields(Settings)]
    for key in data:
        if key not in names:
            near = get_close_matches(key, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidSettings(f"no setting {key!r}{hint}")
    return dict(data)
