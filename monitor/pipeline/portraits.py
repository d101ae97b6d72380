"""Pictures of what the detector concluded by itself: whoever should contradict it must see it.

Which images are worth a picture is written down with the version that concluded them. They are
painted before the next pool is looked at; a monitor that died before paints them when it is back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitor.pipeline.learning import Conclusion
from monitor.pipeline.pictures import Picture
from monitor.pipeline.samples import PoolSamples
from monitor.store import Store, Transaction
from monitor.store.exemplars import (
    Exemplar,
    Unpainted,
    exemplars_of,
    keep_exemplars,
    unpainted,
    want_pictures,
)
from monitor.store.files import BY_PSEUDO_LABEL
from monitor.store.thumbnails import put_thumbnail

#: Of each class, the conclusions that were least certain: what is wrong is most likely there, and
#: a person looks through two dozen pictures at a glance.
MOST = 24

Wanted = Mapping[str, Sequence[Unpainted]]


def worth_seeing(found: Conclusion, samples: PoolSamples) -> dict[str, list[Unpainted]]:
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
    return Unpainted(row["file"], row["row"], shown)


def next_portraits(tx: Transaction) -> tuple[int, Wanted] | None:
    """A pool whose conclusions nobody has painted yet, and what is wanted of it by class."""
    return next(iter(sorted(unpainted(tx).items())), None)


def places(wanted: Wanted) -> list[tuple[str, int]]:
    return [(one.file, one.row) for some in wanted.values() for one in some]


def store_pictures(store: Store, pictures: Sequence[Picture]) -> list[str | None]:
    """Keep the bytes of pictures; their names, in their order."""
    return [
        put_thumbnail(store.folder, picture.thumbnail) if picture.thumbnail else None
        for picture in pictures
    ]


def hang(tx: Transaction, pool_id: int, painted: Mapping[tuple[str, int], str | None]) -> None:
    """Let the classes show what was painted; a picture that could not be had is given up.

    What is still wanted is read anew: a purge may have taken some of it back meanwhile.
    """
    for class_id, some in unpainted(tx).get(pool_id, {}).items():
        digests = [(one, painted.get((one.file, one.row))) for one in some]
        fresh = [one.painted(digest) for one, digest in digests if digest is not None]
        keep_exemplars(tx, class_id, [*exemplars_of(tx, class_id), *fresh])
    want_pictures(tx, pool_id, {})
