"""A monitor's life written into a real store, in the way the coordinator writes it.

Every function makes one step through the store's own interface: counters move in the
transaction of what they count, readings are notes, and what happened is an event.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from monitor.novelty.drift.source_drift import DriftVerdict
from monitor.store import NewClass, Occurrence, ScoredBatch, Store, VersionUpdate
from monitor.store import commit_version as publish
from monitor.store.answer_kinds import AnswerKind
from monitor.store.note_and_counter_names import SHIFTS
from monitor.store.pool_transitions import PoolEvent
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Count, FileStat, Lease, Question, Version
from monitor.store.verdict_columns import REJECTED, VERDICTS, table
from monitor.telemetry.store_reading import WEBHOOK_ROOM
from tests.store.building import CAPTURED, commit_batch, plan_feed, sample, scored, small_detector

BORDERS = ("0.25", "0.5", "0.75", "0.9", "1", "1.1", "1.25", "1.5", "2", "4", "+Inf")
EXCEEDANCE = 0.02

_numbers = itertools.count(1)


def fit(store: Store) -> Version:
    """The first detector, of two classes, and what it could see."""
    detector = small_detector()
    with store.transaction() as tx:
        seen = {"version": 1, "pool": 2000, "one_pool": 0.06, "ten_pools": 0.05}
        tx.notes.set("sensitivity", "latest", seen)
    return publish(
        store,
        VersionUpdate(
            key="fit:1",
            detector=detector,
            parent=None,
            classes=[NewClass(c.id, c.name, ClassOrigin.FIT) for c in detector.classes],
            who="fit",
        ),
    )


def start_monitor(store: Store, owner: str = "host-1:4242", ttl: float = 3600) -> Lease:
    """Take the coordinator's lease and leave its notes."""
    lease = store.acquire_lease("coordinator", owner, timedelta(seconds=ttl))
    note_monitor(store)
    return lease


def note_monitor(
    store: Store,
    *,
    per_week: int | None = 500,
    this_week: int = 40,
    actors: Mapping[str, int] | None = None,
) -> None:
    with store.transaction() as tx:
        note = {
            "started_at": tx.now.isoformat(),
            "version": "0.1.0",
            "host": "host-1",
            "pid": 4242,
            "address": "local",
            "embedders": 2,
            "scorers": 1,
            "actors_up": actors or {"embedder": 2, "scorer": 1, "querier": 1, "updater": 1},
            "actors_starting": {"embedder": 1},
            "labels": {"per_week": per_week, "spent_this_week": this_week},
        }
        tx.notes.set("monitor", "coordinator", note)


def wait(store: Store, count: int = 3) -> None:
    """Files that were seen and not read yet."""
    with store.transaction() as tx:
        tx.files.register(
            [FileStat(f"feed/{next(_numbers):06d}.parquet", 10) for _ in range(count)]
        )


def judge(
    store: Store,
    source: str = "cam-1",
    *,
    known: int = 90,
    novel: int = 2,
    rejected: int = 1,
    version: int = 1,
) -> ScoredBatch:
    """Commit one batch of a source with so many images of each outcome; returns it."""
    path = f"feed/{source}/{next(_numbers):06d}.parquet"
    (batch,) = plan_feed(store, path, rows=known + novel + rejected, size=known + novel + rejected)
    ratios = np.concatenate([np.linspace(0.3, 0.99, known), np.linspace(1.05, 3.0, novel)]).tolist()
    rows = range(len(ratios))
    whole = ScoredBatch(
        batch_id=batch.id,
        detector_version=version,
        verdicts=table(
            VERDICTS,
            {
                "image_id": [f"{path}:{row}" for row in rows],
                "source_id": [source] * len(ratios),
                "captured_at": [CAPTURED] * len(ratios),
                "score": ratios,
                "score_ratio": ratios,
                "verdict": ["novel" if ratio > 1 else "known" for ratio in ratios],
                "p_known": np.full(len(ratios), 0.5, np.float32),
                "nearest_class": ["c1"] * len(ratios),
                "detector_version": [version] * len(ratios),
                "file": [path] * len(ratios),
                "row": list(rows),
            },
        ),
        rejected=table(
            REJECTED,
            {
                "source_id": [source] * rejected,
                "file": [path] * rejected,
                "row": list(range(len(ratios), len(ratios) + rejected)),
                "reason": ["truncated"] * rejected,
            },
        ),
        counts=score_counts(source, ratios),
    )
    commit_batch(store, whole)
    return whole


