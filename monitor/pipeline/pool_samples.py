"""The samples of a pool, read back from where the batches spooled them.

People also teach images of a pool without being asked: the lessons of the gallery. A lesson is a
detector version (:mod:`monitor.people.teach_images`) with its images among the discoveries. To the
pool that the images lie in it is as good as an answer: they are not asked about again, their
settled verdicts follow it, and they do not teach twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.store.answer_kinds import AnswerKind
from monitor.store.atomic_files import Folder
from monitor.store.record_states import VersionState
from monitor.store.records import Pool, PoolMember, PoolSample, Question
from monitor.store.store import Store, Transaction
from monitor.store.verdict_columns import (
    BY_PERSON,
    BY_PSEUDO_LABEL,
    DISCOVERIES,
    SETTLED,
    STATS,
    feature_matrix,
    read_table,
    table,
)
from monitor.store.verdict_columns import final_name as named


@dataclass(frozen=True, slots=True, eq=False)
class PoolSamples:
    """Features and metadata of a pool, in the order in which the batches were committed."""

    pool_id: int
    features: Floats
    stats: Floats
    meta: pa.Table
    sources: np.ndarray
    keys: tuple[tuple[int, int], ...]
    """Of each sample: the batch that its spooled file is named by, and its row there."""

    @property
    def growth_key(self) -> str:
        """The key of the version that holds what the pool taught classes that were known before."""
        return f"growth:{self.pool_id}"

    def sample(
        self, index: int, suggestion: dict[str, object], thumbnail: str | None
    ) -> PoolSample:
        """One of them as the subject of a question."""
        row = {name: self.meta.column(name)[index].as_py() for name in self.meta.column_names}
        batch_id, spool_row = self.keys[index]
        return PoolSample(
            batch_id=batch_id,
            spool_row=spool_row,
            image_id=row["image_id"],
            source_id=row["source_id"],
            captured_at=row["captured_at"],
            file=row["file"],
            row=row["row"],
            score=row["score"],
            score_ratio=row["score_ratio"],
            nearest_class=row["nearest_class"],
            suggestion=suggestion,
            thumbnail=thumbnail,
        )

    def latest(self) -> dict[str, float]:
        """When the last image of each source was taken, in POSIX seconds, where it is known."""
        taken = self.meta.column("captured_at")
        if not len(taken) or taken.null_count == len(taken):
            return {}
        found = self.meta.group_by("source_id").aggregate([("captured_at", "max")])
        found = found.filter(pc.is_valid(found.column("captured_at_max")))
        # As numbers: a pool may show thousands of sources, and moments take long to make.
        moments = pc.cast(found.column("captured_at_max"), pa.timestamp("us", "UTC"))
        seconds = pc.divide(pc.cast(pc.cast(moments, pa.int64()), pa.float64()), 1e6)
        return dict(zip(found.column("source_id").to_pylist(), seconds.to_pylist(), strict=True))

    def digest(self, index: int) -> str | None:
        """The hash of the image that was scored; None in pools of an older release."""
        known = "image_digest" in self.meta.column_names
        return self.meta.column("image_digest")[index].as_py() if known else None

    def place(self, index: int) -> tuple[str, int]:
        return self.meta.column("file")[index].as_py(), self.meta.column("row")[index].as_py()


def read_samples(store: Store, pool_id: int) -> PoolSamples:
    """All samples of a pool; its size bounds what this takes in memory."""
    with store.reading() as tx:
        members = tx.pools.members(pool_id)
    return samples_in(store.folder, pool_id, members)


def samples_in(folder: Folder, pool_id: int, members: Sequence[PoolMember]) -> PoolSamples:
    """The samples of a pool in its spooled files."""
    tables = [read_table(folder, member.name) for member in members]
    # Spools of an older release have no figures about how images were taken.
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return PoolSamples(
        pool_id=pool_id,
        features=feature_matrix(whole.column("features")),
        stats=_stats(whole),
        meta=whole.drop_columns([name for name in _ARRAYS if name in whole.column_names]),
        sources=np.asarray(whole.column("source_id").to_pylist(), dtype=object),
        keys=tuple(_keys(members)),
    )


_ARRAYS = ("features", "stats")


def _stats(whole: pa.Table) -> Floats:
    """A row for each sample, or none at all where some have no figures."""
    if "stats" not in whole.column_names or whole.column("stats").null_count:
        return np.empty((0, STATS), np.float32)
    return feature_matrix(whole.column("stats"))


def _keys(members: Sequence[PoolMember]) -> list[tuple[int, int]]:
    return [(member.batch_id, row) for member in members for row in range(member.rows)]


def discovery_rows(
    samples: PoolSamples,
    class_id: str,
    class_name: str,
    human: Iterable[int],
    pseudo: Iterable[tuple[int, float]],
) -> list[dict[str, Any]]:
    """The samples that were given to a class, as rows of ``discoveries/``.

    ``human`` are those that people named, ``pseudo`` the others with their confidence.
    """
    told: list[tuple[int, str, float | None]] = [(index, BY_PERSON, None) for index in human]
    told += [(index, BY_PSEUDO_LABEL, confidence) for index, confidence in pseudo]
    columns = ("image_id", "source_id", "captured_at", "file", "row")
    return [
        {
            **{name: samples.meta.column(name)[index].as_py() for name in columns},
            "class_id": class_id,
            "class_name": class_name,
            "by": by,
            "confidence": confidence,
            "pool": samples.pool_id,
            # The number is filled in when the version gets its own.
            "detector_version": 0,
        }
        for index, by, confidence in sorted(told)
    ]


def discovery_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Such rows, of any number of classes, as a table."""
    return table(DISCOVERIES, {name: [row[name] for row in rows] for name in DISCOVERIES.names})


def settled_table(samples: PoolSamples, version: int, found: Mapping[str, Any]) -> pa.Table:
    """The first settlement of a pool as rows of ``settled/``; ``found`` has what was decided."""
    count = len(samples.keys)
    return table(
        SETTLED,
        {
            **{
                name: samples.meta.column(name) for name in ("image_id", "source_id", "captured_at")
            },
            "pool": [samples.pool_id] * count,
            "detector_version": [version] * count,
            "revision": [1] * count,
            **found,
        },
    )


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
