"""What becomes durable of a pool: the detector version that it brought, and its settled verdicts.

A version passes the gate (:mod:`monitor.pipeline.version_gate`) or is held. With it is written down
which pseudo-labels get thumbnails, so that people can see and correct them. They are rendered
before the next pool is inspected; a monitor that died before renders them when it is back.

What a finished pool teaches the classes that are known already becomes a version of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from monitor.config.schema import GateSection
from monitor.novelty.class_growth import GrownClass
from monitor.novelty.inner_loop import Discovery
from monitor.pipeline.drift_states import accept_shift
from monitor.pipeline.finish_pool import PoolSettlement
from monitor.pipeline.pool_samples import (
    PoolSamples,
    discovery_rows,
    discovery_table,
    settled_table,
)
from monitor.pipeline.version_gate import objection
from monitor.pipeline.worker_tasks import RowThumbnail
from monitor.store import (
    NewClass,
    Occurrence,
    Store,
    Transaction,
    VersionUpdate,
    commit_settled,
    commit_version,
)
from monitor.store.counters_and_image_account import SourceSteps
from monitor.store.exemplars import (
    Exemplar,
    MissingThumbnail,
    exemplars_of,
    keep_exemplars,
    missing_thumbnails,
    put_thumbnail,
    want_pictures,
    wanted_pictures,
)
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Count, Lease, Version
from monitor.store.verdict_columns import BY_PSEUDO_LABEL

if TYPE_CHECKING:
    from monitor.pipeline.inner_loop_driver import LoopConclusion

#: Of each class, the conclusions that were least certain: what is wrong is most likely there, and
#: a person looks through two dozen pictures at a glance.
MOST = 24


def least_certain(found: LoopConclusion, samples: PoolSamples) -> dict[str, list[MissingThumbnail]]:
    """The pseudo-labels of each new class that people should see, the least certain first."""
    return {
        discovery.name: [
            _missing(samples, label.sample, label.confidence)
            for label in sorted(discovery.pseudo, key=lambda one: one.confidence)[:MOST]
        ]
        for discovery in found.discoveries
    }


def _missing(samples: PoolSamples, index: int, confidence: float) -> MissingThumbnail:
    row = {name: samples.meta.column(name)[index].as_py() for name in samples.meta.column_names}
    shown = Exemplar(
        "", BY_PSEUDO_LABEL, row["source_id"], row["image_id"], row["captured_at"], confidence
    )
    return MissingThumbnail(row["file"], row["row"], shown, row.get("image_digest"))


def next_missing_thumbnails(tx: Transaction) -> tuple[int, list[MissingThumbnail]] | None:
    """A pool whose pseudo-labels have no thumbnails yet, and what they will show."""
    for pool_id, by_class in sorted(missing_thumbnails(tx).items()):
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

    What is still wanted is read again: a purge may have taken some of it back meanwhile.
    """
    for class_id, some in missing_thumbnails(tx).get(pool_id, {}).items():
        digests = [(one, rendered.get((one.file, one.row))) for one in some]
        fresh = [one.with_thumbnail(digest) for one, digest in digests if digest is not None]
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

    rows = {
        d.name: discovery_rows(
            samples,
            d.name,
            names[d.name],
            d.human,
            [(label.sample, label.confidence) for label in d.pseudo],
        )
        for d in found.discoveries
    }
    # A look that people have called known, and the detector has learnt, is normal now.
    accept = partial(accept_shift, sources=found.settled) if found.settled and not held else None
    update = VersionUpdate(
        key=f"pool:{samples.pool_id}",
        detector=found.detector,
        parent=parent,
        classes=[NewClass(d.name, names[d.name], origin) for d in found.discoveries],
        discoveries=discovery_table([row for some in rows.values() for row in some]),
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
        counts=_loop_counts(found, held=held),
        events=[] if held else _events(found, rows, samples.pool_id),
        notes=wanted_pictures(samples.pool_id, least_certain(found, samples)),
        also=accept,
    )
    return commit_version(store, update, lease=lease)


def _loop_counts(found: LoopConclusion, *, held: bool) -> list[Count]:
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
    found: LoopConclusion, rows: Mapping[str, Sequence[Mapping[str, Any]]], pool_id: int
) -> list[Occurrence]:
    adapted = [
        Occurrence("detector.adapted", {"classes": [c.name for c in classes]}, source=source)
        for source, classes in found.adapted.items()
    ]
    return [_discovered(d, rows[d.name], pool_id) for d in found.discoveries] + adapted


def _discovered(
    discovery: Discovery, rows: Sequence[Mapping[str, Any]], pool_id: int
) -> Occurrence:
    """The event that people wait for: a new class, where, and on what evidence."""
    sources = Counter(row["source_id"] for row in rows)
    return Occurrence(
        "class.discovered",
        {
            "class_id": discovery.name,
            "name": rows[0]["class_name"],
            "pool": pool_id,
            "human": len(discovery.human),
            "pseudo": len(discovery.pseudo),
            "confirmed": discovery.confirmed,
            "sources": dict(sorted(sources.items())),
        },
        source=sources.most_common(1)[0][0],
    )


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
        key=samples.growth_key,
        detector=found.detector,
        parent=parent,
        discoveries=discovery_table(
            [row for one in found.grown for row in _learnt(one, names[one.id], found, samples)]
        ),
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


def _learnt(
    one: GrownClass, name: str, found: PoolSettlement, samples: PoolSamples
) -> list[dict[str, Any]]:
    """The samples that taught a class, as rows of ``discoveries/``."""
    most = found.settled.posterior.probabilities.max(axis=1)
    pseudo = [(index, float(most[index])) for index in one.pseudo]
    return discovery_rows(samples, one.id, name, one.human, pseudo)


def commit_undecided(store: Store, samples: PoolSamples, version: int, lease: Lease | None) -> None:
    """Settle a pool as undecided: the attempt to settle it failed, and would again."""
    count = len(samples.keys)
    found = {
        "verdict": ["undecided"] * count,
        "probability": [0.5] * count,
        "by": ["score"] * count,
    }
    commit_settled(
        store,
        samples.pool_id,
        1,
        settled_table(samples, version, found),
        reason="settling it failed",
        lease=lease,
    )


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
    columns = {
        "verdict": list(settled.verdicts),
        "class_id": list(settled.classes),
        "class_name": [None if c is None else names.get(c, c) for c in settled.classes],
        "probability": settled.probability,
        "by": list(settled.by),
    }
    new = Counter(
        names.get(c, c)
        for c, verdict in zip(settled.classes, settled.verdicts, strict=True)
        if verdict == "new" and c is not None
    )
    commit_settled(
        store,
        samples.pool_id,
        1,
        settled_table(samples, version, columns),
        reason="the pool is over",
        steps=[_by_source(samples.sources, settled.verdicts)],
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


def _by_source(sources: np.ndarray, verdicts: Sequence[str]) -> SourceSteps:
    """How many images of each source were settled in which way."""
    names, index = np.unique(sources.astype(np.str_), return_inverse=True)
    given = np.asarray(verdicts, dtype=np.str_)
    rises = {}
    for verdict in sorted(set(verdicts)):
        counts = np.bincount(index[given == verdict], minlength=len(names))
        present = np.flatnonzero(counts)
        rises["settled", verdict] = (present, counts[present].astype(float))
    return SourceSteps(names.tolist(), rises)
