"""The metrics: each one's name, help, labels and values, said once.

Names follow the conventions of Prometheus: base units, ``_total`` for what only grows, moments
as ``_timestamp_seconds``. Every function yields its families also when there is nothing to
count yet, so that the page always explains all of them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from monitor import __version__
from monitor.store.states import ClassOrigin, FileState, PoolState, VersionState
from monitor.telemetry.report import OUTCOMES, age
from monitor.telemetry.truth import Source, Truth

Kind = Literal["counter", "gauge", "histogram"]
Values = Mapping[tuple[str, ...], float]

#: Upper borders of the score over T_inner, as the counters name them; 1 is T_inner itself.
BORDERS = ("0.25", "0.5", "0.75", "0.9", "1", "1.1", "1.25", "1.5", "2", "4", "+Inf")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series.

    >>> counter("images_total", "Images.", ("source",), {("cam-1",): 3}).name
    'conclad_images_total'
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    values: Values
    buckets: Mapping[tuple[str, ...], Sequence[tuple[str, float]]] | None = None


def gauge(name: str, help: str, labels: tuple[str, ...], values: Values) -> Family:
    return Family(f"conclad_{name}", "gauge", help, labels, values)


def counter(name: str, help: str, labels: tuple[str, ...], values: Values) -> Family:
    return Family(f"conclad_{name}", "counter", help, labels, values)


def families(truth: Truth, shown: Sequence[Source]) -> Iterator[Family]:
    """Everything that the store knows; ``shown`` are the sources as they get labels."""
    yield from _monitor(truth)
    yield from _feed(truth)
    yield from _by_source(shown, truth.at)
    yield from _scores(shown)
    yield from _detector(truth)
    yield from _classes(truth)
    yield from _pools(truth)
    yield from _people(truth)


def _monitor(truth: Truth) -> Iterator[Family]:
    monitor = truth.coordinator
    yield gauge(
        "build_info",
        "Always 1; the labels say which conclad and which Python this is.",
        ("version", "python"),
        {(__version__, platform.python_version()): 1},
    )
    yield gauge(
        "monitor_running",
        "1 while a monitor holds the lease on this state, else 0.",
        (),
        {(): float(monitor.running)},
    )
    yield gauge(
        "monitor_start_timestamp_seconds",
        "When the monitor that runs, or ran last, took the lease.",
        (),
        _moment(monitor.since),
    )
    yield gauge(
        "actors_up",
        "Actors that are up, by role.",
        ("role",),
        {(role,): float(n) for role, n in monitor.actors_up.items()},
    )
    yield counter(
        "actor_restarts_total",
        "Actors that died and were started again, by role.",
        ("role",),
        # A role that never died is shown with 0, so that its first restart is an increase.
        {(role,): 0.0 for role in monitor.actors_up} | _labelled(truth, "actor_restarts"),
    )


def _feed(truth: Truth) -> Iterator[Family]:
    monitor = truth.coordinator
    yield gauge(
        "files",
        "Files of the feed by state.",
        ("state",),
        {(state.value,): truth.files.get(state, 0) for state in FileState},
    )
    yield gauge(
        "files_waiting",
        "Files of the last listing that are not done yet.",
        (),
        {(): monitor.files_waiting},
    )
    yield gauge(
        "input_lag_seconds",
        "How long the oldest file that waits has been waiting; 0 when none does.",
        (),
        {(): age(monitor.oldest_waiting_at, truth.at) or 0.0},
    )
    yield gauge("batches_pending", "Batches still to do.", (), {(): truth.batches_pending})
    yield counter(
        "batches_total",
        "Batches that were settled, by what became of them.",
        ("state",),
        {(state,): truth.total("batches", state) for state in ("done", "quarantined")},
    )
    yield gauge("sources", "Sources that have sent images.", (), {(): len(truth.sources)})


def _by_source(sources: Sequence[Source], now: datetime) -> Iterator[Family]:
    yield counter(
        "images_total",
        "Images by source and outcome: known, novel, rejected or duplicate.",
        ("source", "outcome"),
        {(s.name, o): s.images.get(o, 0) for s in sources for o in OUTCOMES},
    )
    yield counter(
        "images_rejected_total",
        "Rejected images by source and reason.",
        ("source", "reason"),
        {(s.name, reason): n for s in sources for reason, n in s.rejected.items()},
    )
    yield gauge(
        "source_last_capture_timestamp_seconds",
        "When the latest judged image of a source was taken.",
        ("source",),
        {(s.name,): s.last_captured_at.timestamp() for s in sources if s.last_captured_at},
    )
    yield gauge(
        "source_last_commit_timestamp_seconds",
        "When the latest image of a source was judged.",
        ("source",),
        {(s.name,): s.last_commit_at.timestamp() for s in sources if s.last_commit_at},
    )
    yield gauge(
        "queries_open",
        "Questions that wait for an answer, by the source they are about.",
        ("source",),
        {(s.name,): s.queries_open for s in sources},
    )
    yield gauge(
        "queries_oldest_age_seconds",
        "How long the oldest open question of a source has been waiting; 0 when none is open.",
        ("source",),
        {(s.name,): age(s.oldest_query_at, now) or 0.0 for s in sources},
    )
    yield gauge(
        "drift_score",
        "How far the known classes of a source have moved; above 1 counts as drift.",
        ("source",),
        {(s.name,): s.drift.strength for s in sources if s.drift},
    )
    yield gauge(
        "drift_active",
        "1 while a source counts as drifting, else 0.",
        ("source",),
        {(s.name,): float(s.drift.active) for s in sources if s.drift},
    )


def _scores(sources: Sequence[Source]) -> Iterator[Family]:
    yield Family(
        "conclad_score_ratio",
        "histogram",
        "Scores over T_inner of judged images; above 1 is novel.",
        ("source",),
        {(s.name,): s.ratio_sum for s in sources},
        {(s.name,): _cumulative(s.ratios) for s in sources},
    )
    yield counter(
        "samples_above_t_inner_total",
        "Judged images that lay above T_inner.",
        ("source",),
        {(s.name,): s.above for s in sources},
    )
    yield counter(
        "samples_above_t_inner_expected_total",
        "Judged images that calibration expected above T_inner although nothing is new.",
        ("source",),
        {(s.name,): s.expected_above for s in sources},
    )


def _detector(truth: Truth) -> Iterator[Family]:
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
        "When the detector version in use was put into use.",
        (),
        {} if used is None else _moment(used.updated_at),
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
        "Share of held-out known images above T_inner: what a feed with nothing new shows.",
        (),
        {} if used is None or used.exceedance is None else {(): used.exceedance},
    )


def _classes(truth: Truth) -> Iterator[Family]:
    used = truth.detector
    yield gauge(
        "known_classes",
        "Classes that the detector in use knows.",
        (),
        {(): 0 if used is None else used.known},
    )
    yield gauge(
        "discovered_classes",
        "Those of the known classes that were discovered in the feed.",
        (),
        {(): 0 if used is None else used.discovered},
    )
    yield gauge(
        "classes",
        "Classes that are neither retired nor merged away, by who brought them.",
        ("origin",),
        {(origin.value,): truth.classes.get(origin, 0) for origin in ClassOrigin},
    )
    yield counter("discoveries_total", "Classes discovered.", (), {(): truth.total("discoveries")})
    yield gauge(
        "class_discovered_timestamp_seconds",
        "When a class was discovered, with the source that had most of it; the latest hundred.",
        ("source", "class_id", "class_name"),
        {(d.source or "", d.class_id, d.name): d.at.timestamp() for d in truth.discoveries[::-1]},
    )


def _pools(truth: Truth) -> Iterator[Family]:
    yield gauge(
        "pools",
        "Pools by state.",
        ("state",),
        {(state.value,): truth.pools.get(state, 0) for state in PoolState},
    )
    outcomes = ("discovered", "nothing new", "quiet", "unresolved", "held")
    yield counter(
        "inner_loops_total",
        "Inner loops by outcome; quiet are the pools about which nobody had to be asked.",
        ("outcome",),
        {(o,): 0.0 for o in outcomes} | _labelled(truth, "inner_loops"),
    )
    yield counter(
        "inner_loop_rounds_total",
        "Rounds of questions over all inner loops.",
        (),
        {(): truth.total("inner_loop_rounds")},
    )
    yield counter(
        "inner_loop_seconds_total",
        "Computing time of all inner loops; waiting for people is not in it.",
        (),
        {(): truth.total("inner_loop_seconds")},
    )
    yield counter(
        "pseudo_labels_total",
        "Pseudo-labels that were used, and those that a person contradicted later.",
        ("outcome",),
        {(o,): truth.total("pseudo_labels", o) for o in ("accepted", "contradicted")},
    )


def _people(truth: Truth) -> Iterator[Family]:
    labels, said = truth.labels, {o: truth.total("false_novel", o) for o in ("known", "new")}
    told = sum(said.values())
    yield counter(
        "answers_total",
        "Answers by kind and by what became of them.",
        ("kind", "outcome"),
        {(k.value, o.value): n for (k, o), n in truth.answers.items()},
    )
    yield counter("labels_spent_total", "Questions asked.", (), {(): labels.spent})
    yield gauge(
        "label_budget",
        "Questions that the pools in question may ask, in all.",
        (),
        {(): labels.budget},
    )
    yield gauge(
        "label_budget_remaining",
        "Questions that the pools in question may still ask.",
        (),
        {(): labels.remaining},
    )
    yield gauge(
        "label_budget_weekly",
        "Questions that may be asked in seven days; missing when there is no such limit.",
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
        "Answers about samples above T_inner: really new, known after all, or nobody can tell.",
        ("said",),
        {(o,): truth.total("false_novel", o) for o in ("known", "new", "cannot_tell")},
    )
    yield gauge(
        "false_novel_ratio",
        "Share of samples above T_inner that people called known; missing until somebody answered.",
        (),
        {(): said["known"] / told} if told else {},
    )


def _labelled(truth: Truth, name: str) -> dict[tuple[str, ...], float]:
    return {(label,): value for label, value in truth.by_label(name).items()}


def _moment(at: datetime | None) -> dict[tuple[str, ...], float]:
    return {} if at is None else {(): at.timestamp()}


def _cumulative(ratios: Mapping[str, float]) -> list[tuple[str, float]]:
    """With borders spelt as floats, which is how every Prometheus ends up spelling them.

    >>> _cumulative({"0.5": 2, "1.5": 1})[3:8]
    [('0.9', 2.0), ('1.0', 2.0), ('1.1', 2.0), ('1.25', 2.0), ('1.5', 3.0)]
    """
    total, found = 0.0, []
    for border in BORDERS:
        total += ratios.get(border, 0.0)
        found.append((border if border == "+Inf" else str(float(border)), total))
    return found
