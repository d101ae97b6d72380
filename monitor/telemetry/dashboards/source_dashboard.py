"""The fourth page: one source in detail, where the rows of the others lead."""

from __future__ import annotations

from monitor.telemetry.dashboards.model import SOURCE, Board, Panel, Query

_JUDGED = f"sum(rate(conclad_score_ratio_count{{{SOURCE}}}[1h]))"


def source() -> Board:
    return Board(
        uid="conclad-source",
        title="conclad / Source",
        description="One source in detail: choose it at the top, or come from a row of a table.",
        panels=(*_now(), *_course()),
        period="now-2d",
    )


def _now() -> tuple[Panel, ...]:
    return (
        Panel(
            "Last image judged",
            "stat",
            "How long ago the latest image of the chosen sources was judged.",
            [Query(f"time() - max(conclad_source_last_commit_timestamp_seconds{{{SOURCE}}})")],
            width=6,
            height=4,
            unit="s",
            nothing="never, or added up as other",
        ),
        Panel(
            "Silent",
            "stat",
            "Whether it should have sent by now, by the hours in which it usually sends.",
            [Query(f"count(conclad_source_silent_seconds{{{SOURCE}}}) or vector(0)")],
            width=6,
            height=4,
            steps=((None, "green"), (1, "red")),
            words={"0": ("no", "green")},
        ),
        Panel(
            "Questions open",
            "stat",
            "Questions about it that wait for an answer at the desk.",
            [Query(f"sum(conclad_questions_open{{{SOURCE}}})")],
            width=6,
            height=4,
            steps=((None, "green"), (1, "orange")),
        ),
        Panel(
            "Drift",
            "stat",
            "Evidence that its known classes have moved; from 1 on it is reported.",
            [Query(f"max(conclad_drift_score{{{SOURCE}}})")],
            width=6,
            height=4,
            decimals=2,
            steps=((None, "green"), (1, "orange")),
            nothing="not measured yet",
        ),
    )


def _course() -> tuple[Panel, ...]:
    above = f"sum(rate(conclad_samples_above_t_inner_total{{{SOURCE}}}[1h]))"
    expected = f"sum(rate(conclad_samples_above_t_inner_expected_total{{{SOURCE}}}[1h]))"
    return (
        Panel(
            "Images per second, by outcome",
            "timeseries",
            "Images of the chosen sources, by what became of them.",
            [
                Query(
                    f"sum by (outcome) (rate(conclad_images_total{{{SOURCE}}}[$__rate_interval]))",
                    "{{outcome}}",
                )
            ],
            unit="cps",
            stacked=True,
        ),
        Panel(
            "Share above T_inner",
            "timeseries",
            "Share of its judged images above T_inner over an hour, and the share that calibration "
            "predicts when nothing is new.",
            [Query(f"{above} / {_JUDGED}", "seen"), Query(f"{expected} / {_JUDGED}", "expected")],
            unit="percentunit",
        ),
        Panel(
            "Scores over T_inner",
            "heatmap",
            "How many images fell into each range of score over T_inner. A second cloud above 1.0 "
            "is something new; the whole cloud moving up is drift.",
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
            "Evidence of drift",
            "timeseries",
            "Pool by pool; from 1 on drift is reported.",
            [Query(f"max by (source) (conclad_drift_score{{{SOURCE}}})", "{{source}}")],
            width=6,
            steps=((None, "text"), (1, "orange")),
            nothing="not measured yet",
        ),
        Panel(
            "Settled verdicts",
            "timeseries",
            "Images per second of finished pools, by what they were settled as.",
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
            "Rejected, by reason",
            "timeseries",
            "Images per second that could not be judged, by reason.",
            [
                Query(
                    "sum by (reason) (rate(conclad_images_rejected_total"
                    f"{{{SOURCE}}}[$__rate_interval]))",
                    "{{reason}}",
                )
            ],
            width=6,
            unit="cps",
            stacked=True,
            nothing="None",
        ),
        Panel(
            "From capture to verdict",
            "timeseries",
            "Time between the capture of its latest image and the verdict, by the camera's clock.",
            [
                Query(
                    f"max by (source) (conclad_source_last_commit_timestamp_seconds{{{SOURCE}}}) - "
                    f"max by (source) (conclad_source_last_capture_timestamp_seconds{{{SOURCE}}})",
                    "{{source}}",
                )
            ],
            width=6,
            unit="s",
            least=None,
        ),
    )
