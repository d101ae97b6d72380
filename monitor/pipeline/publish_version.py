"""From what the inner loop concluded to a version of the detector, published or held.

The gate says what a new version must hold before it judges the feed. With the version it is written
down which pseudo-labels get thumbnails, so that people can see and correct them. They are rendered
before the next pool is inspected; a monitor that died before renders them when it is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from monitor.config.schema import GateSection
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Discovery
from monitor.novelty.trigger.rate_bounds import rate_interval
from monitor.pipeline.pool_samples import PoolSamples
from monitor.pipeline.pool_steps import accept_shift
from monitor.pipeline.worker_tools import RowThumbnail
from monitor.store import NewClass, Occurrence, Store, Transaction, VersionUpdate, commit_version
from monitor.store.exemplars import (
    Exemplar,
    Unpainted,
    exemplars_of,
    keep_exemplars,
    put_thumbnail,
    unpainted,
    want_pictures,
)
from monitor.store.output_columns import BY_PERSON, BY_PSEUDO_LABEL, DISCOVERIES, table
from monitor.store.records import Count, Lease, Version
from monitor.store.states import ClassOrigin

if TYPE_CHECKING:
    from monitor.pipeline.inner_loop_driver import LoopConclusion


@dataclass(frozen=True, slots=True)
class GateReport:
    """How a new version treats what was known before it."""

    false_novel: float
    """Share of known images of the old classes that it calls novel."""
    stolen: float
    """Of the old class that loses most, the share of known images that a new class takes at the
    least, with 95% certainty."""
    stolen_from: str | None
    labels: Mapping[str, int]
    """Answers by people behind each new class, by name."""


def compare_versions(before: Detector, after: Detector) -> GateReport:
    """Put known images of the old classes before the new detector, none helped by itself.

    What a class loses is counted among the images that were fitted or named by people: one that
    the detector gave to a young class may well belong to the new one. Of few images a few are lost
    by chance, so the loss is the least that they leave open.
    """
    old = {known.id for known in before.classes}
    is_new = np.asarray([known.id not in old for known in after.classes])
    judged = after.judged
    owners = after.references.classes[judged.rows]
    mine = ~is_new[owners]
    novel = judged.score[mine] > after.calibration.t_inner
    taken = is_new[judged.nearest]
    said = np.concatenate([known.said for known in after.classes])[judged.rows]
    losses = {}
    for position, known in enumerate(after.classes):
        rows = said & (owners == position)
        if known.id in old and rows.any():
            losses[known.name], _ = rate_interval(int(taken[rows].sum()), int(rows.sum()))
    loser = max(losses, key=lambda name: losses[name]) if losses else None
    return GateReport(
        false_novel=float(novel.mean()) if len(novel) else 0.0,
        stolen=losses[loser] if loser else 0.0,
        stolen_from=loser if loser and losses[loser] > 0 else None,
        labels={known.name: known.human for known in after.classes if known.id not in old},
    )


def objection(found: GateReport, gate: GateSection) -> str | None:
    """Why the version must wait for an operator, in a sentence; None if it need not."""
    if found.false_novel > gate.false_novel_most:
        return (
            f"it calls {found.false_novel:.1%} of held-out known images novel, more than "
            f"gate.false_novel_most allows ({gate.false_novel_most:.1%})"
        )
    if found.stolen > gate.stolen_most:
        return (
            f"a new class takes at least {found.stolen:.1%} of the held-out images of "
            f"{found.stolen_from!r}, more than gate.stolen_most allows ({gate.stolen_most:.1%})"
        )
    for name, labels in found.labels.items():
        if labels < gate.least_labels:
            return (
                f"class {name!r} rests on {labels} answers, fewer than gate.least_labels requires "
                f"({gate.least_labels})"
            )
    return None


#: Of each class, the conclusions that were least certain: what is wrong is most likely there, and
#: a person looks through two dozen pictures at a glance.
MOST = 24


def least_certain(found: LoopConclusion, samples: PoolSamples) -> dict[str, list[Unpainted]]:
    """The pseudo-labels of each new class that people should see, the least certain first."""
    return {
        discovery.name: [
            _unpainted(samples, label.sample, label.confidence)
            for label in sorted(discovery.pseudo, key=lambda one: one.confidence)[:MOST]
        ]
        for discovery in found.discoveries
    }


def _unpainted(samples: PoolSamples, index: int, confidence: float) -> Unpainted:
    row = {name: samples.meta.column(name)[index].as_py() for name in samples.meta.column_names}
    shown = Exemplar(
        "", BY_PSEUDO_LABEL, row["source_id"], row["image_id"], row["captured_at"], confidence
    )
    return Unpainted(row["file"], row["row"], shown, row.get("image_digest"))


def next_missing_thumbnails(tx: Transaction) -> tuple[int, list[Unpainted]] | None:
    """A pool whose pseudo-labels have no thumbnails yet, and what they shall show."""
    for pool_id, by_class in sorted(unpainted(tx).items()):
        return pool_id, [one for some in by_class.values() for one in some]
    return None


def store_thumbnails(store: Store, rendered: Sequence[RowThumbnail]) -> list[str | None]:
    """Keep the bytes of thumbnails; their names, in their order."""
    return [
        put_thumbnail(store.folder, one.thumbnail) if one.thumbnail else None for one in rendered
    ]


def attach_thumbnails(
    tx: Transaction, pool_id: int, rendered: Mapping[tuple[str, int], str | None]
) -> None:
    """Let the classes show what was rendered; a thumbnail that could not be had is given up.

    What is still wanted is read anew: a purge may have taken some of it back meanwhile.
    """
    for class_id, some in unpainted(tx).get(pool_id, {}).items():
        digests = [(one, rendered.get((one.file, one.row))) for one in some]
        fresh = [one.painted(digest) for one, digest in digests if digest is not None]
        keep_exemplars(tx, class_id, [*exemplars_of(tx, class_id), *fresh])
    want_pictures(tx, pool_id, {})


def publish_version(
    store: Store,
    found: LoopConclusion,
    samples: PoolSamples,
    parent: int,
    gate: GateSection,
    lease: Lease | None,
) -> Version:
    """Commit the version that knows a pool's discoveries; the gate may hold it.

    Raises WrongState if another version has come into use since the loop concluded.
    """
    assert found.detector is not None
    assert found.gate_report is not None
    reason = None if found.provisional else objection(found.gate_report, gate)
    origin = ClassOrigin.PROVISIONAL if found.provisional else ClassOrigin.PERSON
    names = {known.id: known.name for known in found.detector.classes}
    held = reason is not None

    def also(tx: Transaction) -> None:
        want_pictures(tx, samples.pool_id, least_certain(found, samples))
        if not held:
            # A look that people have called known, and the detector has learnt, is normal now.
            accept_shift(tx, found.settled)

    update = VersionUpdate(
        key=f"pool:{samples.pool_id}",
        detector=found.detector,
        parent=parent,
        classes=[NewClass(d.name, names[d.name], origin) for d in found.discoveries],
        discoveries=_discoveries(found, samples, found.detector),
        pool_id=samples.pool_id,
        held=held,
        reason=reason,
        evidence={
            "outcome": found.outcome,
            "rounds": found.rounds,
            "above": found.above,
            "gate": asdict(found.gate_report),
            "adapted": {s: [asdict(c) for c in classes] for s, classes in found.adapted.items()},
        },
        counts=_counts(found, held=held),
        events=[] if held else _events(found, samples, names),
        also=also,
    )
    return commit_version(store, update, lease=lease)


def _discoveries(found: LoopConclusion, samples: PoolSamples, detector: Detector) -> pa.Table:
    """Which sample was given to which new class, by whom, and how surely."""
    names = {known.id: known.name for known in detector.classes}
    rows: dict[str, list[Any]] = {name: [] for name in DISCOVERIES.names}
    for discovery in found.discoveries:
        told: list[tuple[int, str, float | None]] = [(i, BY_PERSON, None) for i in discovery.human]
        told += [(p.sample, BY_PSEUDO_LABEL, p.confidence) for p in discovery.pseudo]
        for index, by, confidence in sorted(told):
            for name in ("image_id", "source_id", "captured_at", "file", "row"):
                rows[name].append(samples.meta.column(name)[index].as_py())
            rows["class_id"].append(discovery.name)
            rows["class_name"].append(names[discovery.name])
            rows["by"].append(by)
            rows["confidence"].append(confidence)
            rows["pool"].append(samples.pool_id)
            # The number is filled in when the version gets its own.
            rows["detector_version"].append(0)
    return table(DISCOVERIES, rows)


def _counts(found: LoopConclusion, *, held: bool) -> list[Count]:
    pseudo = sum(len(d.pseudo) for d in found.discoveries)
    learnt = "discovered" if found.discoveries else "adapted" if found.adapted else found.outcome
    return [
        Count("inner_loops", "", "held" if held else learnt, 1),
        Count("inner_loop_rounds", "", "", found.rounds),
        Count("inner_loop_seconds", "", "", found.seconds),
        Count("discoveries", "", "", 0 if held else len(found.discoveries)),
        Count("pseudo_labels", "", "accepted", pseudo),
    ]


def _events(
    found: LoopConclusion, samples: PoolSamples, names: Mapping[str, str]
) -> list[Occurrence]:
    adapted = [
        Occurrence("detector.adapted", {"classes": [c.name for c in classes]}, source=source)
        for source, classes in found.adapted.items()
    ]
    return [_discovered(d, names[d.name], samples) for d in found.discoveries] + adapted


def _discovered(discovery: Discovery, name: str, samples: PoolSamples) -> Occurrence:
    """The event that people wait for: a new class, where, and on what evidence."""
    column = samples.meta.column("source_id")
    sources = Counter(column[i].as_py() for i in discovery.samples)
    return Occurrence(
        "class.discovered",
        {
            "class_id": discovery.name,
            "name": name,
            "pool": samples.pool_id,
            "human": len(discovery.human),
            "pseudo": len(discovery.pseudo),
            "confirmed": discovery.confirmed,
            "sources": dict(sorted(sources.items())),
        },
        source=sources.most_common(1)[0][0],
    )
