"""Teaching from the gallery: people choose images themselves, and say what they are.

What they say works like an answer: a new name becomes a class, with the images of the same pool
that follow those that were named; a known class is fitted again with them, or learns a further
look where they are unlike the rest of it; "not an image" marks images as none. Each lesson is a
detector version behind the same gate, and can be taken back. The pool of the images takes it for
an answer (:mod:`monitor.pipeline.pool_samples`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from monitor.config.schema import GateSection
from monitor.images.image_identity import image_key
from monitor.novelty.array_types import Bools, Floats
from monitor.novelty.class_growth import teach_class
from monitor.novelty.confirmed_classes import answers_to_confirm
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.inner_loop import spread
from monitor.people.answer_questions import Said, Word, find_class, give, take_back_last
from monitor.people.class_corrections import TRIES
from monitor.people.class_names import clean_name
from monitor.people.errors import NotPossible
from monitor.people.version_history import refuse, rollback
from monitor.pipeline.pool_samples import (
    PoolSamples,
    discovery_rows,
    discovery_table,
    read_samples,
)
from monitor.pipeline.pool_steps import confirmable
from monitor.pipeline.version_gate import compare_versions, objection
from monitor.store.errors import WrongState
from monitor.store.pool_images import find_in_pools, open_questions
from monitor.store.record_states import ClassOrigin, VersionState
from monitor.store.records import ClassRow, Occurrence, Version
from monitor.store.snapshots import load_snapshot
from monitor.store.store import Store, Transaction
from monitor.store.version_and_settled_commit import NewClass, VersionUpdate, commit_version

NO_IMAGE = "no_image"
"""Notes by image: what people called no image, by whom and in which action."""

_LOOK = "look-of-"
"""The id of a look for as long as it takes to become part of its class."""

_COMPARED = 64
"""Images of a class that are compared with each other: some two thousand pairs."""

Key = tuple[str, str]
"""A source and an image id."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What came of a lesson."""

    words: str
    class_id: str | None = None
    class_name: str | None = None
    version: int | None = None
    held: bool = False
    human: int = 0
    pseudo: int = 0
    answered: int = 0
    """Open questions about these images, which the lesson has answered."""
    left: int = 0
    """Images that taught nothing, because their features are not kept any more."""


@dataclass(frozen=True, slots=True)
class _Lesson:
    """The samples of one class in one pool: named by people, and those that follow them."""

    samples: PoolSamples
    human: tuple[int, ...]
    pseudo: tuple[tuple[int, float], ...] = ()

    @property
    def features(self) -> Floats:
        rows = [*self.human, *(index for index, _ in self.pseudo)]
        found: Floats = self.samples.features[rows]
        return found

    @property
    def said(self) -> Bools:
        """True for the samples that people named, in the order of the features."""
        by_people: Bools = np.arange(len(self.human) + len(self.pseudo)) < len(self.human)
        return by_people


def teach(
    store: Store,
    images: Sequence[Key],
    class_: str,
    *,
    who: str,
    action: str,
    gate: GateSection,
    seed: int,
    confirm_people: int = 1,
) -> Taught:
    """Say that these images show a class, by its id or name, or a new name.

    Sending the same action again changes nothing. With ``confirm_people`` a lesson confirms only
    classes that so many people have named (``labels.confirm_people``).
    """
    name = clean_name(class_)
    key = f"teach:{action}"
    answered = _answer(store, images, Said(1, Word.CLASS, name), who=who, action=action)
    with store.reading() as tx:
        done = tx.versions.by_key(key)
        row = find_class(tx, name)
    if done is not None:
        return _said(done, row, answered)
    by_pool = find_in_pools(store, images)
    found = sum(len(rows) for rows in by_pool.values())
    if not found:
        return _nothing_taught(row, name, answered, len(images))
    if row is None:
        with store.transaction() as tx:
            row = find_class(tx, name) or tx.classes.ensure(name, ClassOrigin.PERSON)
    pools = [(read_samples(store, pool), rows) for pool, rows in by_pool.items()]
    for remaining in reversed(range(TRIES)):
        with store.reading() as tx:
            current = tx.versions.current()
            may_confirm = confirmable(tx, confirm_people)
        if current is None:
            raise NotPossible("there is no detector yet; fit one with conclad fit --data FILES")
        detector = load_snapshot(store.folder, current.snapshot, sha256=current.sha256)
        confirm = may_confirm is None or row.id in may_confirm
        update = _update(
            detector, current, row, pools, key=key, who=who, gate=gate, seed=seed, confirm=confirm
        )
        try:
            version = commit_version(store, update)
        except WrongState:
            if not remaining:
                raise
            continue  # somebody published in between: learn it on top of that
        return replace(_said(version, row, answered), left=len(images) - found)
    raise AssertionError("the last try returns or raises")


