"""How well the monitor did: its verdicts against the truth that only the demo knows.

An image is truly novel if the detector version that judged it did not know its class. The same
class is therefore novel before its discovery and known afterwards. Every image has two verdicts:
one that was given at once, and one that was settled with its whole pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.demo.story import Story
from monitor.demo.story_files import Written
from monitor.store import Store
from monitor.store.pool_transitions import PoolState
from monitor.store.read_verdicts import read_verdicts
from monitor.store.verdict_columns import NEW, NOVEL, UNDECIDED


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict beside the truth."""

    source: str
    captured_at: datetime
    label: str
    novel: bool
    """What the monitor said."""
    truly_novel: bool
    right_class: bool
    """Whether the nearest known class is the true one."""
    version: int
    dirty: bool
    corrected: bool = False
    """Whether it was judged with a shift of its source corrected."""
    settled: str | None = None
    """What it was settled as; None if it was not."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many.

    >>> str(Share(3, 4)), str(Share(0, 0))
    ('75%', '-')
    """

    part: int
    whole: int

    @property
    def value(self) -> float | None:
        return self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return "-" if self.value is None else f"{self.value:.0%}"


@dataclass(frozen=True, slots=True)
class ClassOutcome:
    """What became of one class of the feed."""

    label: str
    arrived_at: datetime | None
    """None for a class that was known from the beginning."""
    found_at: datetime | None
    """The time of the first image that a detector judged which knows the class."""
    version: int | None
    answers: int
    """Questions whose answer was this class."""
    recall: Share
    """While it was unknown: its images that were called novel."""
    false_novel: Share
    """While it was known: its images that were called novel all the same (clean lens only)."""
    settled_novel: Share
    """While it was known: its images that were settled as new or undecided (clean lens only)."""
    settled_new: Share
    """While it was unknown: its images that were settled as new."""
    recognised: Share
    """Of those that were called known while it was known, the nearest class was the right one."""


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The whole run against the truth."""

    judgements: tuple[Judgement, ...]
    classes: tuple[ClassOutcome, ...]
    precision: Share
    """Of the images called novel through a clean lens, those that were."""
    recall: Share
    """Of the truly novel images, those that were called so."""
    settled_precision: Share
    """Of the images that were settled as new, those that were."""
    settled_recall: Share
    """Of the truly novel images, those that were settled as new."""
    dirty_novel: Share
    """Of the known images through the dirty lens, those that were called novel at once."""
    dirty_corrected: Share
    """The same of those that were judged with the shift corrected."""
    dirty_settled: Share
    """Of the known images through the dirty lens, those that were settled as new or undecided."""
    questions: int
    dirty_questions: int
    """Of these, about images through the dirty lens."""
    pools: dict[str, int]
    version: int
    rejected: int

    @property
    def discovered(self) -> tuple[str, ...]:
        return tuple(c.label for c in self.classes if c.arrived_at and c.found_at)

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(c.label for c in self.classes if c.arrived_at and not c.found_at)


def measure(store: Store, story: Story, written: Written) -> DemoOutcome:
    """Compare every verdict in the store with the labels of the feed."""
    with store.reading() as tx:
        known_since = {c.name: c.created_in for c in tx.classes.all() if c.created_in is not None}
        names = {c.id: c.name for c in tx.classes.all()}
        last = tx.versions.current()
        questions = int(tx.counters.value("labels_spent"))
        pools = {str(state): n for state, n in tx.counts.pools_by_state().items()}
        asked = [
            tx.questions.of_pool(pool.id)
            for pool in tx.pools.in_state(*PoolState, limit=_MANY)
            if pool.asked
        ]
        dirty = sum(
            question.captured_at is not None
            and story.lens.soils(question.source_id, story.day_of(question.captured_at))
            for questions in asked
            for question in questions
        )
        answers = [
            names[answer.class_id]
            for questions in asked
            if questions
            for answer in tx.answers.standing(questions[0].pool_id).values()
            if answer.class_id is not None
        ]
        images = {count.label: 0 for count in tx.counters.all("images")}
        for count in tx.counters.all("images"):
            images[count.label] += int(count.value)
    judgements = _judgements(store, story, written, known_since)
    soiled = [j for j in judgements if j.dirty and not j.truly_novel]
    return DemoOutcome(
        judgements=judgements,
        classes=tuple(
            _class(label, story, judgements, known_since.get(label), answers)
            for label in story.labels
        ),
        precision=_share([j.truly_novel for j in judgements if j.novel and not j.dirty]),
        recall=_share([j.novel for j in judgements if j.truly_novel]),
        settled_precision=_share([j.truly_novel for j in judgements if j.settled == NEW]),
        settled_recall=_share([j.settled == NEW for j in judgements if j.truly_novel]),
        dirty_novel=_share([j.novel for j in soiled]),
        dirty_corrected=_share([j.novel for j in soiled if j.corrected]),
        dirty_settled=_share([j.settled in (NEW, UNDECIDED) for j in soiled]),
        questions=questions,
        dirty_questions=dirty,
        pools=pools,
        version=last.number if last else 0,
        rejected=images.get("rejected", 0),
    )


_MANY = 1_000_000


def _judgements(
    store: Store, story: Story, written: Written, known_since: dict[str, int]
) -> tuple[Judgement, ...]:
    files = sorted(written.feed.rglob("*.parquet"))
    feed = pa.concat_tables(pq.read_table(file, columns=["image_id", "label"]) for file in files)
    truth = dict(zip(*(feed.column(name).to_pylist() for name in feed.column_names), strict=True))
    judged = []
    for batch in read_verdicts(store):
        for row in batch.to_pylist():
            label, version = truth[row["image_id"]], row["detector_version"]
            since = known_since.get(label)
            moment = row["captured_at"]
            judged.append(
                Judgement(
                    source=row["source_id"],
                    captured_at=moment,
                    label=label,
                    novel=row["verdict_immediate"] == NOVEL,
                    truly_novel=since is None or version < since,
                    right_class=row["nearest_class_name"] == label,
                    version=version,
                    dirty=story.lens.soils(row["source_id"], story.day_of(moment)),
                    corrected=row["shift_corrected"] is not None,
                    settled=row["settled_verdict"],
                )
            )
    return tuple(sorted(judged, key=lambda j: j.captured_at))


def _class(
    label: str,
    story: Story,
    judgements: Sequence[Judgement],
    version: int | None,
    answers: Sequence[str],
) -> ClassOutcome:
    its = [j for j in judgements if j.label == label]
    known = [j for j in its if not j.truly_novel and not j.dirty]
    arrived = label not in story.known
    return ClassOutcome(
        label=label,
        arrived_at=its[0].captured_at if arrived and its else None,
        found_at=first_use(judgements, version) if version is not None else None,
        version=version,
        answers=sum(answer == label for answer in answers),
        recall=_share([j.novel for j in its if j.truly_novel]),
        false_novel=_share([j.novel for j in known]),
        settled_novel=_share([j.settled in (NEW, UNDECIDED) for j in known]),
        settled_new=_share([j.settled == NEW for j in its if j.truly_novel]),
        recognised=_share([j.right_class for j in known if not j.novel]),
    )


def first_use(judgements: Sequence[Judgement], version: int) -> datetime | None:
    """When, in the feed's own time, a version came into use; the feed's end if after it."""
    times = [j.captured_at for j in judgements if j.version >= version]
    if times:
        return min(times)
    return max((j.captured_at for j in judgements), default=None)


def _share(hits: Sequence[bool]) -> Share:
    return Share(sum(hits), len(hits))
