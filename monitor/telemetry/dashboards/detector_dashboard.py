"""The second page: how well the detector judges, and what its knowledge has cost."""

from __future__ import annotations

from monitor.telemetry.dashboards.model import SOURCE, Board, Panel, Query, row

_LOOPS = 'sum(conclad_inner_loops_total{outcome!="quiet"})'


def detector() -> Board:
    return Board(
        uid="conclad-detector",
        title="conclad / Detector",
        description="Scores against T_inner, versions, pseudo-labels, and labels spent per class.",
        panels=(*_now(), *_scores(), *_learning(), *_people()),
        period="now-7d",
    )


def _now() -> tuple[Panel, ...]:
    return (
        Panel(
            "Version in use",
            "stat",
            "Number of the detector version that judges now. It falls when somebody rolls back.",
            [Query("max(conclad_detector_version)")],
            width=3,
            height=4,
        ),
        Panel(
            "Known classes",
            "stat",
            "Classes that this version knows.",
            [Query("max(conclad_known_classes)")],
            width=3,
            height=4,
        ),
        Panel(
            "Of them discovered",
            "stat",
            "Those of the known classes that were discovered in the feed.",
            [Query("max(conclad_discovered_classes)")],
            width=3,
            height=4,
        ),
        Panel(
            "T_inner",
            "stat",
            "The score above which an image is novel, in the units of the score. Each version has "
            "its own.",
            [Query("max(conclad_t_inner)")],
            width=3,
            height=4,
            decimals=3,
        ),
        Panel(
            "Known images above T_inner",
            "stat",
            "Share of held-out known images above T_inner, as calibration measured it: what a feed "
            "with nothing new shows.",
            [Query("max(conclad_calibrated_exceedance_ratio)")],
            width=4,
            height=4,
            unit="percentunit",
        ),
        Panel(
            "Share that would be noticed",
            "stat",
            "Smallest share of a pool that the trigger notices nine times in ten, in one pool and "
            "within ten, estimated at fit by leaving known classes out.",
            [Query("max by (pools) (conclad_noticeable_share_ratio)", "pools: {{pools}}")],
            width=4,
            height=4,
            unit="percentunit",
        ),
        Panel(
            "Called known by people",
            "stat",
            "Of the samples above T_inner that people were asked about, the share they called a "
            "known class. High values: T_inner is too low for this feed, or it drifts.",
            [Query("max(conclad_false_novel_ratio)")],
            width=4,
            height=4,
            unit="percentunit",
            steps=((None, "green"), (0.5, "orange"), (0.8, "red")),
            nothing="no answers yet",
        ),
    )


def _scores() -> tuple[Panel, ...]:
    judged = f"sum(rate(conclad_score_ratio_count{{{SOURCE}}}[1h]))"
    above = f"sum(rate(conclad_samples_above_t_inner_total{{{SOURCE}}}[1h]))"
    expected = f"sum(rate(conclad_samples_above_t_inner_expected_total{{{SOURCE}}}[1h]))"
    return (
        row("Scores"),
        Panel(
            "Scores over T_inner",
            "heatmap",
            "How many images fell into each range of score over T_inner. Above 1.0 an image is "
            "novel. A second cloud above it is something new; the whole cloud moving up is drift.",
            [
                Query(
                    "sum by (le) (increase(conclad_score_ratio_bucket"
                    f"{{{SOURCE}}}[$__rate_interval]))",
                    "{{le}}",
                    format="heatmap",
                )
            ],
            width=24,
            height=9,
        ),
        Panel(
            "Above T_inner, against expectation",
            "timeseries",
            "Share of judged images above T_inner over an hour, and the share that calibration "
            "predicts when nothing is new.",
            [Query(f"{above} / {judged}", "seen"), Query(f"{expected} / {judged}", "expected")],
            width=6,
            unit="percentunit",
        ),
        Panel(
            "Evidence of drift",
            "timeseries",
            "Evidence that the known classes of a source look different than usual, pool by pool; "
            "from 1 on it is reported.",
            [Query(f"max by (source) (conclad_drift_score{{{SOURCE}}})", "{{source}}")],
            width=6,
            steps=((None, "text"), (1, "orange")),
        ),
        Panel(
            "Settled verdicts",
            "timeseries",
            "Images per second of finished pools, by what they were settled as: many that are "
            "novel at once turn out to be known, and some that looked known are new.",
            [
                Query(
                    "sum by (verdict) (rate(conclad_images_settled_total"
                    f"{{{SOURCE}}}[$__rate_interval]))",
                    "{{verdict}}",
                )
            ],
            width=6,
            unit="cps",
            stacked=True,
            nothing="no pool is finished yet",
        ),
        Panel(
            "How far known classes have moved",
            "timeseries",
            "Length of the shift, where 1 is the spread within a class. Strong and reported: look "
            "at the camera.",
            [Query(f"max by (source) (conclad_drift_strength{{{SOURCE}}})", "{{source}}")],
            width=6,
        ),
        Panel(
            "How far classes have followed a drift",
            "timeseries",
            "What a class has learnt of its new look, as a share of what it may learn. At 1 it "
            "adapts no further, and its images look new: fit it again.",
            [
                Query(
                    "max by (class_name) (conclad_class_adaptation_ratio) or "
                    'label_replace(vector(0), "class_name", "none yet", "", "")',
                    "{{class_name}}",
                )
            ],
            width=16,
            height=6,
            unit="percentunit",
            steps=((None, "text"), (0.8, "orange"), (1, "red")),
        ),
        Panel(
            "Judged with their shift corrected",
            "timeseries",
            "Sources that look shifted, by a dirty lens or another light, and whose images are "
            "judged as if they did not. It begins with one pool, before drift is reported.",
            [
                Query(
                    f"max by (source) (conclad_shift_corrected{{{SOURCE}}}) > 0",
                    "{{source}}",
                )
            ],
            width=8,
            height=6,
            decimals=0,
            nothing="no source is shifted",
        ),
    )


