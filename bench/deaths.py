"""Kill whatever moves, again and again, and see that nothing is lost, doubled or asked twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from actors.worker_pool import EngineFactory
from monitor.config import Config
from monitor.jobs.fit_detector import fit
from monitor.jobs.from_config import open_engine_of, open_existing_store
from monitor.store import Transaction
from monitor.store.counters_and_image_account import account
from tests.actors.driving import driver
from tests.actors.nodes import Nodes
from tests.actors.story import rows, with_oracle
from tests.jobs.feeds import config_for, write_feed

ROLES = ("Embedder", "Scorer", "Querier", "Updater")
#: How often a victim is the driver, which costs more time than any other.
DRIVER_SHARE = 0.2
ROWS_PER_FILE = 500


@dataclass(slots=True)
class Toll:
    """What was killed."""

    actors: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    nodes: int = 0
    seconds: float = 0.0


def make_feed(folder: Path, images: int, *overrides: str) -> Config:
    """Water and forest are known; sand comes after two fifths of the feed, snow after four."""
    for start in range(0, images, ROWS_PER_FILE):
        kinds = [_kind(i / images, i) for i in range(start, min(start + ROWS_PER_FILE, images))]
        path = folder / "feed" / f"{start:06d}.parquet"
        write_feed(path, kinds, first_id=start, source=f"cam-{start // ROWS_PER_FILE % 3}")
    labelled = write_feed(folder / "labelled.parquet", ["water", "forest"] * 200, first_id=900_000)
    config = config_for(
        folder,
        f"feed.path={folder / 'feed'}",
        "novelty.settings={least: 4}",
        "gate.stolen_most=0.5",
        "gate.false_novel_most=0.5",
        *overrides,
    )
    fit(config, [str(labelled)])
    return with_oracle(config)


def _kind(progress: float, number: int) -> str:
    if progress >= 0.8 and number % 5 == 4:
        return "snow"
    if progress >= 0.4 and number % 5 == 3:
        return "sand"
    return "water" if number % 2 else "forest"


def rage(
    config: Config,
    cluster: Nodes,
    *,
    pause: tuple[float, float],
    seed: int = 0,
    engine: EngineFactory = open_engine_of,
    lose_node_at: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Toll:
    """Drain the feed while something is killed after every pause in which anything was done.

    With ``lose_node_at`` images committed, one of two nodes that hold an embedder each is lost.
    """
    lot = random.Random(seed)
    toll = Toll()
    began = time.monotonic()
    doomed = [cluster.add(site=1), cluster.add(site=1)]
    try:
        while True:
            with driver(config, engine=engine) as process:
                killed = _disturb(config, cluster, process, doomed, pause, lot, toll, lose_node_at)
                process.join()
            if not killed:
                assert process.exitcode == 0, f"the monitor ended with {process.exitcode}"
                break
            toll.drivers += 1
            say(f"{_images(config)} images; killed so far: {toll}")
    finally:
        for node in doomed:
            cluster.remove(node)
    toll.seconds = time.monotonic() - began
    return toll


def _disturb(
    config: Config,
    cluster: Nodes,
    process: BaseProcess,
    doomed: list[Any],
    pause: tuple[float, float],
    lot: random.Random,
    toll: Toll,
    lose_node_at: int | None,
) -> bool:
    """Kill until the driver itself is the victim (True) or has finished (False)."""
    seen = _images(config)
    while process.is_alive():
        process.join(lot.uniform(*pause))
        now = _images(config)
        if now == seen or not process.is_alive():
            continue
        seen = now
        if lose_node_at is not None and now >= lose_node_at and not toll.nodes:
            toll.nodes += 1
            cluster.remove(doomed.pop(0))
            doomed.append(cluster.add(site=1))
        elif lot.random() < DRIVER_SHARE:
            process.kill()
            return True
        elif victims := sorted(killable_actors(cluster)):
            role = lot.choice(sorted({role for role, _ in victims}))
            _, victim = lot.choice([v for v in victims if v[0] == role])
            toll.actors[role] += 1
            os.kill(victim, signal.SIGKILL)
    return False


def killable_actors(cluster: Nodes) -> Iterator[tuple[str, int]]:
    """Role and process of every actor of ours, and of nobody else's."""
    ours = cluster.raylets()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            title = (folder / "cmdline").read_text()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        role = title.removeprefix("ray::").partition(".")[0].strip("\0 ")
        if parent in ours and role in ROLES:
            yield role, int(folder.name)


def _images(config: Config) -> int:
    with open_existing_store(config) as store, store.reading() as tx:
        return int(sum(count.value for count in tx.counters.all("images")))


def check(config: Config, images: int) -> dict[str, Any]:
    """Every image once, every question once, and the budgets to the last label."""
    with open_existing_store(config) as store:
        found = [str(row[0]) for row in rows(store, "verdicts")]
    assert len(found) == len(set(found)), "an image has two verdicts"
    assert set(found) == {f"{i:06d}" for i in range(images)}, "images were lost"
    with open_existing_store(config) as store, store.reading() as tx:
        asked = _check_questions(tx)
        assert tx.counters.value("batches", "", "quarantined") == 0
        assert sum(c.value for c in tx.counters.all("images")) == images
        assert account(tx).unaccounted == 0, "the account does not add up"
        discovered = [c.name for c in tx.classes.living() if c.created_in is not None]
    return {"images": len(found), "labels": asked, "classes": discovered}


def _check_questions(tx: Transaction) -> int:
    asked: list[tuple[str, str]] = []
    for number in range(1, 1 + sum(tx.counts.pools_by_state().values())):
        pool = tx.pools.get(number)
        questions = tx.questions.of_pool(number)
        assert pool.asked == len(questions) <= pool.budget, f"pool {number} is out of budget"
        asked += [(question.source_id, question.image_id) for question in questions]
    assert len(asked) == len(set(asked)), "a label was asked twice"
    assert tx.counters.value("labels_spent") == len(asked)
    answers = tx.answers.count_by_kind()
    assert sum(answers.values()) == len(asked), "an answer was lost or came twice"
    return len(asked)
