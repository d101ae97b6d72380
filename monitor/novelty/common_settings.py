"""The numbers that both presets share. Every number is a field with its reason and its range.

A detector carries the settings that it was fitted with. The two presets are
:class:`monitor.novelty.paper.paper_settings.PaperSettings` and
:class:`monitor.novelty.robust.robust_settings.RobustSettings`; :mod:`monitor.novelty.presets`
finds them by name, and ``docs/method-settings.md`` lists every number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from monitor.novelty.settings_group import SettingsGroup, setting
from monitor.novelty.trigger.trigger_settings import PoolNoveltySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings(SettingsGroup):
    """The space in which neighbours are sought, and how labels travel between them."""

    whitening: float = setting(
        0.6,
        "Shrinkage of the covariance within classes towards a sphere. With less, directions in "
        "which a few references happen not to vary dominate; at 1 nothing is whitened.",
        low=0.001,
        high=1.0,
    )
    principal: int = setting(
        100,
        "Main directions of the whitened pool that are kept. Fewer merge similar classes, more "
        "cost time in the neighbour search and add noise.",
        low=1,
    )
    neighbours: int = setting(
        10,
        "Nearest neighbours that each image is joined to. With few a class falls into pieces; with "
        "more than a small class has images, it is joined to its surroundings.",
        low=1,
    )
    sharpness: int = setting(
        3,
        "Power to which similarities are raised, so that the nearest neighbours weigh most. At 1 "
        "the tenth neighbour counts as much as the first.",
        low=1,
    )
    propagation: float = setting(
        0.8,
        "Share of a label's mass that moves on to the neighbours at each step. At 0 labels stay "
        "where they are; towards 1 every class floods the graph.",
        low=0.0,
        high=0.999,
    )
    propagation_steps: int = setting(
        40,
        "Steps of propagation. 0.8^40 of the mass would still move, far below what decides.",
        low=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSettings(SettingsGroup):
    """What a class is, how T_inner is calibrated, and what both inner loops need."""

    preset: ClassVar[str] = ""

    variance: float = setting(
        0.90,
        "Share of a class's variance that its subspace keeps. 0.995 overfits classes of a hundred "
        "images: their subspaces then reconstruct only what they were fitted on.",
        low=0.01,
        high=1.0,
    )
    squared: bool = setting(
        True,
        "FRE² instead of FRE. The order of images is the same; T_inner as mean plus deviations is "
        "another.",
    )
    least: int = setting(
        10,
        "Images of a class below which fitting it is refused: with fewer, neither its directions "
        "nor T_inner mean anything.",
        low=2,
    )
    validation: float = setting(
        0.10,
        "Share of a class that is held out where there is no cross-fitting. The paper's '0.1%' "
        "read as 10%: a thousandth of a class is no image at all.",
        low=0.01,
        high=0.9,
    )
    validation_least: int = setting(
        3,
        "Images of a class that are held out at least, and that fitting keeps at least. A class "
        "without held-out images would be unknown to whatever compares a pool with them.",
        low=1,
    )
    references_most: int = setting(
        400,
        "References kept of each class. Bounds memory and snapshots; quantiles settle long before.",
        low=2,
    )
    deviations: float = setting(
        2.0,
        "T_inner of FRE is the mean plus this many standard deviations (the paper's value). Lower "
        "calls known images new, higher misses new ones.",
        low=0.0,
        high=100.0,
    )
    pseudo_labels: bool = setting(
        True, "Spread answers to similar images. Without it only answered images make new classes."
    )
    missed_certainty: float = setting(
        0.95,
        "Certainty of the bound on what answers of 'known' may have missed. Reported only.",
        low=0.5,
        high=0.999,
    )
    provisional_share: float = setting(
        0.01,
        "Share of a pool below which a cluster makes no provisional class. Smaller ones are chance "
        "groups that nobody asked for.",
        low=0.0,
        high=1.0,
    )
    graph: GraphSettings = field(default_factory=GraphSettings)
    pool: PoolNoveltySettings = field(default_factory=PoolNoveltySettings)

    @property
    def folds(self) -> int:
        """Folds of cross-fitting; 0 holds images out instead."""
        return 0
