"""Pseudo-labels: what the detector concluded by itself, and what people say is wrong about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from sqlalchemy import false

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector, KnownClass
from monitor.people.class_corrections import Changed, living, operation_id, publish_change
from monitor.people.errors import NotPossible
from monitor.store.errors import NotFound
from monitor.store.exemplars import exemplars_of, keep_exemplars, thumbnail_name
from monitor.store.note_and_counter_names import WRONG_LABELS
from monitor.store.record_states import VersionState
from monitor.store.records import Count, Occurrence
from monitor.store.retention import forget_thumbnails
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import BY_PERSON, BY_PSEUDO_LABEL, feature_matrix, read_table


@dataclass(frozen=True, slots=True)
class Assigned:
    """One sample that a discovery brought into a class."""

    class_id: str
    source_id: str
    image_id: str
    captured_at: datetime | None
    by: str
    confidence: float | None
    version: int
    pool: int | None
    file: str
    row: int

    @property
    def key(self) -> tuple[str, str]:
        """What the image is known by: source and id."""
        return self.source_id, self.image_id


def assigned_to(store: Store, class_id: str) -> list[Assigned]:
    """The samples of a class and of those merged into it, without those marked wrong.

    The least certain come first: they are the most likely to be wrong.
    """
    with store.reading() as tx:
        gone = {one.number for one in tx.versions.all() if one.state is VersionState.ROLLED_BACK}
        outputs = [one for one in tx.outputs.of_kind("discoveries") if one.first not in gone]
        members = {row.id for row in tx.classes.all() if tx.classes.resolve(row.id).id == class_id}
        wrong = _wrong(tx, members)
    found = [
        one
        for output in outputs
        for one in _rows(store, output.name, members)
        if one.key not in wrong
    ]
    return sorted(found, key=lambda one: (one.by == BY_PERSON, one.confidence or 0.0))


def mark_wrong(
    store: Store,
    class_id: str,
    images: Collection[tuple[str, str]],
    *,
    who: str,
    operation: str | None = None,
) -> Changed:
    """Take pseudo-labelled samples (source, image) out of their class; it is fitted without them.

    Needs the features of the pools that the class was found in. Once retention has dropped
    them the class can be retired or rolled back, but no longer corrected.
    """
    key = f"wrong:{operation or operation_id()}"
    with store.reading() as tx:
        row = living(tx, class_id)
        done = tx.versions.by_key(key)
    if done is not None:
        return Changed(done.reason or "", class_id, done.number)
    samples = assigned_to(store, class_id)
    gone = _pseudo_labels(samples, images, row.name)
    keys = {one.key for one in gone}
    kept = [one for one in samples if one.key not in keys]
    features = _features(store, kept)

    def make(detector: Detector) -> Detector:
        known = detector.find(class_id)
        changed = _without(known, kept, features, detector, gone=len(gone))
        classes = [changed if one.id == class_id else one for one in detector.classes]
        return Detector.of(classes, fingerprint=detector.fingerprint, settings=detector.settings)

    pictures: list[str] = []

    def forget(tx: Transaction) -> None:
        pictures[:] = _forget(tx, class_id, gone, {one.class_id for one in samples}, who)

    what = f"{_told(gone)} taken out of {row.name}"
    version = publish_change(
        store,
        key=key,
        make=make,
        reason=what,
        who=who,
        events=[
            Occurrence(
                "pseudo_label.wrong",
                {"class_id": class_id, "name": row.name, "image_id": one.image_id, "who": who},
                one.source_id,
            )
            for one in gone
        ],
        counts=[Count("pseudo_labels", "", "contradicted", len(gone))],
        also=forget,
    )
    for digest in pictures:
        store.folder.delete(thumbnail_name(digest))
    return Changed(what, class_id, version.number)


def _pseudo_labels(
    samples: Sequence[Assigned], images: Collection[tuple[str, str]], name: str
) -> list[Assigned]:
    """The samples that are meant; only what the detector concluded by itself can be wrong."""
    by_key = {one.key: one for one in samples if one.by == BY_PSEUDO_LABEL}
    for source_id, image_id in images:
        if (source_id, image_id) not in by_key:
            raise NotFound(
                f"{image_id!r} of {source_id!r}: is no pseudo-label of {name!r}; an answer that a "
                "person gave is corrected by rolling back"
            )
    return [by_key[key] for key in dict.fromkeys(images)]


def _told(gone: Sequence[Assigned]) -> str:
    if len(gone) == 1:
        return f"an image of {gone[0].source_id}"  # no id: a purge must find them all
    return f"{len(gone)} images"


def _forget(
    tx: Transaction, class_id: str, gone: Sequence[Assigned], members: set[str], who: str
) -> list[str]:
    """Remember what was wrong, and show no pictures of it; returns those that nothing shows now."""
    marked = tx.notes.get(WRONG_LABELS, class_id, [])
    entries = [{"source_id": one.source_id, "image_id": one.image_id, "who": who} for one in gone]
    tx.notes.set(WRONG_LABELS, class_id, [*marked, *entries])
    keys = {one.key for one in gone}
    hidden: list[str] = []
    for member in members | {class_id}:
        shown = exemplars_of(tx, member)
        left = [one for one in shown if (one.source_id, one.image_id) not in keys]
        if left != shown:
            keep_exemplars(tx, member, left)
            hidden += [one.thumbnail for one in shown if one not in left]
    return forget_thumbnails(tx, false(), hidden)


def _without(
    known: KnownClass,
    kept: Sequence[Assigned],
    features: Floats,
    detector: Detector,
    *,
    gone: int,
) -> KnownClass:
    """The class fitted on the samples that are left, a mode for each class it was merged from."""
    if known.origin == "fit" or known.count != len(kept) + gone:
        raise NotPossible(
            f"{known.name!r}: was not made of discovered images alone, so it cannot be fitted "
            "again without some of them; retire it, or roll back"
        )
    # The class itself comes first, so that its own mode stays its first.
    parts = sorted({one.class_id for one in kept}, key=lambda part: (part != known.id, part))
    rng = np.random.default_rng(0)
    fitted = [
        KnownClass.fit(
            known.id,
            known.name,
            features[[i for i, one in enumerate(kept) if one.class_id == part]],
            settings=detector.settings,
            rng=rng,
            said=np.array([one.by == BY_PERSON for one in kept if one.class_id == part]),
        )
        for part in parts
    ]
    return replace(
        known,
        modes=tuple(mode for part in fitted for mode in part.modes),
        references=np.concatenate([part.references for part in fitted]),
        own=np.concatenate([part.own for part in fitted]),
        said=np.concatenate([part.said for part in fitted]),
        held=sum(part.held for part in fitted),
        pseudo=sum(one.by == BY_PSEUDO_LABEL for one in kept),
    )


def _features(store: Store, samples: Sequence[Assigned]) -> Floats:
    """The spooled features of these samples, in their order."""
    if not samples:
        raise NotPossible("no image of the class would be left; retire the class instead")
    found: dict[tuple[str, str], Floats] = {}
    wanted = {one.key for one in samples}
    for pool_id in sorted({one.pool for one in samples if one.pool is not None}):
        with store.reading() as tx:
            members = tx.pools.members(pool_id)
        for member in members:
            table = read_table(store.folder, member.name)
            keys = list(
                zip(
                    table.column("source_id").to_pylist(),
                    table.column("image_id").to_pylist(),
                    strict=True,
                )
            )
            if wanted.intersection(keys):
                matrix = feature_matrix(table.column("features"))
                found |= {key: matrix[i] for i, key in enumerate(keys) if key in wanted}
    if len(found) < len(wanted):
        raise NotPossible(
            "the features that the class was fitted on are not kept any more; retire the class, "
            "or roll back to a version before it"
        )
    return np.stack([found[one.key] for one in samples])


def _wrong(tx: Transaction, class_ids: Iterable[str]) -> set[tuple[str, str]]:
    return {
        (entry["source_id"], entry["image_id"])
        for class_id in class_ids
        for entry in tx.notes.get(WRONG_LABELS, class_id, [])
    }


def _rows(store: Store, name: str, members: set[str]) -> Iterable[Assigned]:
    for row in read_table(store.folder, name).to_pylist():
        if row["class_id"] in members:
            yield Assigned(
                class_id=row["class_id"],
                source_id=row["source_id"],
                image_id=row["image_id"],
                captured_at=row["captured_at"],
                by=row["by"],
                confidence=row["confidence"],
                version=row["detector_version"],
                pool=row["pool"],
                file=row["file"],
                row=row["row"],
            )
