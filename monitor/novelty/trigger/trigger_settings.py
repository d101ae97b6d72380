"""The numbers of the trigger: what a pool shows, when people are asked, what could be noticed."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.novelty.settings_group import SettingsGroup, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNoveltySettings(SettingsGroup):
    """How a whole pool is compared with references; part of a detector's settings."""

    components: int = setting(
        50,
        "Main directions of pool and references in which neighbours are sought. Few "
        "directions merge a small class with its surroundings.",
        low=2,
    )
    smoothing: float = setting(
        0.8,
        "Weight of the neighbourhood against an image's own value. At 0 hardly a pool is noticed "
        "by its strength.",
        low=0.0,
        high=0.999,
    )
    smoothing_steps: int = setting(
        12,
        "Steps of smoothing: after them less than a tenth of a value would still move (0.8^12).",
        low=1,
    )
    parts: int = setting(
        5,
        "Parts in which images take turns at being judged, so that none is its own evidence.",
        low=2,
    )
    permutations: int = setting(
        100,
        "Permutations of 'from the feed' and 'reference'. Only mean, deviation and skewness are "
        "taken from them, so few are enough; time is linear in them.",
        low=20,
    )
    alone: float = setting(
        0.5,
        "Weight of 'the feed brings more of this' beside 'this looks unusual' in the score of an "
        "image. At 0 the closed pool loses about a point of AUROC.",
        low=0.0,
        high=100.0,
    )
    sharpen: bool = setting(
        True,
        "Add a linear discriminant between what seems new and what is known to the score. Without "
        "it the closed pool loses about two points of AUROC.",
    )
    sharpen_components: int = setting(
        100,
        "Main directions that the discriminant works in: twice those of the graph, since it is "
        "regularised and the graph is not.",
        low=2,
    )
    sharpen_steepness: float = setting(
        2.0,
        "How sharply images are divided into seemingly new and known ones, per deviation of "
        "references. Harder borders make the discriminant repeat the score's mistakes.",
        low=0.01,
        high=100.0,
    )
    seems_new: float = setting(
        0.03,
        "Share of references beyond whose score an image seems new to the discriminant. Larger "
        "shares teach it known images as new.",
        low=1e-6,
        high=0.5,
    )
    sharpen_shrinkage: float = setting(
        0.3,
        "Shrinkage of the discriminant's covariance towards a sphere. Without it, pools smaller "
        "than its directions have no inverse.",
        low=0.001,
        high=1.0,
    )
    false_novel: float = setting(
        0.045,
        "Share of references above the border of 'novel' in a closed pool; of fresh known images "
        "about 5% are.",
        low=1e-6,
        high=0.5,
    )
    beside_most: int = setting(
        4000,
        "References that a pool is compared with at most. Bounds the neighbour search.",
        low=10,
    )
    beside_least: int = setting(
        20,
        "References of a class that stay, however rare it is in the pool. Fewer make a region of "
        "known images look empty of them.",
        low=1,
    )
    mixture_prior: float = setting(
        0.5,
        "Images of each class that are added to the confusion matrix, spread over all classes. At "
        "0 a class that was never confused has zeros, and EM cannot leave them.",
        low=1e-6,
    )
    blur: float = setting(
        0.01,
        "Added to the mass of feed and references in a neighbourhood. Without it, one without "
        "references is infinitely new.",
        low=1e-9,
        high=1.0,
    )
    source_least: int = setting(
        30,
        "Images of a source in a pool from which it is tested by itself. The sum over fewer is "
        "too skewed for its correction.",
        low=2,
    )
    skew: tuple[float, float] = setting(
        (0.1, 2.0),
        "Within these the skewness of the permutations is believed: a hundred of them estimate "
        "extremes badly, and at 0 the correction divides by it.",
        low=1e-3,
        high=10.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings(SettingsGroup):
    """The promise, the allowance, and how evidence of several pools is joined."""

    false_rounds_per_month: float = setting(
        1.0, "Needless rounds of questions in a month: the promise to people.", low=0.0
    )
    start_credit: float = setting(
        0.1,
        "Needless rounds that each detector version may cost in addition. Without it, the first "
        "pool after a change could never ask.",
        low=0.0,
    )
    trickle_per_week: int = setting(
        21, "Questions that a quiet feed may ask in a week: three a day.", low=0
    )
    probe: int = setting(3, "Of them, questions about one pool at most.", low=0)
    scarce: float = setting(
        0.5,
        "Share of the weekly allowance below which questions go only to pools that look newer than "
        "most. Higher saves questions for a surprise, lower spends them as pools come.",
        low=0.0,
        high=1.0,
    )
    recent: int = setting(
        20, "Pools that the next one is compared with when the allowance is scarce.", low=1
    )
    offset: float = setting(
        0.4,
        "Mean strength of clean pools. Real references helped to fit the classes that judge them: "
        "over 388 clean pools of EuroSAT and CIFAR-100 it was 0.4, where permutations have 0.",
        low=-10.0,
        high=10.0,
    )
    stretch: float = setting(
        1.2,
        "Deviation of the strength of clean pools, on the same 388 pools. At 1 the promise would "
        "be broken.",
        low=0.1,
        high=10.0,
    )
    windows: tuple[tuple[int, float], ...] = setting(
        ((1, 0.6), (2, 0.1), (4, 0.1), (8, 0.1), (16, 0.1)),
        "Pools that are judged together, and the part of the level that each window has; the parts "
        "sum to one. Most goes to single pools, where most is found; sixteen is as long as a "
        "source's habits stay the same.",
    )
    whole: float = setting(
        0.5,
        "Part of the level that the whole pool has; its sources share the rest. Towards 1 a class "
        "that only one camera sees is missed.",
        low=0.01,
        high=0.99,
    )
    habit: float = setting(
        0.5,
        "Weight of the latest pool without anything new in a source's habit. At 1 one odd pool "
        "decides, near 0 a change of habit asks again and again.",
        low=0.01,
        high=1.0,
    )
    sources_most: int = setting(
        1000, "Sources whose past is kept, the strongest first. Bounds what is stored.", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivitySettings(SettingsGroup):
    """How ``conclad fit`` estimates the smallest share of a pool that would be noticed."""

    classes_most: int = setting(
        6,
        "Classes that are left out in turn at most: time is linear in them.",
        low=1,
    )
    shares: tuple[float, ...] = setting(
        (0.05, 0.1, 0.2),
        "Shares in which they are hidden: around what users want to notice.",
        low=0.001,
        high=0.9,
    )
    certainty: float = setting(
        1.28,
        "Deviations by which a strength exceeds its mean in nine of ten pools (normal quantile).",
        low=0.0,
        high=10.0,
    )
    least: int = setting(
        12,
        "References that a class needs to be left out: half of them are fitted.",
        low=4,
    )
    hidden_least: int = setting(
        3, "Images that must be hidden for a pool to count: fewer show mostly chance.", low=1
    )
    references_most: int = setting(
        200, "References of a class that take part: the gain settles long before.", low=4
    )
    poor: float = setting(
        0.2,
        "A share that nobody would want to miss in one pool: above it, `fit` says what would help.",
        low=0.01,
        high=1.0,
    )
