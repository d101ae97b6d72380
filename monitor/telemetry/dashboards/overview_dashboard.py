"""The first page: is anything new, where, since when, and what waits for me?"""

from __future__ import annotations

from monitor.telemetry.dashboards.model import (
    DESK,
    GROUP,
    SOURCE,
    Board,
    Panel,
    Query,
    at_width,
    by_name,
    linked,
    out_of_sight,
    renamed,
    source_links,
)

_JUDGED = f"sum by (group, source) (rate(conclad_score_ratio_count{{{SOURCE}}}[1h]))"
_ABOVE = f"sum by (group, source) (rate(conclad_samples_above_t_inner_total{{{SOURCE}}}[1h]))"
_EXPECTED = (
    f"sum by (group, source) (rate(conclad_samples_above_t_inner_expected_total{{{SOURCE}}}[1h]))"
)
_WEEK = 7 * 86400

#: Those of ``deploy/prometheus/rules``; other people's alerts stay on their own pages.
ALERTS = (
    "NovelClassDetected",
    "NoveltySuspected",
    "KnownClassDrift",
    "FeedSilent",
    "ManySourcesSilent",
    "SourcesCapped",
    "InputLagHigh",
    "RejectedImagesHigh",
    "FilesQuarantined",
    "LabelQueueStale",
    "LabelBudgetExhausted",
    "DetectorUpdateFailing",
    "DetectorUpdateHeld",
    "MonitorDown",
    "EmbeddersNotStarting",
    "RestartStorm",
    "DiskNearlyFull",
    "Outage",
    "ImagesUnaccounted",
)

_FIRING = f'ALERTS{{alertstate="firing",alertname=~"{"|".join(ALERTS)}",{GROUP}}}'


def overview() -> Board:
    return Board(
        uid="conclad-overview",
        title="conclad / Overview",
        description="Is anything new, where, since when, and what waits for you.",
        panels=(*_answers(), *_where(), *_course()),
    )


def _answers() -> tuple[Panel, ...]:
    return (
        Panel(
            "New classes, last 7 days",
            "stat",
            "Classes that were discovered in the chosen sources within seven days. Red as long as "
            "there are any: that is what this monitor is for.",
            [
                Query(
                    f"count(time() - conclad_class_discovered_timestamp_seconds{{{SOURCE}}} "
                    f"< {_WEEK}) or vector(0)",
                )
            ],
            width=4,
            height=5,
            steps=((None, "green"), (1, "red")),
        ),
        Panel(
            "Questions open",
            "stat",
            "Images about which the monitor asks. Nothing new gets a name before somebody answers; "
            "the desk shows them one by one.",
            [Query(f"sum(conclad_questions_open{{{SOURCE}}})")],
            width=4,
            height=5,
            steps=((None, "green"), (1, "orange")),
        ),
        Panel(
            "Oldest question waits for",
            "stat",
            "How long the oldest open question has waited. After labels.timeout_hours its round "
            "ends without it.",
            [Query(f"max(conclad_questions_oldest_age_seconds{{{SOURCE}}})")],
            width=4,
            height=5,
            unit="s",
            steps=((None, "green"), (3600, "orange"), (86400, "red")),
        ),
        Panel(
            "Sources that drift",
            "stat",
            "Sources whose known classes look different than they did: a dirty lens, fog, another "
            "setting. Not a new class, but worth a look.",
            [Query(f"sum(conclad_drift_active{{{SOURCE}}}) or vector(0)")],
            width=4,
            height=5,
            steps=((None, "green"), (1, "orange")),
        ),
        Panel(
            "Silent sources",
            "stat",
            "Sources that should have sent by now, by their usual hours; also those "
            "that have no figures of their own.",
            [Query("sum(conclad_sources_silent) or vector(0)")],
            width=4,
            height=5,
            steps=((None, "green"), (1, "orange")),
        ),
        Panel(
            "Monitor",
            "stat",
            "Whether a monitor holds the lease on the state. 'No data' means that Prometheus does "
            "not reach it.",
            [Query("max(conclad_monitor_running)")],
            width=4,
            height=5,
            steps=((None, "red"), (1, "green")),
            words={"0": ("stopped", "red"), "1": ("running", "green")},
            nothing="not reached",
        ),
    )


def _where() -> tuple[Panel, ...]:
    return _discovered(), _firing(), _by_source(), _silent()


