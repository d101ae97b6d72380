"""The metrics: each one's name, help, labels and values, said once.

Names follow the conventions of Prometheus: base units, ``_total`` for what only grows, moments
as ``_timestamp_seconds``. Every function yields its families also when there is nothing to
count yet, so that the page always explains all of them.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from monitor import __version__
from monitor.config.telemetry_section import MetricsSection
from monitor.errors import OUTAGES, ErrorKind
from monitor.store.counters_and_image_account import PLACES
from monitor.store.disk_space import Disk
from monitor.store.record_states import FileState
from monitor.store.verdict_columns import SETTLED_VERDICTS
from monitor.telemetry.detector_metric_catalog import detector_families
from monitor.telemetry.metric_series import Family, counter, gauge, labelled, moment
from monitor.telemetry.source_label_cap import capped
from monitor.telemetry.status_report import OUTCOMES, age
from monitor.telemetry.store_summary import SourceSummary, StoreSummary

#: Upper borders of the score over T_inner, as the counters name them; 1 is T_inner itself.
BORDERS = ("0.25", "0.5", "0.75", "0.9", "1", "1.1", "1.25", "1.5", "2", "4", "+Inf")


#: Silent sources that are named; beyond them only their number is shown. Enough for every failure
#: of single cameras: where more fall silent together, the cause is not a camera.
SILENT_NAMED = 20

#: The default address of the desk.
DESK = "http://localhost:8484"


def families(truth: StoreSummary, shown: Sequence[SourceSummary]) -> Iterator[Family]:
    """Everything that the store knows; ``shown`` are the sources as they get labels."""
    yield from _monitor(truth)
    yield from _webhooks(truth)
    yield from _feed(truth)
    yield from _silence(truth, shown)
    yield from _by_source(shown, truth.at)
    yield from _scores(shown)
    yield from detector_families(truth)


def page_families(
    settings: MetricsSection,
    *,
    store_up: bool,
    seconds: float,
    disk: Disk | None = None,
    away: Collection[ErrorKind] = (),
) -> Iterator[Family]:
    """What the page says of itself, also when the store cannot be read."""
    links = (settings.desk_url or DESK, settings.grafana_url, settings.runbooks_url)
    yield gauge(
        "links_info",
        "Always 1; the labels are the addresses of desk, dashboards and runbooks.",
        ("desk", "grafana", "runbooks"),
        {tuple(link.rstrip("/") for link in links): 1},
    )
    yield gauge(
        "store_up",
        "1 if the store answered for this page, or less than a minute ago and is slow; else 0, and "
        "most metrics are missing.",
        (),
        {(): float(store_up)},
    )
    yield gauge(
        "feed_up",
        "1 when the folder or bucket of the feed could be listed and read, else 0.",
        (),
        {(): float(ErrorKind.FEED not in away)},
    )
    missing = set(away) if store_up else {*away, ErrorKind.STORE}
    yield gauge(
        "outage",
        "1 while the monitor waits for an outage to end, by kind; else 0.",
        ("kind",),
        {(kind.value,): float(kind in missing) for kind in sorted(OUTAGES)},
    )
    yield gauge(
        "store_read_seconds",
        "How long this page waited for the store, at most five seconds.",
        (),
        {(): seconds},
    )
    yield gauge(
        "state_disk_free_bytes",
        "Free space on the disk of the state folder; missing if it is a bucket.",
        (),
        {} if disk is None else {(): disk.free},
    )
    yield gauge(
        "state_disk_size_bytes",
        "Size of the disk of the state folder; missing if it is a bucket.",
        (),
        {} if disk is None else {(): disk.size},
    )
    inodes = None if disk is None else disk.inodes
    yield gauge(
        "state_disk_free_inodes_ratio",
        "Share of the inodes of that disk that is free; missing where it counts none.",
        (),
        {} if inodes is None else {(): inodes},
    )


#: Durations are the one thing that a process knows and the store does not.
STAGES = Family(
    "conclad_stage_duration_seconds",
    "histogram",
    "Durations of the stages of the work in this process since it started.",
    ("stage",),
    {},
)


def _monitor(truth: StoreSummary) -> Iterator[Family]:
    monitor = truth.coordinator
    yield gauge(
        "build_info",
        "Always 1; the labels are the versions of conclad and Python.",
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
        moment(monitor.since),
    )
    yield gauge(
        "actors_up",
        "Actors that are up, by role.",
        ("role",),
        {(role,): float(n) for role, n in monitor.actors_up.items()},
    )
    yield gauge(
        "actors_starting",
        "Actors that were requested and are not up yet: they load or wait for a node.",
        ("role",),
        {(role,): float(n) for role, n in monitor.actors_starting.items()},
    )
    yield counter(
        "actor_restarts_total",
        "Actors that died and were started again, by role.",
        ("role",),
        # A role that never died is shown with 0, so that its first restart is an increase.
        {(role,): 0.0 for role in monitor.actors_up} | labelled(truth, "actor_restarts"),
    )
    yield counter(
        "forgotten_total",
        "Digests of images and routine events that were older than they are kept.",
        ("what",),
        {(what,): 0.0 for what in ("digests", "events")} | labelled(truth, "forgotten"),
    )


def _webhooks(truth: StoreSummary) -> Iterator[Family]:
    yield gauge(
        "webhook_failures",
        "Consecutive failed deliveries to a receiver; 0 after a success.",
        ("receiver",),
        {(receiver,): failures for receiver, failures in truth.webhooks.items()},
    )


def _feed(truth: StoreSummary) -> Iterator[Family]:
    yield gauge(
        "files",
        "Files of the feed by state.",
        ("state",),
        {(state.value,): truth.files.get(state, 0) for state in FileState},
    )
    yield gauge(
        "files_waiting",
        "Files that are new or have unfinished batches.",
        (),
        {(): truth.files_waiting},
    )
    yield gauge(
        "input_lag_seconds",
        "How long the oldest waiting file has waited; 0 if none waits.",
        (),
        {(): age(truth.oldest_waiting_at, truth.at) or 0.0},
    )
    yield gauge("batches_pending", "Batches still to do.", (), {(): truth.batches_pending})
    yield counter(
        "batches_total",
        "Finished batches by outcome.",
        ("state",),
        {(state,): truth.total("batches", state) for state in ("done", "quarantined")},
    )
    sums = truth.account
    yield gauge(
        "account_images",
        "Images of all files that were opened, by where they are: verdicts, rejected, quarantined, "
        "waiting or dropped.",
        ("place",),
        {(place,): getattr(sums, place) for place in PLACES},
    )
    yield gauge(
        "account_images_listed",
        "Images of all files that were opened; equals the sum of conclad_account_images.",
        (),
        {(): sums.listed},
    )
    yield gauge(
        "images_unaccounted",
        "Images without a verdict, a reason or a place in a queue; 0 unless images are lost.",
        (),
        {(): sums.unaccounted},
    )
    yield gauge(
        "quarantined",
        "Files, batches and images that are quarantined and wait for a person.",
        ("what",),
        {(what,): truth.quarantined.get(what, 0) for what in ("files", "batches", "images")},
    )
    yield gauge("sources", "Sources that have sent images.", (), {(): len(truth.sources)})


def _silence(truth: StoreSummary, shown: Sequence[SourceSummary]) -> Iterator[Family]:
    yield gauge(
        "sources_silent",
        "Sources that should have sent by now, by the hours in which they usually send.",
        (),
        {(): len(truth.silent)},
    )
    yield gauge(
        "source_silent_seconds",
        "How long ago a silent source last sent; at most twenty sources, the longest silent.",
        ("source",),
        {(s.source,): s.seconds for s in truth.silent[:SILENT_NAMED]},
    )
    yield gauge(
        "sources_capped",
        "Sources without metrics of their own because of metrics.sources_most.",
        (),
        {(): capped(truth.sources, shown)},
    )


def _by_source(sources: Sequence[SourceSummary], now: datetime) -> Iterator[Family]:
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
    yield counter(
        "images_reused_total",
        "Images that show what an earlier frame of their source shows and reused its features; "
        "they are among the known and novel ones.",
        ("source",),
        {(s.name,): s.reused for s in sources if s.reused},
    )
    yield gauge(
        "reuse_score_change",
        "By how much the score over T_inner of a reused image would differ: the mean over images "
        "that were embedded to see, of each batch the one that differs most.",
        ("source",),
        {(s.name,): s.reuse_change / s.reuse_checks for s in sources if s.reuse_checks},
    )
    yield counter(
        "images_settled_total",
        "Images of finished pools by source and settled verdict.",
        ("source", "verdict"),
        {
            (s.name, verdict): s.settled.get(verdict, 0)
            for s in sources
            for verdict in SETTLED_VERDICTS
        },
    )
    yield gauge(
        "source_last_capture_timestamp_seconds",
        "When the latest scored image of a source was taken.",
        ("source",),
        {(s.name,): s.last_captured_at.timestamp() for s in sources if s.last_captured_at},
    )
    yield counter(
        "images_implausible_time_total",
        "Images with a capture time in the future or before 1990; they are scored, and ignored "
        "in all other metrics about time.",
        ("source",),
        {(s.name,): s.implausible for s in sources if s.implausible},
    )
    yield gauge(
        "source_last_commit_timestamp_seconds",
        "When the latest image of a source was committed.",
        ("source",),
        {(s.name,): s.last_commit_at.timestamp() for s in sources if s.last_commit_at},
    )
    yield gauge(
        "questions_open",
        "Questions that wait for an answer, by the source they are about.",
        ("source",),
        {(s.name,): s.questions_open for s in sources},
    )
    yield gauge(
        "questions_suspected",
        "Open questions about pools for which the trigger fired; without the few questions of a "
        "quiet feed (labels.trickle_per_week).",
        ("source",),
        {(s.name,): s.questions_suspected for s in sources},
    )
    yield gauge(
        "questions_oldest_age_seconds",
        "How long the oldest open question of a source has been waiting; 0 when none is open.",
        ("source",),
        {(s.name,): age(s.oldest_question_at, now) or 0.0 for s in sources},
    )
    yield gauge(
        "drift_score",
        "Evidence that the known classes of a source have moved; reported from 1 on.",
        ("source",),
        {(s.name,): s.drift.level for s in sources if s.drift},
    )
    yield gauge(
        "drift_strength",
        "How far the known classes of a source have moved; 1 is the spread within a class.",
        ("source",),
        {(s.name,): s.drift.strength for s in sources if s.drift},
    )
    yield gauge(
        "drift_active",
        "1 while a source counts as drifting, else 0.",
        ("source",),
        {(s.name,): float(s.drift.active) for s in sources if s.drift},
    )
    yield gauge(
        "shift_corrected",
        "1 while a source is judged with its shift corrected, else 0.",
        ("source",),
        {(s.name,): float(s.corrected) for s in sources if s.drift or s.corrected},
    )


def _scores(sources: Sequence[SourceSummary]) -> Iterator[Family]:
    yield Family(
        "conclad_score_ratio",
        "histogram",
        "Scores over T_inner of scored images; above 1 is novel.",
        ("source",),
        {(s.name,): s.ratio_sum for s in sources},
        {(s.name,): _cumulative(s.ratios) for s in sources},
    )
    yield counter(
        "samples_above_t_inner_total",
        "Scored images above T_inner.",
        ("source",),
        {(s.name,): s.above for s in sources},
    )
    yield counter(
        "samples_above_t_inner_expected_total",
        "Scored images that calibration expects above T_inner if nothing is new.",
        ("source",),
        {(s.name,): s.expected_above for s in sources},
    )


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
