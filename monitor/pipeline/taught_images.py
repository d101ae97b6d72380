"""What people said about images of a pool without being asked: the lessons of the gallery.

A lesson is a detector version (:mod:`monitor.people.teach_images`) with its images among the
discoveries. To the pool that the images lie in it is as good as an answer: they are not asked
about again, their settled verdicts follow it, and they do not teach twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from monitor.novelty.detector import Detector
from monitor.pipeline.pool_samples import PoolSamples
from monitor.store.output_files import BY_PERSON, read_table
from monitor.store.output_files import final_name as named
from monitor.store.records import Question
from monitor.store.states import AnswerKind, VersionState
from monitor.store.store import Store, Transaction

_USED = (VersionState.PUBLISHED,)


@dataclass(frozen=True, slots=True)
class TaughtSample:
    """One sample of a pool that a lesson was made of."""

    class_id: str
    who: str
    by_person: bool


def taught_samples(
    store: Store, tx: Transaction, pool_id: int, samples: PoolSamples
) -> dict[int, TaughtSample]:
    """The samples of a pool that lessons gave to a class, under the id that it has today."""
    lessons = {
        one.number: str(one.evidence["by"])
        for one in tx.versions.all()
        if one.evidence.get("taught") and one.state in _USED
    }
    if not lessons:
        return {}
    position = {
        key: index
        for index, key in enumerate(
            zip(
                samples.sources.tolist(),
                samples.meta.column("image_id").to_pylist(),
                strict=True,
            )
        )
    }
    found: dict[int, TaughtSample] = {}
    columns = ["source_id", "image_id", "class_id", "by", "pool", "detector_version"]
    for output in tx.outputs.of_kind("discoveries"):
        if not any(output.first <= number <= output.last for number in lessons):
            continue
        rows = read_table(store.folder, named(store.folder, output), columns)
        for row in rows.filter(pc.equal(rows.column("pool"), pool_id)).to_pylist():
            who = lessons.get(row["detector_version"])
            index = position.get((row["source_id"], row["image_id"]))
            means = tx.classes.resolve(row["class_id"])
            if who is not None and index is not None and means.living:
                found[index] = TaughtSample(means.id, who, row["by"] == BY_PERSON)
    return found


def answer_from_lessons(
    tx: Transaction,
    opened: Sequence[Question],
    chosen: Sequence[int],
    taught: Mapping[int, TaughtSample],
    detector: Detector,
) -> None:
    """Answer the questions about images that people have named already; nobody is asked twice."""
    known = {one.id for one in detector.classes}
    for question, index in zip(opened, chosen, strict=True):
        lesson = taught.get(index)
        if lesson is None or not lesson.by_person:
            continue
        kind = AnswerKind.KNOWN_CLASS if lesson.class_id in known else AnswerKind.NEW_CLASS
        # The question's number makes it idempotent: told twice, it counts once.
        tx.answers.record(
            question.id,
            kind,
            who=lesson.who,
            client_id=f"lesson:{question.id}",
            class_id=lesson.class_id,
        )
