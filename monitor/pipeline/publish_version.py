"""From what the inner loop concluded to a version of the detector, published or held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from monitor.config.schema import GateSection
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Discovery
from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.pool_decision import accept_shift
from monitor.pipeline.pool_samples import PoolSamples
from monitor.pipeline.pseudo_label_thumbnails import least_certain
from monitor.pipeline.publish_gate import objection
from monitor.store import NewClass, Occurrence, Store, Transaction, VersionUpdate, commit_version
from monitor.store.exemplars import want_pictures
from monitor.store.output_files import BY_PERSON, BY_PSEUDO_LABEL, DISCOVERIES, table
from monitor.store.records import Count, Lease, Version
from monitor.store.states import ClassOrigin


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
    return [
        Count("inner_loops", "", "held" if held else found.kind, 1),
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