def _update(
    detector: Detector,
    current: Version,
    row: ClassRow,
    pools: Sequence[tuple[PoolSamples, Sequence[int]]],
    *,
    key: str,
    who: str,
    gate: GateSection,
    seed: int,
    confirm: bool,
) -> VersionUpdate:
    known = any(one.id == row.id for one in detector.classes)
    lessons = [_lesson(detector, samples, rows, row.id, known, seed) for samples, rows in pools]
    human = sum(len(one.human) for one in lessons)
    pseudo = sum(len(one.pseudo) for one in lessons)
    features = np.concatenate([one.features for one in lessons])
    after = teach_class(detector, row.id, features, confirm=confirm, seed=seed) if known else None
    if after is None:
        fitted = KnownClass.fit(
            f"{_LOOK}{row.id}" if known else row.id,
            f"{_LOOK}{row.id}" if known else row.name,
            features,
            settings=detector.settings,
            rng=np.random.default_rng(seed),
            origin="discovered",
            said=np.concatenate([one.said for one in lessons]),
            confirmed=confirm and human >= answers_to_confirm(detector.settings),
        )
        after = detector.with_classes([fitted])
        if known:
            after = after.merged(row.id, [fitted.id])
    reason = objection(compare_versions(detector, after), gate)
    what = f"{row.name}: {human} images named by {who}"
    evidence = {"by": who, "class": row.id, "human": human, "pseudo": pseudo, "taught": True}
    sources = _sources(lessons)
    told = {"class_id": row.id, "name": row.name, "who": who, "human": human, "pseudo": pseudo}
    kind = "class.taught" if known else "class.discovered"
    return VersionUpdate(
        key=key,
        detector=after,
        parent=current.number,
        classes=() if known else (NewClass(row.id, row.name, ClassOrigin.PERSON),),
        discoveries=_discoveries(lessons, row),
        held=reason is not None,
        reason=reason or what,
        who=who,
        evidence=evidence,
        events=() if reason else (Occurrence(kind, {**told, "pool": None, "sources": sources}),),
    )


def _lesson(
    detector: Detector,
    samples: PoolSamples,
    rows: Sequence[int],
    class_id: str,
    known: bool,
    seed: int,
) -> _Lesson:
    if known:
        return _Lesson(samples, tuple(rows))
    [found] = spread(detector, samples.features, dict.fromkeys(rows, class_id), seed=seed)
    near = _near(detector, samples.features, found.human)
    pseudo = tuple((one.sample, one.confidence) for one in found.pseudo if near[one.sample])
    return _Lesson(samples, found.human, pseudo)


def _near(detector: Detector, features: Floats, human: Sequence[int]) -> np.ndarray:
    """Which samples lie as near to a named one as images of one class lie to each other.

    A round asks about everything that looks new; here people have named one kind of it. The other
    kinds would follow the only new name there is, so distance has to keep them out.
    """
    reach = np.median(
        [_typical(known.references) for known in detector.classes if len(known.references) > 2]
        or [np.inf]
    )
    nearest = np.full(len(features), np.inf)
    for row in human:
        nearest = np.minimum(nearest, np.linalg.norm(features - features[row], axis=1))
    found: np.ndarray = nearest <= reach
    return found


def _typical(references: Floats) -> float:
    """The median distance between two images of a class, from a few dozen of them."""
    some = references[:_COMPARED].astype(np.float64)
    squares = (some**2).sum(axis=1)
    between = squares[:, None] + squares[None, :] - 2 * some @ some.T
    pairs = between[np.triu_indices(len(some), 1)]
    return float(np.sqrt(np.maximum(np.median(pairs), 0.0)))


