"""Thumbnails of pseudo-labels, so that people can see and correct them.

Which images get one is written down with the version that gave the labels. They are rendered before
the next pool is inspected; a monitor that died before renders them when it is back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.pool_samples import PoolSamples
from monitor.pipeline.row_thumbnails import RowThumbnail
from monitor.store import Store, Transaction
from monitor.store.exemplars import (
    Exemplar,
    Unpainted,
    exemplars_of,
    keep_exemplars,
    put_thumbnail,
    unpainted,
    want_pictures,
)
from monitor.store.output_files import BY_PSEUDO_LABEL

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
    return Unpainted(row["file"], row["row"], shown, samples.digest(index))


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