def score_counts(source: str, ratios: Sequence[float]) -> list[Count]:
    """What the coordinator counts of a batch besides the store's own images."""
    borders = np.asarray([float(border) for border in BORDERS])
    buckets = np.bincount(np.searchsorted(borders, ratios), minlength=len(BORDERS))
    return [
        Count("above", source, "", float(sum(ratio > 1 for ratio in ratios))),
        Count("expected_above", source, "", EXCEEDANCE * len(ratios)),
        Count("score_ratio_sum", source, "", float(sum(ratios))),
        Count("settled", source, "known", float(sum(ratio <= 1 for ratio in ratios))),
        Count("settled", source, "new", float(sum(ratio > 1 for ratio in ratios))),
        *(
            Count("score_ratio", source, border, float(n))
            for border, n in zip(BORDERS, buckets, strict=True)
        ),
    ]


def note_source(
    store: Store,
    source: str,
    *,
    captured: datetime | None = None,
    committed: datetime | None = None,
) -> None:
    with store.transaction() as tx:
        captured, committed = captured or tx.now - timedelta(seconds=30), committed or tx.now
        note = {"last_captured_at": captured.isoformat(), "last_commit_at": committed.isoformat()}
        tx.notes.set("source", source, {**note, "images": 1})


def ask(
    store: Store,
    source: str = "cam-1",
    *,
    count: int = 4,
    budget: int = 10,
    version: int = 1,
    probe: int = 0,
) -> list[Question]:
    """Fill a pool, close it, and open a round of questions about it."""
    path = f"feed/{source}/{next(_numbers):06d}.parquet"
    (batch,) = plan_feed(store, path, rows=20, size=20)
    with store.transaction() as tx:
        pool = tx.pools.filling() or tx.pools.open()
    asked = scored(batch, source=source, pool=pool.id, file=path, version=version)
    ratios = asked.verdicts.column("score_ratio").to_pylist()
    commit_batch(store, replace(asked, counts=score_counts(source, ratios)))
    with store.transaction() as tx:
        tx.pools.apply(pool.id, PoolEvent.FILLED)
        tx.pools.begin_asking(
            pool.id, budget=budget, detector_version=version, evidence={"probe": probe}
        )
        kind = "pool.probed" if probe else "pool.triggered"
        tx.events.append(kind, {"pool": pool.id}, source=source)
        samples = [sample(batch.id, row, source_id=source, file=path) for row in range(count)]
        opened = tx.questions.open(pool.id, 0 if probe else 1, samples)
        tx.pools.apply(pool.id, PoolEvent.ROUND_OPENED)
        tx.counters.add([Count("labels_spent", "", "", count)])
        payload = {"pool": pool.id, "round": 1, "count": count, "open": tx.counts.open_questions()}
        tx.events.append("questions.opened", {**payload, "sources": {source: count}}, source=source)
    return opened


def answer(store: Store, questions: Sequence[Question], *, new: str = "dune") -> None:
    """The first is a known class after all, one cannot be told, the others are new."""
    with store.transaction() as tx:
        named = tx.classes.ensure(new, ClassOrigin.PERSON)
        for number, question in enumerate(questions):
            kind = AnswerKind.NEW_CLASS
            if number < 2:
                kind = (AnswerKind.KNOWN_CLASS, AnswerKind.CANNOT_TELL)[number]
            class_id = {AnswerKind.KNOWN_CLASS: "c1", AnswerKind.NEW_CLASS: named.id}.get(kind)
            client = f"client-{question.id}"
            tx.answers.record(question.id, kind, who="ann", client_id=client, class_id=class_id)
            said = {AnswerKind.KNOWN_CLASS: "known", AnswerKind.NEW_CLASS: "new"}
            tx.counters.add([Count("false_novel", "", said.get(kind, "cannot_tell"), 1)])