def _discovered() -> Panel:
    columns = {
        "Value": "Discovered",
        "class_name": "Class",
        "source": "Source",
        "group": "Group",
        "class_id": "Id",
    }
    return Panel(
        "Discovered classes",
        "table",
        "The latest hundred classes that were discovered, with the source that had most of their "
        "images. Names can be changed and classes merged at the desk.",
        [
            _table(
                "sort_desc(max by (group, source, class_id, class_name) "
                f"(conclad_class_discovered_timestamp_seconds{{{SOURCE}}}) * 1000 + {DESK})"
            )
        ],
        width=10,
        nothing="Nothing new so far",
        transformations=(renamed(columns),),
        overrides=(
            by_name("Discovered", {"unit": "dateTimeAsIso", "custom.width": 180}),
            linked("Class", ("This class at the desk", "${__data.fields.desk}/classes")),
            linked("Source", *source_links()),
            out_of_sight("desk"),
        ),
    )


def _firing() -> Panel:
    columns = {
        "alertname": "Alert",
        "severity": "Severity",
        "source": "Source",
        "group": "Group",
        "class_name": "Class",
    }
    hidden = ("Value", "alertstate", "class_id", "evidence", "role")
    return Panel(
        "What is firing",
        "table",
        "The alerts of conclad that fire now. Each has a runbook in docs/runbooks.",
        [
            _table(
                f"{_FIRING} + {DESK} or "
                # Once, where a group is scraped without its links.
                f"({_FIRING} unless on (group) conclad_links_info{{{GROUP}}})"
            )
        ],
        width=14,
        nothing="Nothing",
        transformations=(renamed(columns, hidden=hidden),),
        overrides=(
            at_width("Alert", 180),
            at_width("Severity", 100),
            linked("Source", *source_links()),
            linked("Class", ("This class at the desk", "${__data.fields.desk}/classes")),
            out_of_sight("desk"),
        ),
    )


def _by_source() -> Panel:
    columns = {
        "source": "Source",
        "group": "Group",
        "Value #A": "Above T_inner",
        "Value #B": "Expected above",
        "Value #C": "Questions open",
        "Value #D": "Drift",
    }
    return Panel(
        "Where: the last hour by source",
        "table",
        "For every source: the share of its images above T_inner, the share that calibration "
        "expects there when nothing is new, open questions, and drift (1 and more counts).",
        [
            _table(f"{_ABOVE} / ({_JUDGED} > 0)"),
            _table(f"{_EXPECTED} / ({_JUDGED} > 0)"),
            _table(f"max by (group, source) (conclad_questions_open{{{SOURCE}}}) + {DESK}"),
            _table(f"max by (group, source) (conclad_drift_score{{{SOURCE}}})"),
        ],
        width=24,
        transformations=({"id": "merge", "options": {}}, renamed(columns)),
        overrides=(
            by_name("Above T_inner", {"unit": "percentunit", "decimals": 1}),
            by_name("Expected above", {"unit": "percentunit", "decimals": 1}),
            by_name("Drift", {"decimals": 2}),
            linked("Source", *source_links()),
            linked("Questions open", ("Questions at the desk", "${__data.fields.desk}/")),
            out_of_sight("desk"),
        ),
    )


def _silent() -> Panel:
    columns = {"source": "Source", "group": "Group", "Value": "Sent nothing for"}
    return Panel(
        "Silent sources, the longest first",
        "table",
        "Sources that should have sent by now; at most twenty of each group are named.",
        [
            _table(
                "sort_desc(max by (group, source) "
                f"(conclad_source_silent_seconds{{{SOURCE}}}) + {DESK})"
            )
        ],
        width=24,
        height=6,
        unit="s",
        nothing="None",
        transformations=(renamed(columns),),
        overrides=(linked("Source", *source_links()), out_of_sight("desk")),
    )


def _table(expression: str) -> Query:
    return Query(expression, instant=True, format="table")


def _course() -> tuple[Panel, ...]:
    return (
        Panel(
            "Share above T_inner",
            "timeseries",
            "The share of judged images above T_inner, over an hour, by source. The dashed line is "
            "what calibration expects when nothing is new.",
            [
                Query(f"{_ABOVE} / ({_JUDGED} > 0)", "{{source}}"),
                Query("max(conclad_calibrated_exceedance_ratio)", "expected"),
            ],
            unit="percentunit",
            overrides=(
                by_name(
                    "expected",
                    {
                        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
                        "color": {"mode": "fixed", "fixedColor": "text"},
                    },
                ),
            ),
        ),
        Panel(
            "Questions open, by source",
            "timeseries",
            "Questions that wait for an answer.",
            [Query(f"sum by (source) (conclad_questions_open{{{SOURCE}}}) > 0", "{{source}}")],
            stacked=True,
            nothing="None",
        ),
        Panel(
            "Images",
            "timeseries",
            "Judged and rejected images per second, by what became of them.",
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
            "Questions left this week",
            "timeseries",
            "How many questions may still be asked within seven days (labels.per_week). When none "
            "is left, pools wait.",
            [Query("min(conclad_label_budget_weekly_remaining)", "left")],
            steps=((None, "text"), (0, "red")),
        ),
    )
