"""A feed with a story: two known classes, and a third that appears, goes, and comes again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from monitor.config import Config
from monitor.jobs.fit_detector import fit
from monitor.store import Store
from monitor.store.exemplars import all_exemplars, missing_thumbnails
from monitor.store.note_and_counter_names import SHIFTS
from monitor.store.verdict_columns import current, read_table
from tests.jobs.feeds import config_for, write_feed

POOL = 60
#: One letter for each image: water, forest, and what is new.
KINDS = {"w": "water", "f": "forest", "s": "sand", "n": "snow"}
CHAPTERS = ("wf" * 30, "wfss" * 15, "wf" * 30, "wfss" * 15)
OVERRIDES = (
    "run.address=none",
    f"pools.size={POOL}",
    "pools.least=20",
    "labels.budget=0.15",
    # The trickle has stories of its own.
    "labels.trickle_per_week=0",
    "feed.batch_rows=16",
    "novelty.settings={least: 4}",
    "gate.stolen_most=0.5",
    "gate.false_novel_most=0.5",
)


@dataclass(frozen=True, slots=True)
class Story:
    """A fitted detector and a feed for it."""

    config: Config
    folder: Path

    @property
    def state(self) -> Path:
        return Path(self.config.state.dir)


def tell_story(folder: Path, *overrides: str, chapters: tuple[str, ...] = CHAPTERS) -> Story:
    """Write the images, fit water and forest, and return what a monitor needs."""
    training = ["water", "forest"] * 150
    labelled = write_feed(folder / "labelled.parquet", training, first_id=100_000)
    first = 0
    for number, chapter in enumerate(chapters):
        kinds = [KINDS[letter] for letter in chapter]
        path = folder / "feed" / f"{number:03d}.parquet"
        source = "cam-1" if number % 2 == 0 else "cam-2"
        write_feed(path, kinds, first_id=first, source=source)
        first += len(kinds)
    config = config_for(folder, f"feed.path={folder / 'feed'}", *OVERRIDES, *overrides)
    fit(config, [str(labelled)])
    return Story(config, folder)


def with_oracle(config: Config) -> Config:
    labels = config.labels.model_copy(update={"oracle_column": "label"})
    return config.model_copy(update={"labels": labels})


def outcome(state: Path) -> dict[str, Any]:
    """Everything that must be the same however often a run was interrupted."""
    with Store.open(state) as store:
        return outcome_of(store)


def outcome_of(store: Store) -> dict[str, Any]:
    """The same of a store that is open."""
    verdicts = rows(store, "verdicts")
    with store.reading() as tx:
        versions = [(v.number, v.key, v.state, v.sha256) for v in tx.versions.all()]
        # Listed in the order of their times, which a clock that was set back upsets.
        classes = sorted((c.id, c.name, c.origin) for c in tx.classes.all())
        pools = [
            (p.id, p.state, p.size, p.above, p.asked, p.budget, p.detector_version)
            for p in (
                tx.pools.get(i) for i in range(1, 1 + sum(tx.counts.pools_by_state().values()))
            )
        ]
        questions = [
            (q.pool_id, q.round, q.image_id, q.state)
            for p in pools
            for q in tx.questions.of_pool(p[0])
        ]
        counters = {
            (c.name, c.source, c.label): round(c.value, 6)
            for c in tx.counters.all()
            if c.name not in ("inner_loop_seconds", "actor_restarts")
        }
        told = [
            (e.kind, e.source, e.payload)
            for e in tx.events.after(limit=100_000)
            if e.kind not in ("monitor.started", "monitor.stopped", "actor.restarted")
        ]
        pictures = all_exemplars(tx)
        corrections = tx.notes.all(SHIFTS)
        assert not missing_thumbnails(tx)
    return {
        "verdicts": verdicts,
        "rejected": rows(store, "rejected"),
        "discoveries": rows(store, "discoveries"),
        "settled": rows(store, "settled"),
        "corrections": corrections,
        "versions": versions,
        "classes": classes,
        "pools": pools,
        "questions": questions,
        "counters": counters,
        "events": told,
        "pictures": pictures,
    }


def rows(store: Store, kind: str) -> list[tuple[Any, ...]]:
    """All rows of one kind of output, sorted."""
    tables = [read_table(store.folder, name) for name in current(store.folder, kind)]
    if not tables:
        return []
    whole = pa.concat_tables(tables)
    return sorted(zip(*(column.to_pylist() for column in whole.columns), strict=True), key=repr)


def image_ids(state: Path) -> list[str]:
    with Store.open(state) as store:
        return [str(row[0]) for row in rows(store, "verdicts")]


def expected_ids(chapters: tuple[str, ...] = CHAPTERS) -> list[str]:
    return [f"{i:06d}" for i in range(sum(len(chapter) for chapter in chapters))]