def _sources(lessons: Sequence[_Lesson]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in lessons:
        for index in one.human:
            name = str(one.samples.sources[index])
            counts[name] = counts.get(name, 0) + 1
    return counts


def _discoveries(lessons: Sequence[_Lesson], row: ClassRow) -> pa.Table:
    return discovery_table(
        [
            found
            for one in lessons
            for found in discovery_rows(one.samples, row.id, row.name, one.human, one.pseudo)
        ]
    )


def _said(version: Version, row: ClassRow | None, answered: int) -> Taught:
    held = version.state is VersionState.HELD
    human = int(version.evidence.get("human", 0))
    pseudo = int(version.evidence.get("pseudo", 0))
    name = row.name if row else ""
    words = f"{name}: {human} by you" + (f", {pseudo} by itself" if pseudo else "")
    if held:
        words += f". It waits for an admin: {version.reason}"
    return Taught(
        words, row.id if row else None, name, version.number, held, human, pseudo, answered
    )


def _nothing_taught(row: ClassRow | None, name: str, answered: int, left: int) -> Taught:
    if answered:
        words = f"{answered} open question{'' if answered == 1 else 's'} answered with {name}"
        return Taught(words, row.id if row else None, name, answered=answered, left=left)
    raise NotPossible(
        "the features of these images are not kept any more, so nothing can be learnt from them; "
        "choose images of the last hours, or raise pools.keep_features_hours"
    )


def call_no_image(store: Store, images: Sequence[Key], *, who: str, action: str) -> Taught:
    """Mark images as none: they show nothing, and are not shown any more."""
    answered = _answer(store, images, Said(1, Word.BAD_IMAGE), who=who, action=action)
    with store.transaction() as tx:
        before = tx.notes.all(NO_IMAGE)
        fresh = {
            image_key(*image).hex(): {"who": who, "action": action}
            for image in images
            if image_key(*image).hex() not in before
        }
        tx.notes.set_many(NO_IMAGE, fresh)
        if fresh:
            tx.events.append("images.no_image", {"count": len(fresh), "who": who})
    count = len(images)
    words = "1 marked as not an image" if count == 1 else f"{count} marked as not images"
    return Taught(words, human=count, answered=answered)


def called_no_image(tx: Transaction) -> frozenset[str]:
    """The images that people called none."""
    return frozenset(tx.notes.all(NO_IMAGE))


def unteach(store: Store, of: str, *, who: str, action: str, anybodys: bool = False) -> str:
    """Take a lesson back; what it did, in words."""
    with store.reading() as tx:
        version = tx.versions.by_key(f"teach:{of}")
        current = tx.versions.current()
        marked = {key: one for key, one in tx.notes.all(NO_IMAGE).items() if one["action"] == of}
    owners = [version.evidence.get("by")] if version else [one["who"] for one in marked.values()]
    owner = owners[0] if owners else None
    if owner is not None and owner != who and not anybodys:
        raise NotPossible(f"this was taught by {owner}; ask them, or an admin, to take it back")
    answers = _take_back_answers(store, who=who, action=action, of=of)
    if marked:
        with store.transaction() as tx:
            for key in marked:
                tx.notes.delete(NO_IMAGE, key)
            tx.events.append("images.taken_back", {"count": len(marked), "who": who})
        return f"{len(marked)} images are back"
    if version is None or version.state is VersionState.ROLLED_BACK:
        if answers:
            return f"{answers} answers taken back"
        raise NotPossible("nothing to take back: there is no such lesson, or it was taken back")
    if version.state is VersionState.HELD:
        refuse(store, version.number, who=who, reason=f"taken back by {who}")
        return f"Taken back: version {version.number} is not used"
    if current is None or current.number != version.number or version.parent is None:
        raise NotPossible(
            f"version {version.number} has been followed by others; go back on the history page"
        )
    rollback(store, version.parent, who=who, reason=f"{who} took back: {version.reason}")
    return f"Taken back: version {version.parent} is in use again"


def _take_back_answers(store: Store, *, who: str, action: str, of: str) -> int:
    try:
        return len(take_back_last(store, who=who, action=action, of=of))
    except WrongState:
        return 0


def _answer(store: Store, images: Sequence[Key], said: Said, *, who: str, action: str) -> int:
    """Answer the open questions about these images as well; returns how many there were."""
    with store.reading() as tx:
        found = open_questions(tx, images)
    answers = [replace(said, question_id=question_id) for question_id in found]
    receipts = give(store, answers, who=who, action=action) if answers else []
    return sum(one.fate == "accepted" for one in receipts)
