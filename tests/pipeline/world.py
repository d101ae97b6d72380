"""A state with a detector of two classes, and pools of features made for the purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from monitor.config import Config
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.feed_storage import FeedFile
from monitor.feed.input_contract import RowIdentity
from monitor.jobs.score_batch import EmbeddedBatch, score_batch
from monitor.novelty.detector import Detector
from monitor.pipeline.pool_lifecycle import Advanced, PoolLifecycle
from monitor.pipeline.pool_steps import CurrentDetector
from monitor.pipeline.worker_tasks import PoolTask, RenderThumbnails, RowThumbnail, UpdaterTools
from monitor.store import (
    NewClass,
    Store,
    VersionUpdate,
    commit_batches,
    commit_version,
    load_snapshot,
)
from monitor.store.answer_kinds import AnswerKind
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin
from monitor.store.records import Event, FileStat, Pool, Question
from monitor.store.verdict_columns import STATS
from tests.jobs.feeds import config_for

#: Where the classes lie; ``n`` is the one that nobody knows yet.
MEANS = {"a": 0.0, "b": 9.0, "n": -9.0, "m": 18.0}
DIMENSION = 16
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CALM = "ab" * 30
NEW = "ab" * 20 + "n" * 20


def images(kinds: str, seed: int) -> np.ndarray:
    """A feature vector for each letter."""
    rng = np.random.default_rng(seed)
    means = np.asarray([MEANS[kind] for kind in kinds])[:, None]
    found: np.ndarray = rng.normal(0, 1, (len(kinds), DIMENSION)) + means
    return found.astype(np.float32)


def known_detector() -> Detector:
    kinds = "a" * 100 + "b" * 100
    return Detector.fit(images(kinds, 0), list(kinds))


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass
class World:
    """A store with its detector, the lifecycle of its pools, and an updater."""

    store: Store
    config: Config
    clock: Clock
    oracle: bool = False
    tools: UpdaterTools = field(default_factory=UpdaterTools)
    done: list[PoolTask] = field(default_factory=list)
    _files: int = 0
    _kinds: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pools = PoolLifecycle(self.store, self.config, None, oracle=self.oracle)

    def start_again(self) -> None:
        """As after a crash: nothing is left but the store."""
        self.tools = UpdaterTools()
        self.pools = PoolLifecycle(self.store, self.config, None, oracle=self.oracle)

    def configure(self, section: str, **values: Any) -> None:
        changed = getattr(self.config, section).model_copy(update=values)
        self.config = self.config.model_copy(update={section: changed})
        self.start_again()

    @property
    def current(self) -> CurrentDetector:
        with self.store.reading() as tx:
            version = tx.versions.current()
        assert version is not None
        return CurrentDetector(version.number, load_snapshot(self.store.folder, version.snapshot))

    # -- filling ----------------------------------------------------------------------------

    def fill(self, kinds: str, *, source: str = "cam-1", captured: datetime | None = NOON) -> int:
        """Commit a batch with an image of each kind to the pool that is filling."""
        self._files += 1
        path = f"feed/{self._files:03d}.parquet"
        planned = PlannedBatch(FeedFile(path, 1, 1), 0, len(kinds))
        rows = tuple(
            RowIdentity(i, f"{self._files}-{i}", source, captured) for i in range(len(kinds))
        )
        self._kinds |= {(path, i): kind for i, kind in enumerate(kinds)}
        stats = np.zeros((len(kinds), STATS), np.float32)
        batch = EmbeddedBatch(planned, rows, images(kinds, self._files), stats, ())
        with self.store.transaction() as tx:
            (file,) = tx.files.register([FileStat(path, 1, 1)]).new
            (entered,) = tx.files.plan(file.id, len(kinds), [(0, len(kinds))])
            pool = tx.pools.filling() or tx.pools.open()
        current = self.current
        scored = score_batch(entered.id, batch, current.detector, current.number)
        commit_batches(self.store, [replace(scored, pool_id=pool.id)])
        return pool.id

    # -- advancing --------------------------------------------------------------------------

    def advance(self, *, final: bool = False) -> Advanced:
        return self.pools.advance(self.current, final=final)

    def do(self, task: PoolTask) -> Any:
        """What a worker would give back."""
        if isinstance(task, RenderThumbnails):
            return [RowThumbnail(f"jpeg of {row}".encode(), self._kinds[row]) for row in task.rows]
        with self.store.reading() as tx:
            snapshots = [tx.versions.get(number).snapshot for number in task.versions]
        detectors: list[Any] = [load_snapshot(self.store.folder, name) for name in snapshots]
        return task.run(self.tools, *detectors)

    def settle(
        self, *, final: bool = False, answer: Callable[[str], str | None] | None = None
    ) -> None:
        """Advance until nothing more can be done; ``answer`` names the kind of an image."""
        while True:
            advanced = self.advance(final=final)
            if advanced.task is not None:
                self.done.append(advanced.task)
                self.pools.receive(self.do(advanced.task), self.current)
            elif advanced.step == "idle" and not (answer and self.answer(answer)):
                return

    def answer(self, name: Callable[[str], str | None]) -> bool:
        """Answer all open questions; whether there were any."""
        with self.store.transaction() as tx:
            asked = tx.questions.list_open()
            known = {c.name: c.id for c in self.current.detector.classes}
            for question in asked:
                said = name(self._kinds[question.file, question.row])
                if said is None:
                    tx.answers.record(
                        question.id, AnswerKind.CANNOT_TELL, who="ada", client_id=str(question.id)
                    )
                    continue
                row = tx.classes.ensure(said, ClassOrigin.PERSON)
                kind = AnswerKind.KNOWN_CLASS if said in known else AnswerKind.NEW_CLASS
                tx.answers.record(
                    question.id, kind, who="ada", client_id=str(question.id), class_id=row.id
                )
        return bool(asked)

    # -- looking ----------------------------------------------------------------------------

    def pool(self, pool_id: int) -> Pool:
        with self.store.reading() as tx:
            return tx.pools.get(pool_id)

    def state(self, pool_id: int) -> PoolState:
        return self.pool(pool_id).state

    def questions(self, pool_id: int) -> list[Question]:
        with self.store.reading() as tx:
            return tx.questions.of_pool(pool_id)

    def events(self, *kinds: str) -> list[Event]:
        with self.store.reading() as tx:
            return list(tx.events.after(kinds=kinds))

    def count(self, name: str, label: str = "") -> float:
        with self.store.reading() as tx:
            return float(tx.counters.value(name, "", label))

    def tasks(self) -> Sequence[str]:
        """The kinds of tasks that were done."""
        return [type(task).__name__ for task in self.done]


def make_world(folder: Path, *overrides: str, oracle: bool = False) -> World:
    clock = Clock()
    store = Store.open(folder / "state", clock=clock)
    detector = known_detector()
    classes = [NewClass(known.id, known.name, ClassOrigin.FIT) for known in detector.classes]
    commit_version(store, VersionUpdate("fit:test", detector, None, classes=classes, who="fit"))
    ours = (
        "pools.size=60",
        "pools.least=20",
        "labels.budget=0.2",
        "labels.trickle_per_week=0",
        "gate.stolen_most=0.5",
        "gate.false_novel_most=0.5",
    )
    return World(store, config_for(folder, *ours, *overrides), clock, oracle)
