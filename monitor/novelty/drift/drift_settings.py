"""The numbers of drift: how shifts are measured, when one is reported, how it is learnt."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.novelty.settings_group import SettingsGroup, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings(SettingsGroup):
    """The settings of drift detection and of learning a shift.

    >>> DriftSettings(false_alarm_days=7).quiet_pools
    20
    """

    # When a shift is reported.
    false_alarm_days: float = setting(
        30.0, "One false alarm in so many days, for each source: the promise.", low=0.01
    )
    quiet_pools: int = setting(
        20,
        "A source's first pools, from which its normal state is learnt. Fewer miss its variety; a "
        "shift among them is learnt as normal.",
        low=2,
    )
    least_images: int = setting(
        60, "Images of a source that make an observation; fewer are put together.", low=10
    )
    least_strength: float = setting(
        0.08, "Shifts below this are not reported: pools one third new reach 0.06.", low=0.0
    )
    calm_pools: int = setting(
        3, "Pools in a row that look normal before a shift has ended: one may be chance.", low=1
    )
    conditions: int = setting(
        4,
        "States that are normal for one source, such as day and night. More would take a shift of "
        "the quiet period for another of them.",
        low=1,
    )
    confirm_labels: int = setting(
        6, "Questions that a shift alone may cost, once for each shift.", low=0
    )

    # How displacements are measured.
    directions: int = setting(
        64,
        "Directions in which classes vary that are kept. 16 miss brightness and contrast at times; "
        "the noise of 64 is averaged away by products between groups.",
        low=1,
    )
    shrinkage: float = setting(
        0.1,
        "Added to each direction's variance, as a share of their mean, so that weak directions do "
        "not dominate.",
        low=0.0,
        high=10.0,
    )
    clearest: float = setting(
        0.5,
        "Share of the images taken for a class that count, the clearest. New images fall between "
        "known classes: with this, a pool one third new moves no more than a clean one.",
        low=0.01,
        high=1.0,
    )
    groups: int = setting(
        3, "Groups of classes: fewer let a new class touch most pairs of groups.", low=1
    )
    halves: int = setting(
        2, "Parts of each group: without them a source with a single class has no pairs.", low=1
    )
    group_least: int = setting(3, "Images of a group below which its mean says nothing.", low=1)

    # How evidence becomes an alarm.
    prior_spread: float = setting(
        0.3,
        "Spread of clean evidence before any is seen, and never less: a few pools that happen to "
        "agree are no reason to be surer. Measured on two datasets at 60 to 200 images a pool.",
        low=1e-3,
        high=10.0,
    )
    prior_pools: float = setting(
        5.0, "Pools that this guess is worth. Fewer let the first pools decide.", low=0.1
    )
    another_condition: float = setting(
        1.5,
        "Evidence beyond which a pool of the quiet period belongs to another condition: five times "
        "the spread of clean evidence.",
        low=0.1,
        high=100.0,
    )
    reference: float = setting(
        0.75,
        "What standardised evidence must exceed to count: half of the smallest shift that is to be "
        "found soon (Page's rule).",
        low=0.01,
        high=10.0,
    )
    most_at_once: float = setting(
        0.6,
        "Share of the limit that one pool may fill: two in a row raise an alarm, a single odd one "
        "never does.",
        low=0.01,
        high=1.0,
    )
    least_run: float = setting(
        20.0,
        "Pools between false alarms that are promised at least: fewer cannot be promised from a "
        "handful of pools.",
        low=2.0,
    )
    seen_before: float = setting(
        0.75,
        "Share of a shift that an earlier one must explain to be called the same.",
        low=0.01,
        high=1.0,
    )
    past_most: int = setting(
        4, "Ended shifts that are remembered: enough for the seasons, in a few kilobytes.", low=1
    )
    accepted_most: int = setting(
        3, "Accepted states kept beside the latest, for the same reason.", low=1
    )
    worth_a_word: float = setting(
        0.4,
        "Deviations among images from which a change is put in words: less is what another hour "
        "brings.",
        low=0.0,
        high=10.0,
    )
    words_most: int = setting(3, "Words for one shift at most: more are harder to read.", low=1)

    # What a shift explains of one pool.
    alone_evidence: float = setting(
        2.0,
        "Evidence from which one pool alone counts as shifted. No pool of 200 images with a third "
        "new reached it together with alone_strength in 48 trials.",
        low=0.0,
        high=100.0,
    )
    alone_strength: float = setting(
        0.12, "Strength from which one pool alone counts as shifted; see there.", low=0.0, high=10.0
    )
    wider_most: float = setting(
        3.0,
        "Shift also blurs classes, and T_inner may follow by this factor at most: beyond, an image "
        "is as strange as any new one and somebody should look.",
        low=1.0,
        high=100.0,
    )

    corrected_novel: float = setting(
        0.05,
        "Share of a shifted source's images in one pool that stay novel once the shift is "
        "corrected: what known images have elsewhere, so that neither a shift fills the verdicts "
        "nor everything in the source becomes invisible.",
        low=0.0,
        high=1.0,
    )
    corrected_fully: float = setting(
        0.4,
        "How far along the shift an image is corrected in full, where clean images lie at zero and "
        "shifted ones at one; nearer ones in part. At 0.5 known images of a dark lens are called "
        "novel a fifth more often; at 0.3 a third of the images of a lens that is clean again is "
        "corrected.",
        low=0.05,
        high=1.0,
    )
    eased_most: float = setting(
        10.0,
        "Factor by which corrected scores may be eased at most. Corruptions of severity 3 took "
        "at most five; beyond, images are as strange as any new ones.",
        low=1.0,
        high=1000.0,
    )

    # How a shift is learnt.
    furthest: float = setting(
        0.8,
        "How far a mode may lie from the first one of its class. Corruptions of severity 3 moved "
        "classes of EuroSAT by 0.3 to 0.7; the nearest other class lies 0.5 to 0.7 away.",
        low=0.0,
    )
    own_least: int = setting(
        20,
        "Images from which a class's own shifted subspace is fitted; with fewer the first moves "
        "with the common shift.",
        low=2,
    )
    own_mean: int = setting(
        20, "Images that weigh as much as the common shift when a mode's mean is placed.", low=1
    )
    further_most: int = setting(
        64, "Directions that a mode may take on: more would reconstruct anything.", low=0
    )
    further_share: float = setting(
        0.9,
        "Directions that a mode may take on for each image of it. Held-out images decide how many "
        "are needed, so images may be nearly used up.",
        low=0.0,
        high=1.0,
    )
    learnt_ratio: float = setting(
        2.0,
        "Times as often as held-out images that those of a source may exceed T_inner once its "
        "shift is learnt: then its look is normal. At 1 chance decides, at 10 half of them may.",
        low=1.0,
        high=100.0,
    )
    modes_most: int = setting(
        3, "Learnt shifts that a class keeps, the latest: memory and time grow with each.", low=1
    )
    believed_alone: float = setting(
        1.0,
        "Share of the images taken for a class that teach its shift where nobody found anything "
        "new.",
        low=0.01,
        high=1.0,
    )
    believed_beside_new: float = setting(
        0.5, "The same where new images may be among them: the clearer half.", low=0.01, high=1.0
    )
    agreement: float = setting(
        0.5,
        "Share of answers that must agree with the class that a corrected image is taken for. If "
        "fewer do, the shift has mixed classes up and only neighbours of answers are believed.",
        low=0.0,
        high=1.0,
    )


#: What drift uses unless other settings are given.
DRIFT_DEFAULTS = DriftSettings()
