"""Features of purged images inside detectors: found, and taken out of every version.

A class keeps features of some of its images (its references). Which of them came from a purged
image is told by the discoveries, which name the version that brought an image into a class: what
that version added to the class is compared with the features of the image while its pool has
them; where the pool has let go of them, all that the version added goes. Classes that learnt the
look of a shifted source keep images of it that no discovery names; the version says which source.

The version in use is followed by one without them, which a running monitor takes up like any
other; older ones are rewritten, so that going back to them brings nothing back. Means and
directions of a class stay where they rest on at least three images.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sqlalchemy import select

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector, KnownClass
from monitor.store.errors import WrongState
from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.records import Version
from monitor.store.snapshots import load_snapshot, publish_snapshot
from monitor.store.store import Store, Transaction
from monitor.store.tables import detector_versions, pools
from monitor.store.verdict_columns import feature_matrix, final_name, read_table
from monitor.store.version_and_settled_commit import VersionUpdate, commit_version

#: Below this many images a mean says what one of them looks like; such a class is dropped.
FEWEST = 3

#: Tries to publish a clean version while others publish; more in a row is no accident.
TRIES = 3

_PENDING = ("purge", "features")
"""Digests that a version still holds because a waiting pool needs that version as it is."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """A purged image that taught a class."""

    class_id: str
    version: int
    source_id: str
    image_id: str
    pool: int | None


@dataclass(frozen=True, slots=True)
class AdaptedTo:
    """A class that learnt how the source of purged images looked under a shift."""

    class_id: str
    version: int
    pool: int


@dataclass(frozen=True, slots=True)
class _Meant:
    """What must not be in a detector any more."""

    digests: frozenset[bytes]
    tiny: frozenset[str]
    """Classes that a purged image taught; they go where they rest on fewer than three."""


def forget_features(
    store: Store,
    images: Sequence[Discovered],
    adapted: Sequence[AdaptedTo],
    in_pools: Mapping[int, Floats],
    who: str,
) -> list[int]:
    """Take these images out of all detectors; returns the versions that are left to do.

    ``in_pools`` has the features of purged images in pools that keep them, by pool. The versions
    returned are those that pools wait with: purge again when the pools are settled.
    """
    with store.reading() as tx:
        pending = [bytes.fromhex(one) for one in tx.notes.get(*_PENDING, [])]
    learnt = {_digest(row) for features in in_pools.values() for row in features}
    for one in adapted:
        if one.pool not in in_pools:
            learnt |= _added(store, one.class_id, one.version)
    digests = frozenset({*pending, *learnt, *_digests(store, images)})
    meant = _Meant(digests, frozenset(one.class_id for one in images))
    if not meant.digests and not meant.tiny:
        return []
    _follow(store, meant, who)
    with store.reading() as tx:
        needed = (
            tx.connection.execute(
                select(pools.c.detector_version).where(pools.c.state.not_in(FINISHED_POOLS))
            )
            .scalars()
            .all()
        )
        versions = tx.versions.all()
    left = [one.number for one in versions if not _rewrite(store, one, meant, one.number in needed)]
    with store.transaction() as tx:
        if left:
            tx.notes.set(*_PENDING, sorted(one.hex() for one in digests))
        else:
            tx.notes.delete(*_PENDING)
    return left


def _digests(store: Store, images: Sequence[Discovered]) -> set[bytes]:
    """The features meant, each by its digest."""
    known = _spooled(store, {one.pool for one in images if one.pool is not None})
    found: set[bytes] = set()
    lessons: dict[tuple[str, int], list[Discovered]] = {}
    for one in images:
        lessons.setdefault((one.class_id, one.version), []).append(one)
    for (class_id, number), some in lessons.items():
        spooled = [known.get((one.source_id, one.image_id)) for one in some]
        if None in spooled:
            found |= _added(store, class_id, number)
        else:
            found |= {digest for digest in spooled if digest is not None}
    return found


def _spooled(store: Store, pools: Iterable[int]) -> dict[tuple[str, str], bytes]:
    """Digests of the features that pools still have, by source and image."""
    found: dict[tuple[str, str], bytes] = {}
    for pool_id in pools:
        with store.reading() as tx:
            members = tx.pools.members(pool_id)
        for member in members:
            spool = read_table(store.folder, final_name(store.folder, member))
            keys = zip(
                *(spool.column(n).to_pylist() for n in ("source_id", "image_id")), strict=True
            )
            rows = feature_matrix(spool.column("features"))
            found |= {key: _digest(row) for key, row in zip(keys, rows, strict=True)}
    return found


def _added(store: Store, class_id: str, number: int) -> set[bytes]:
    """What a version added to the references of a class."""
    with store.reading() as tx:
        version = tx.versions.get(number)
        parent = None if version.parent is None else tx.versions.get(version.parent)
    after = _references(store, version, class_id)
    return after - (_references(store, parent, class_id) if parent else set())


def _references(store: Store, version: Version, class_id: str) -> set[bytes]:
    for known in _load(store, version).classes:
        if known.id == class_id:
            return {_digest(row) for row in known.references}
    return set()


def _follow(store: Store, meant: _Meant, who: str) -> None:
    """Put a version into use that lacks what is meant, if the one in use has any of it."""
    for remaining in reversed(range(TRIES)):
        with store.reading() as tx:
            current = tx.versions.current()
        if current is None:
            return
        detector = _load(store, current)
        clean = without_features(detector, meant)
        if clean is None:
            return
        dropped = {one.id for one in detector.classes} - {one.id for one in clean.classes}
        update = VersionUpdate(
            f"purge:{uuid.uuid4().hex}",
            clean,
            current.number,
            reason="without the features of images that were purged",
            who=who,
            also=partial(_retire, dropped),
        )
        try:
            commit_version(store, update)
        except WrongState:
            if not remaining:
                raise
            continue  # somebody published in between: clean what they published
        return


def _retire(class_ids: Iterable[str], tx: Transaction) -> None:
    for class_id in class_ids:
        tx.classes.retire(class_id)


def _rewrite(store: Store, version: Version, meant: _Meant, needed: bool) -> bool:
    """Rewrite a version without the purged images; False if it must wait."""
    clean = without_features(_load(store, version), meant)
    if clean is None:
        return True
    if needed:
        return False
    stem, _, generation = version.snapshot.partition("~")
    snapshot = publish_snapshot(store.folder, f"{stem}~{int(generation or 0) + 1}", clean)
    with store.transaction() as tx:
        tx.connection.execute(
            detector_versions.update()
            .where(detector_versions.c.number == version.number)
            .values(snapshot=snapshot.name, sha256=snapshot.sha256)
        )
    store.folder.delete_folder(version.snapshot)
    return True


def without_features(detector: Detector, meant: _Meant) -> Detector | None:
    """The detector without some features; None if it has none of them."""
    classes: list[KnownClass] = []
    changed = False
    for known in detector.classes:
        if known.id in meant.tiny and known.count < FEWEST:
            changed = True
            continue
        keep = np.array([_digest(row) not in meant.digests for row in known.references], bool)
        if keep.all():
            classes.append(known)
            continue
        changed = True
        classes.append(_thinned(known, keep, detector))
    if not changed:
        return None
    return Detector.of(classes, fingerprint=detector.fingerprint, settings=detector.settings)


def _thinned(known: KnownClass, keep: np.ndarray, detector: Detector) -> KnownClass:
    """Fitted again where the references are all that the class rests on, else without some."""
    if len(known.modes) == 1 and known.count == len(keep) and keep.sum() >= FEWEST:
        again = KnownClass.fit(
            known.id,
            known.name,
            known.references[keep],
            settings=detector.settings,
            rng=np.random.default_rng(0),
            origin=known.origin,
            said=known.said[keep],
            confirmed=known.confirmed,
        )
        return replace(again, human=min(known.human, again.count))
    return replace(
        known, references=known.references[keep], own=known.own[keep], said=known.said[keep]
    )


def _load(store: Store, version: Version) -> Detector:
    return load_snapshot(store.folder, version.snapshot, sha256=version.sha256)


def _digest(features: Floats) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(features, np.float32).tobytes()).digest()[:16]
