"""The end of a pool: a settled verdict for each of its images, and what its classes learn from it.

The answers of the pool decide together with its images; see
:mod:`monitor.novelty.settle_pool`. What the pool teaches the classes that are known already
becomes a detector version of its own, through the same gate as discoveries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from monitor.config.schema import GateSection
from monitor.novelty.arrays import Floats
from monitor.novelty.class_growth import GrownClass, grow_classes
from monitor.novelty.detector import Detector
from monitor.novelty.settle_pool import SettledVerdicts, settle_pool
from monitor.pipeline.pool_samples import PoolSamples
from monitor.pipeline.publish_version import GateReport, compare_versions, objection
from monitor.store import (
    Occurrence,
    Store,
    Transaction,
    VersionUpdate,
    commit_settled,
    commit_version,
)
from monitor.store.output_columns import (
    BY_PERSON,
    BY_PSEUDO_LABEL,
    DISCOVERIES,
    SETTLED,
    read_table,
    table,
)
from monitor.store.output_columns import final_name as named
from monitor.store.records import Count, Lease, Pool, Version


@dataclass(frozen=True, slots=True, eq=False)
class SettlementInput:
    """A pool that is over.

    ``answers`` holds class ids by sample. ``taken`` are the samples that the pool's own
    discoveries were fitted on. ``confirmable`` are the classes that enough people have named; None
    if one person is enough. ``grown`` says that the pool has taught its classes before.
    """

    pool_id: int
    answers: Mapping[int, str | None]
    sources: tuple[str, ...]
    shifted: tuple[str, ...]
    seed: int
    taken: frozenset[int] = frozenset()
    confirmable: frozenset[str] | None = None
    grown: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PoolSettlement:
    """What became of the images of a pool, and of its classes.

    ``detector`` knows what the pool taught; None if that is nothing.
    """

    settled: SettledVerdicts
    grown: tuple[GrownClass, ...] = ()
    detector: Detector | None = None
    gate_report: GateReport | None = field(default=None)


def settle(
    state: SettlementInput, base: Detector, current: Detector, features: Floats
) -> PoolSettlement:
    """Settle a pool with ``base``, the detector that it was asked about with.

    What it teaches goes to ``current``, which may have moved on meanwhile.
    """
    settled = settle_pool(
        base,
        features,
        state.answers,
        sources=state.sources,
        shifted=state.shifted,
        seed=state.seed,
    )
    growth = None
    if not state.grown:
        # What a shifted source shows would teach its classes the shift: that is learnt apart, as
        # a mode of its own.
        apart = np.flatnonzero(np.isin(np.array(state.sources), state.shifted))
        growth = grow_classes(
            current,
            features,
            settled,
            state.answers,
            taken=state.taken.union(apart.tolist()),
            confirmable=state.confirmable,
            seed=state.seed,
        )
    if growth is None:
        return PoolSettlement(settled)
    report = compare_versions(current, growth.detector)
    return PoolSettlement(settled, growth.grown, growth.detector, report)


def growth_key(pool_id: int) -> str:
    """The key of the version that holds what a pool taught classes that were known before."""
    return f"growth:{pool_id}"


def publish_growth(
    store: Store,
    found: PoolSettlement,
    samples: PoolSamples,
    parent: int,
    gate: GateSection,
    lease: Lease | None,
) -> Version | None:
    """Commit what a pool taught, unless the gate objects: then the classes stay as they are."""
    if found.detector is None or found.gate_report is None:
        return None
    if objection(found.gate_report, gate) is not None:
        return None
    names = {known.id: known.name for known in found.detector.classes}
    update = VersionUpdate(
        key=growth_key(samples.pool_id),
        detector=found.detector,
        parent=parent,
        discoveries=_learnt(found, samples, names),
        evidence={"grown": [asdict(one) | _counts(one) for one in found.grown]},
        counts=[
            Count("pseudo_labels", "", "accepted", sum(len(one.pseudo) for one in found.grown)),
        ],
        events=[
            Occurrence(
                "class.confirmed" if one.confirmed else "class.grown",
                {"class_id": one.id, "name": names[one.id], "pool": samples.pool_id} | _counts(one),
            )
            for one in found.grown
        ],
    )
    return commit_version(store, update, lease=lease)


def _counts(one: GrownClass) -> dict[str, Any]:
    return {"human": len(one.human), "pseudo": len(one.pseudo)}


def _learnt(found: PoolSettlement, samples: PoolSamples, names: Mapping[str, str]) -> pa.Table:
    """The samples that taught a class, as rows of ``discoveries/``."""
    rows: dict[str, list[Any]] = {name: [] for name in DISCOVERIES.names}
    for one in found.grown:
        told = [(i, BY_PERSON) for i in one.human] + [(i, BY_PSEUDO_LABEL) for i in one.pseudo]
        for index, by in sorted(told):
            for name in ("image_id", "source_id", "captured_at", "file", "row"):
                rows[name].append(samples.meta.column(name)[index].as_py())
            rows["class_id"].append(one.id)
            rows["class_name"].append(names[one.id])
            rows["by"].append(by)
            sure = float(found.settled.posterior.probabilities[index].max())
            rows["confidence"].append(None if by == BY_PERSON else sure)
            rows["pool"].append(samples.pool_id)
            rows["detector_version"].append(0)
    return table(DISCOVERIES, rows)


def discovered_samples(
    store: Store, tx: Transaction, pool: Pool, samples: PoolSamples
) -> list[int]:
    """The samples of a pool that its own discoveries were fitted on."""
    number = pool.resolved_by
    if number is None:
        return []
    found: set[tuple[str, str]] = set()
    for output in tx.outputs.of_kind("discoveries"):
        if output.first <= number <= output.last:
            columns = ["source_id", "image_id", "pool"]
            rows = read_table(store.folder, named(store.folder, output), columns).to_pylist()
            found |= {(r["source_id"], r["image_id"]) for r in rows if r["pool"] == pool.id}
    keys = zip(samples.sources, samples.meta.column("image_id").to_pylist(), strict=True)
    return [index for index, key in enumerate(keys) if key in found]


def commit_undecided(store: Store, samples: PoolSamples, version: int, lease: Lease | None) -> None:
    """Settle a pool as undecided: the attempt to settle it failed, and would again."""
    count = len(samples.keys)
    columns = _columns(samples, version) | {
        "verdict": ["undecided"] * count,
        "probability": [0.5] * count,
        "by": ["score"] * count,
    }
    commit_settled(
        store,
        samples.pool_id,
        1,
        table(SETTLED, columns),
        reason="settling it failed",
        lease=lease,
    )


def _columns(samples: PoolSamples, version: int) -> dict[str, Any]:
    """What every settled row has, whatever its verdict."""
    count = len(samples.keys)
    return {
        **{name: samples.meta.column(name) for name in ("image_id", "source_id", "captured_at")},
        "pool": [samples.pool_id] * count,
        "detector_version": [version] * count,
        "revision": [1] * count,
    }


def commit_settlement(
    store: Store,
    found: PoolSettlement,
    samples: PoolSamples,
    version: int,
    names: Mapping[str, str],
    lease: Lease | None,
) -> None:
    """Write the settled verdicts of a pool, and say in one event what they come to."""
    settled = found.settled
    count = len(settled.verdicts)
    columns = _columns(samples, version) | {
        "verdict": list(settled.verdicts),
        "class_id": list(settled.classes),
        "class_name": [None if c is None else names.get(c, c) for c in settled.classes],
        "probability": settled.probability,
        "by": list(settled.by),
    }
    by_verdict = Counter(zip(samples.sources.tolist(), settled.verdicts, strict=True))
    new = Counter(
        names.get(c, c)
        for c, verdict in zip(settled.classes, settled.verdicts, strict=True)
        if verdict == "new" and c is not None
    )
    commit_settled(
        store,
        samples.pool_id,
        1,
        table(SETTLED, columns),
        reason="the pool is over",
        counts=[
            Count("settled", source, verdict, number)
            for (source, verdict), number in sorted(by_verdict.items())
        ],
        events=[
            Occurrence(
                "pool.settled",
                {
                    "pool": samples.pool_id,
                    "images": count,
                    "verdicts": dict(sorted(Counter(settled.verdicts).items())),
                    "new": dict(new.most_common()),
                },
            )
        ],
        lease=lease,
    )