def discover(store: Store, questions: Sequence[Question], *, name: str = "dune") -> Version:
    """Close the round and publish the version that knows the new class."""
    pool_id, source = questions[0].pool_id, questions[0].source_id
    with store.transaction() as tx:
        tx.questions.close_round(pool_id, questions[0].round)
        tx.pools.apply(pool_id, PoolEvent.ROUND_CLOSED)
        named = tx.classes.ensure(name, ClassOrigin.PERSON)
        parent = tx.versions.current()
    assert parent is not None
    old = small_detector(parent.number - 1)
    detector = small_detector(parent.number)
    discovered = {
        "class_id": named.id,
        "name": name,
        "version": parent.number + 1,
        "pool": pool_id,
        "human": len(questions) - 2,
        "pseudo": 12,
        "sources": {source: 14},
    }
    assert old is not detector
    return publish(
        store,
        VersionUpdate(
            key=f"pool:{pool_id}",
            detector=detector,
            parent=parent.number,
            classes=[NewClass(named.id, name, ClassOrigin.PERSON)],
            pool_id=pool_id,
            counts=[
                Count("discoveries", "", "", 1),
                Count("inner_loops", "", "discovered", 1),
                Count("inner_loop_rounds", "", "", 2),
                Count("inner_loop_seconds", "", "", 3.5),
                Count("pseudo_labels", "", "accepted", 12),
                Count("pseudo_labels", "", "contradicted", 1),
            ],
            events=[Occurrence("class.discovered", discovered, source)],
        ),
    )


def drifts(store: Store, source: str, level: float) -> None:
    """One more pool said how the known classes of a source look; from 1 on that is drift."""
    with store.transaction() as tx:
        verdict = DriftVerdict(
            source=source,
            shifted=level >= 1,
            started=level >= 1,
            ended=False,
            strength=level / 4,
            level=level,
            since=tx.now.timestamp() if level >= 1 else None,
            words=("darker", "blurred") if level >= 1 else (),
            learning=0,
        ).to_json()
        tx.notes.set("drift", source, {"state": {}, "verdict": verdict})
        if level >= 1:
            tx.events.append("drift.detected", verdict, source=source)


def correct_shift(store: Store, source: str) -> None:
    """A source is judged with its shift corrected from now on."""
    with store.transaction() as tx:
        tx.notes.set(SHIFTS, source, {"strength": 0.4})


def refuse_messages(store: Store, receiver: str) -> None:
    """A receiver of messages did not take the last one."""
    with store.transaction() as tx:
        tx.notes.set(WEBHOOK_ROOM, receiver, {"failures": 1})


def trouble(store: Store) -> None:
    """A file that cannot be read, an actor that died, an update that failed."""
    with store.transaction() as tx:
        (file,) = tx.files.register([FileStat("feed/broken.parquet", 10)]).new
        tx.files.quarantine(file.id, "no Parquet file")
        tx.events.append("file.quarantined", {"path": file.path})
        tx.counters.add(
            [
                Count("update_failures", "", "", 1),
                Count("actor_restarts", "", "embedder", 1),
                Count("batches", "", "quarantined", 1),
                Count("inner_loops", "", "nothing new", 1),
            ]
        )


def whole_life(store: Store) -> None:
    """Everything that the telemetry shows has happened at least once."""
    fit(store)
    start_monitor(store)
    for source in ("cam-1", "cam-2"):
        judge(store, source)
        note_source(store, source)
        drifts(store, source, 0.2)
    correct_shift(store, "cam-2")
    questions = ask(store, "cam-2", count=6)
    answer(store, questions)
    discover(store, questions)
    ask(store, "cam-1", count=3, version=2)
    wait(store)
    trouble(store)
