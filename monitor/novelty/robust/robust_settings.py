"""The preset ``robust``: every number of the method that users get, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monitor.novelty.common_settings import MethodSettings
from monitor.novelty.settings_group import setting

#: The three views that tell new regions of a pool from known ones without a label.
VIEWS = ("direction", "residual", "reach")


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustSettings(MethodSettings):
    """The preset ``robust``.

    >>> RobustSettings().replace(query="random").query
    'random'
    >>> RobustSettings().replace(graph={"neighbours": 3}).graph.neighbours
    3
    """

    preset: ClassVar[str] = "robust"

    # The verdict on a single image.
    folds: int = setting(
        10,
        "Each reference is judged by a fit without its tenth. 0 holds images out instead: then a "
        "tenth of the references calibrates, and no pool is noticed.",
        low=0,
    )
    opinions: bool = setting(
        True,
        "The verdict is the mean of two standardised opinions. Without them S⁰ decides, the "
        "weakest of the scores that need no label.",
    )
    whitening: float = setting(
        0.6,
        "Shrinkage of the covariance within classes by which directions are whitened. See "
        "graph.whitening, which has the same reason.",
        low=0.001,
        high=1.0,
    )
    whitening_axes: int = setting(
        128,
        "Main directions of the spread within classes. The rest is nearly round, and each costs as "
        "much at every image as a component of a subspace.",
        low=1,
    )
    whitening_folds: int = setting(
        5,
        "Parts of the references that take turns at being left out of the whitening. It rests on "
        "all classes together, so that a fifth less makes little difference.",
        low=1,
    )
    judged_most: int = setting(
        4000,
        "References that take part in whitening and scales; the averages settle long before.",
        low=10,
    )
    far: float = setting(
        2.0,
        "Deviations of FRE that are not held against an image: what lies further beyond everything "
        "known is novel whatever its direction. At 0 FRE outvotes both opinions.",
        low=0.0,
        high=100.0,
    )
    own_scale: int = setting(
        30,
        "References of a class at which its own mean and deviation of an opinion weigh as much as "
        "those of all classes. At 100, images of a class of 30 exceed T_inner nearly twice as "
        "often as those of large classes.",
        low=0,
    )
    guessed_wider: float = setting(
        0.2,
        "How much wider the scale of a class is whose images were all pseudo-labelled, where it is "
        "the nearest: the surest images of a pool look tighter than their class. At 0 a class that "
        "was just learnt is called novel up to a quarter more often; 0.3 costs about half a point "
        "of what is new beside it.",
        low=0.0,
        high=10.0,
    )
    false_novel: float = setting(
        0.06,
        "Share of references above T_inner. Fresh known images, judged by fits of all images "
        "instead of nine tenths, exceed it about 5% of the time.",
        low=1e-6,
        high=0.5,
    )
    own_distribution: int = setting(
        20,
        "References of a class from which p_known uses that class alone. Of fewer, no share below "
        "5% can be measured.",
        low=1,
    )

    # Where a pool looks new, before anything has a name.
    views: tuple[str, ...] = setting(
        VIEWS,
        "What is added up: direction from every class mean, S⁰ against references of the nearest "
        "class, and how few references can be reached. Each finds classes that the others miss.",
        among=VIEWS,
    )
    smoothing: float = setting(
        0.8,
        "Weight of the neighbourhood in a view. At 0 questions go to single odd images.",
        low=0.0,
        high=0.999,
    )
    smoothing_steps: int = setting(
        20, "Steps of smoothing, until hardly anything moves (0.8^20 is 1%).", low=1
    )
    reach_floor: float = setting(
        1e-6,
        "Added to the reach of references before its logarithm. Larger blurs differences among "
        "regions that no reference reaches, at 0 they are infinite.",
        low=1e-12,
        high=1.0,
    )
    contrast: float = setting(
        2.0,
        "How much more an image counts among questions with each deviation that it looks newer "
        "(as an exponent). At 0 questions ignore the views, at 5 they see only the extremes.",
        low=0.0,
        high=20.0,
    )
    extreme: float = setting(
        3.5,
        "Deviations beyond which looking newer makes no more difference: a few corrupt images must "
        "not take all questions.",
        low=0.1,
        high=20.0,
    )
    steepness: float = setting(
        1.5,
        "How sharply covered and uncovered images are separated, per deviation. Steeper makes "
        "evidence into a verdict.",
        low=0.0,
        high=100.0,
    )
    least_evidence: float = setting(
        0.1,
        "The views move the odds of new against known by at most nine to one: they are evidence, "
        "never proof. 0.5 switches their evidence off.",
        low=0.001,
        high=0.5,
    )

    # Questions.
    query: str = setting(
        "peaks",
        "Where questions go: to dense regions, each in one of its own; to the highest share of new "
        "classes (Sup-Top); or anywhere (Sup-Rand).",
        among=("peaks", "top", "random"),
    )
    one_shot: bool = setting(
        False, "Ask the whole budget at once. Then no question can use what earlier ones found."
    )
    ask_first: float = setting(
        1 / 3,
        "Share of the budget in the first part of the questions, at most quiet_labels: a pool with "
        "nothing new must stay cheap.",
        low=0.01,
        high=1.0,
    )
    ask_where_new: float = setting(
        1 / 2,
        "Share of the budget that goes where the pool looks new. The rest goes wherever nobody has "
        "been asked: a class that looks like a known one is found by no other means.",
        low=0.01,
        high=1.0,
    )
    ask_confirm: float = setting(
        0.7,
        "Share of each part, rounded up, that may go to classes with too few answers. At 0 most "
        "new classes stay unconfirmed, at 1 no question is left for what nobody has found.",
        low=0.0,
        high=1.0,
    )
    everywhere_from: int = setting(
        2,
        "The part of the questions from which they go everywhere, once something new is known. "
        "Earlier they would miss the classes that stand out.",
        low=1,
    )
    ask_clean: float = setting(
        0.1,
        "In a shifted pool, the least worth of a question about an image that references explain, "
        "beside 1 for a shifted one. At 1 most questions that go everywhere go to what is not "
        "shifted; at 0 nothing new that resembles a clean class is found beside a shift.",
        low=0.0,
        high=1.0,
    )
    dimming: float = setting(
        50.0,
        "How strongly a question dims its surroundings for the next ones. An edge carries about a "
        "twentieth, so a direct neighbour is left e^-2.5; at 0 all questions go to one region.",
        low=0.0,
    )
    quiet_labels: int = setting(
        8,
        "Answers, none of them new, after which the loop stops. Fewer miss small classes, more "
        "cost questions at every quiet pool.",
        low=1,
    )
    quiet_shifted: int = setting(
        2,
        "Times as many answers where most of them moved with a shift: the first ones went to what "
        "is merely shifted.",
        low=1,
    )
    significant: float = setting(
        0.05,
        "How unlikely an excess above T_inner must be to go on asking although nothing is new yet. "
        "Of 64 pools with a class of one fiftieth, 62 showed it among the first six questions.",
        low=1e-6,
        high=1.0,
    )

    # Pseudo-labels.
    confidence: float = setting(
        0.3,
        "Share of an image's label mass that its class must have to teach the final score. Lower "
        "labels what no class claims.",
        low=0.0,
        high=1.0,
    )
    keep: float = setting(
        0.9,
        "Share of such images of a class that is kept, the surest first. The last tenth is where "
        "errors gather.",
        low=0.01,
        high=1.0,
    )
    opinion_weight: float = setting(
        0.07,
        "Weight of the discriminant's log-odds beside the logarithm of the shares in the posterior "
        "of a class. At 0 one in ten new images less is given to its class, at 0.3 known ones are "
        "called new.",
        low=0.0,
        high=10.0,
    )
    share_floor: float = setting(
        1e-4,
        "Added to a share before its logarithm: a class that spreading did not reach can still be "
        "the discriminant's choice.",
        low=1e-9,
        high=0.1,
    )
    sure_member: float = setting(
        0.5,
        "Posterior from which an image becomes a pseudo-label of a new class. Only the surest ones "
        "make a class narrower than it is: its other images would stay novel.",
        low=0.01,
        high=0.999,
    )

    # Settled verdicts, and classes that go on learning.
    decided: float = setting(
        0.6,
        "Probability from which a settled verdict says known, and the least from which it says "
        "new; between, it is undecided.",
        low=0.5,
        high=0.999,
    )
    false_new: float = setting(
        0.0075,
        "Share of a pool's images that may be known ones settled as new, as their probabilities "
        "have it. These are too sure of themselves: three to four times as many are. With a fixed "
        "limit the rate is three times as high where a twentieth is new as where a fifth is.",
        low=1e-6,
        high=0.5,
    )
    certain: float = setting(
        0.9,
        "Probability from which an image is settled as new however many are: where most of a pool "
        "is new, their small doubts would add up to more than false_new.",
        low=0.5,
        high=0.999,
    )
    references_new: float = setting(
        0.05,
        "Share of references that may be settled as new when they take part in the pool as if "
        "nobody had labelled them. Half of the others speak for what is known meanwhile, so that "
        "fresh known images are settled as new about half as often.",
        low=1e-6,
        high=0.5,
    )
    references_taught: float = setting(
        0.12,
        "Share of such references that may look as new as what teaches a new class. At 1 half of "
        "a class that was just learnt is of another; at 0.025 a fifth, but it is so small that "
        "twice as many of its images stay novel.",
        low=1e-6,
        high=1.0,
    )
    rare: float = setting(
        0.02,
        "Share of new images that is assumed in a pool in which nothing new was named.",
        low=1e-6,
        high=0.5,
    )
    unusual: float = setting(
        0.3,
        "How p_known of a closed pool changes the odds that an image is new: new images are taken "
        "to have the density a p^(a-1). Smaller trusts small values of p_known more.",
        low=0.01,
        high=0.99,
    )
    confirm_answers: int = setting(
        3,
        "Answers by people that confirm a class. With one, a single mistake would make something "
        "invisible.",
        low=1,
    )
    dissent: float = setting(
        0.5,
        "Answers of another name, or none, among the neighbours of a class, per answer that names "
        "it, from which it stays unconfirmed.",
        low=0.0,
        high=10.0,
    )
    grow_sure: float = setting(
        0.7,
        "Posterior from which an image of a later pool teaches the class that it belongs to. At "
        "0.5 neighbours creep in.",
        low=0.5,
        high=0.999,
    )
    grow_least: float = setting(
        0.25,
        "Share by which such images must enlarge a class to be worth a detector version.",
        low=0.0,
        high=100.0,
    )
    mature: int = setting(
        200,
        "Images from which a class is taught by people alone: as many as a good fit has. More "
        "would let it follow its own mistakes.",
        low=3,
    )
    still_new: float = setting(
        0.5,
        "Share of the images that a person gives to a class above which they look new together: "
        "they become a mode of their own. At 1 they bend the subspace of the class.",
        low=0.0,
        high=1.0,
    )
    anchor: float = setting(
        0.5,
        "How far pseudo-labels may move the mean of a class from what people labelled, as a share "
        "of the way to any other class. At 1 a class could be walked into another.",
        low=0.0,
        high=1.0,
    )

    # Known classes that are shifted within the pool.
    mind_shift: bool = setting(
        True,
        "Answers of 'known' that agree on a shift move all known classes. Without it shifted known "
        "images are taken for new ones.",
    )
    shift_agreement: float = setting(
        0.07,
        "Mean cosine between the displacements of classes from which they agree. Clean pools of "
        "two datasets had -0.10 to 0.07, shifted ones 0.01 (coarse JPEG) to 0.85 (noise).",
        low=-1.0,
        high=1.0,
    )
    shift_few: int = setting(
        3,
        "Of so few classes no cosine can be distinguished from chance: they agree unless they "
        "point apart, since a needless shift costs a point of AUROC and a missed one up to forty.",
        low=2,
    )
    shift_lessons: int = setting(
        3,
        "How often the discriminant is taught in a shifted pool, after the first time by its own "
        "posterior. Once costs up to a point of AUROC there, a fourth time brings 0.1.",
        low=1,
    )
    shift_own: int = setting(
        20,
        "Images of its own that weigh as much as the common shift when a shifted class is placed. "
        "With few, one answer would place a class.",
        low=1,
    )

    # The score at the end of the loop.
    second_opinion: bool = setting(
        True,
        "Add the log-odds of a linear discriminant to the log ratio of FREs. FRE knows each class "
        "by itself, the discriminant knows what separates them.",
    )
    sure: float = setting(
        0.9,
        "Share of known classes from which an image of the pool counts as known when the final "
        "T_inner is placed. Lower lets new images raise it.",
        low=0.5,
        high=1.0,
    )
    shrinkage: float = setting(
        0.1,
        "Shrinkage of the discriminant's covariance towards a sphere: keeps it invertible where "
        "images are fewer than directions.",
        low=0.001,
        high=1.0,
    )
