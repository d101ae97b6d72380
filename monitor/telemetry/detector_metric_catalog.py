"""The metrics of what is known: the detector, its classes, its pools, and what people said."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.telemetry.metric_series import Family, counter, gauge, labelled, moment
from monitor.telemetry.store_summary import StoreSummary


def detector_families(truth: StoreSummary) -> Iterator[Family]:
    yield from _detector(truth)
    yield from _classes(truth)
    yield from _pools(truth)
    yield from _people(truth)


def _detector(truth: StoreSummary) -> Iterator[Family]:
    used = truth.detector
    info = ("version", "backbone", "precision", "fingerprint")
    yield gauge(
        "detector_info",
        "Always 1; the labels describe the detector in use.",
        info,
        {}
        if used is None
        else {(str(used.version), used.backbone or "", used.precision or "", used.fingerprint): 1},
    )
    yield gauge(
        "detector_version",
        "Number of the detector version in use.",
        (),
        {} if used is None else {(): used.version},
    )
    yield gauge(
        "detector_updated_timestamp_seconds",
        "When the detector version in use became the one in use.",
        (),
        {} if used is None else moment(used.updated_at),
    )
    yield gauge(
        "detector_versions",
        "Detector versions by state; a held one waits for an operator.",
        ("state",),
        {(state.value,): truth.versions.get(state, 0) for state in VersionState},
    )
    yield counter(
        "update_failures_total",
        "Updates of the detector that failed.",
        (),
        {(): truth.total("update_failures")},
    )
    yield gauge(
        "t_inner",
        "T_inner: the score above which an image is novel, in the units of the score.",
        (),
        {} if used is None or used.t_inner is None else {(): used.t_inner},
    )
    yield gauge(
        "calibrated_exceedance_ratio",
        "Share of known images above T_inner, each scored by a fit without it.",
        (),
        {} if used is None or used.exceedance is None else {(): used.exceedance},
    )
    yield gauge(
        "noticeable_share_ratio",
        "Smallest share of new images that the trigger detects nine times in ten, by pools.",
        ("pools",),
        {} if used is None else {(str(n),): share for n, share in used.noticeable.items()},
    )


def _classes(truth: StoreSummary) -> Iterator[Family]:
    used = truth.detector
    yield gauge(
        "known_classes",
        "Classes that the detector in use knows.",
        (),
        {(): 0 if used is None else used.known},
    )
    yield gauge(
        "discovered_classes",
        "Known classes that were discovered in the feed.",
        (),
        {(): 0 if used is None else used.discovered},
    )
    yield gauge(
        "classes",
        "Classes that are neither retired nor merged, by origin.",
        ("origin",),
        {(origin.value,): truth.classes.get(origin, 0) for origin in ClassOrigin},
    )
    yield gauge(
        "class_adaptation_ratio",
        "How far a class has adapted to drift, as a share of the limit; at 1 it adapts no further.",
        ("class_id", "class_name"),
        {} if used is None else {(id_, name): n for (id_, name), n in used.adapted.items()},
    )
    yield counter("discoveries_total", "Classes discovered.", (), {(): truth.total("discoveries")})
    yield gauge(
        "class_discovered_timestamp_seconds",
        "When a class was discovered, with the source of most of its images; the latest hundred.",
        ("source", "class_id", "class_name"),
        {(d.source or "", d.class_id, d.name): d.at.timestamp() for d in truth.discoveries[::-1]},
    )


def _pools(truth: StoreSummary) -> Iterator[Family]:
    yield gauge(
        "pools",
        "Pools by state.",
        ("state",),
        {(state.value,): truth.pools.get(state, 0) for state in PoolState},
    )
    outcomes = ("discovered", "adapted", "nothing new", "quiet", "unresolved", "held")
    yield counter(
        "inner_loops_total",
        "Inner loops by outcome; quiet counts the pools that needed no questions.",
        ("outcome",),
        {(o,): 0.0 for o in outcomes} | labelled(truth, "inner_loops"),
    )
    yield counter(
        "inner_loop_rounds_total",
        "Rounds of questions over all inner loops.",
        (),
        {(): truth.total("inner_loop_rounds")},
    )
    yield counter(
        "inner_loop_seconds_total",
        "Computing time of all inner loops, without the time of waiting for people.",
        (),
        {(): truth.total("inner_loop_seconds")},
    )
    yield counter(
        "pseudo_labels_total",
        "Pseudo-labels that were used, and those that a person marked wrong later.",
        ("outcome",),
        {(o,): truth.total("pseudo_labels", o) for o in ("accepted", "contradicted")},
    )


def _people(truth: StoreSummary) -> Iterator[Family]:
    labels, said = truth.labels, {o: truth.total("false_novel", o) for o in ("known", "new")}
    told = sum(said.values())
    yield counter(
        "answers_total",
        "Answers by kind and outcome.",
        ("kind", "outcome"),
        {(k.value, o.value): n for (k, o), n in truth.answers.items()},
    )
    yield counter("labels_spent_total", "Questions asked.", (), {(): labels.spent})
    yield gauge(
        "label_budget",
        "Questions that the pools with open rounds may ask in total.",
        (),
        {(): labels.budget},
    )
    yield gauge(
        "label_budget_remaining",
        "Questions that the pools with open rounds may still ask.",
        (),
        {(): labels.remaining},
    )
    yield gauge(
        "label_budget_weekly",
        "Questions that may be asked in seven days; missing if there is no limit.",
        (),
        {} if labels.per_week is None else {(): labels.per_week},
    )
    yield gauge(
        "label_budget_weekly_remaining",
        "Questions that may still be asked within these seven days.",
        (),
        {} if labels.remaining_this_week is None else {(): labels.remaining_this_week},
    )
    yield counter(
        "novel_answers_total",
        "Answers about images above T_inner: new, known, or cannot tell.",
        ("said",),
        {(o,): truth.total("false_novel", o) for o in ("known", "new", "cannot_tell")},
    )
    yield gauge(
        "false_novel_ratio",
        "Share of images above T_inner that people called known; missing without answers.",
        (),
        {(): said["known"] / told} if told else {},
    )