def _learning() -> tuple[Panel, ...]:
    return (
        row("Learning"),
        Panel(
            "Versions and classes",
            "timeseries",
            "The version in use, and how many classes it knows.",
            [
                Query("max(conclad_detector_version)", "version"),
                Query("max(conclad_known_classes)", "known classes"),
                Query('max(conclad_detector_versions{state="held"})', "held versions"),
            ],
            width=8,
            decimals=0,
        ),
        Panel(
            "T_inner over time",
            "timeseries",
            "T_inner of the version in use. It is calibrated again with every version.",
            [Query("max(conclad_t_inner)", "T_inner")],
            width=8,
            least=None,
        ),
        Panel(
            "Failed updates",
            "timeseries",
            "Updates of the detector that failed, within an hour.",
            [Query("sum(increase(conclad_update_failures_total[1h]))", "failed")],
            width=8,
            decimals=0,
        ),
        Panel(
            "Pools, by outcome",
            "bargauge",
            "What became of the pools: quiet ones needed no question, the others ran an inner "
            "loop.",
            [Query("sum by (outcome) (conclad_inner_loops_total)", "{{outcome}}", instant=True)],
            width=8,
            decimals=0,
        ),
        Panel(
            "Rounds per inner loop",
            "stat",
            "Rounds of questions that an inner loop took on average, over all that were run.",
            [Query(f"sum(conclad_inner_loop_rounds_total) / clamp_min({_LOOPS}, 1)")],
            width=4,
            decimals=1,
        ),
        Panel(
            "Seconds per inner loop",
            "stat",
            "Computing time of an inner loop on average; waiting for people is not in it.",
            [Query(f"sum(conclad_inner_loop_seconds_total) / clamp_min({_LOOPS}, 1)")],
            width=4,
            unit="s",
        ),
        Panel(
            "Pseudo-labels that were wrong",
            "stat",
            "Share of the pseudo-labels in use that a person contradicted later.",
            [
                Query(
                    'sum(conclad_pseudo_labels_total{outcome="contradicted"}) / '
                    'clamp_min(sum(conclad_pseudo_labels_total{outcome="accepted"}), 1)'
                )
            ],
            width=8,
            unit="percentunit",
            steps=((None, "green"), (0.05, "orange"), (0.2, "red")),
        ),
    )


def _people() -> tuple[Panel, ...]:
    return (
        row("People"),
        Panel(
            "Labels per class found",
            "stat",
            "Questions asked for each class that was discovered.",
            [
                Query(
                    "sum(conclad_labels_spent_total) / clamp_min(sum(conclad_discoveries_total), 1)"
                )
            ],
            width=6,
            decimals=1,
        ),
        Panel(
            "Labels left for the pools in question",
            "stat",
            "Questions that the pools which are being asked about may still ask.",
            [Query("sum(conclad_label_budget_remaining)")],
            width=6,
        ),
        Panel(
            "Labels and classes",
            "timeseries",
            "Questions asked and classes discovered, since the state began.",
            [
                Query("sum(conclad_labels_spent_total)", "questions"),
                Query("sum(conclad_discoveries_total)", "classes discovered"),
            ],
            width=12,
            decimals=0,
        ),
        Panel(
            "Answers, by kind",
            "timeseries",
            "What people said, per hour. Undo takes an answer back.",
            [Query("sum by (kind) (increase(conclad_answers_total[1h]))", "{{kind}}")],
            stacked=True,
        ),
        Panel(
            "What people said of novel images",
            "bargauge",
            "Answers about images above T_inner: new, known, or cannot tell.",
            [Query("sum by (said) (conclad_novel_answers_total)", "{{said}}", instant=True)],
            decimals=0,
        ),
    )
