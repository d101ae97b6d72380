"""Home names what full pools wait for, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.config.desk_section import DeskSection
from monitor.desk.app import build
from monitor.people.answer_questions import Said, Word, give
from monitor.store import Store
from monitor.store.pool_transitions import PoolEvent
from tests.desk.client import Client
from tests.people import world

EXAMINED = "1 full pool is about to be examined."


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A monitor that runs, and a full pool."""
    with Store.open(tmp_path / "state") as opened:
        world.fit(opened)
        give_sign_of_life(opened)
        fill(opened)
        yield opened


def fill(store: Store) -> int:
    with store.transaction() as tx:
        pool = tx.pools.open().id
        tx.pools.apply(pool, PoolEvent.FILLED)
    return pool


def give_sign_of_life(store: Store, **labels: int) -> None:
    with store.transaction() as tx:
        note: dict[str, Any] = {"seen_at": tx.now.isoformat(), "labels": labels}
        tx.notes.set("monitor", "coordinator", note)


def home(store: Store) -> str:
    return Client(build(store, DeskSection())).get("/").text


def test_with_nothing_in_the_way_it_is_examined(store: Store) -> None:
    give_sign_of_life(store, per_week=1000, spent_this_week=999)
    assert EXAMINED in home(store)
    fill(store)
    assert "2 full pools are about to be examined." in home(store)


def test_questions_about_earlier_images_come_first(store: Store) -> None:
    questions = world.ask(store, 4, pool=2)
    words = "1 full pool waits until the questions about earlier images are answered."
    assert words in home(store)
    answers = [Said(question.id, Word.CLASS, "dune") for question in questions]
    give(store, answers, who="ada", action="all-of-them")
    assert "1 full pool waits until the monitor has worked out what the answers" in home(store)


def test_a_spot_check_keeps_no_pool_waiting(store: Store) -> None:
    pool = fill(store)
    with store.transaction() as tx:
        tx.pools.begin_asking(
            pool, budget=3, detector_version=1, evidence={"probe": 3}, event=PoolEvent.PROBED
        )
    assert EXAMINED in home(store)


def test_a_held_version_waits_for_an_admin(store: Store) -> None:
    pool = fill(store)
    with store.transaction() as tx:
        tx.pools.begin_asking(pool, budget=3, detector_version=1)
        tx.pools.apply(pool, PoolEvent.VERSION_HELD)
    world.ask(store, 4, pool=3)
    assert "1 full pool waits until an admin has used or refused the version" in home(store)


def test_the_questions_of_a_week_are_used_up(store: Store) -> None:
    give_sign_of_life(store, per_week=1000, spent_this_week=1000)
    assert "all 1,000 questions of these seven days are used up; labels.per_week" in home(store)


def test_a_monitor_that_does_not_run_examines_nothing(store: Store) -> None:
    world.ask(store, 4, pool=2)
    words = "1 full pool waits for the monitor, which is not running; start it"
    with store.transaction() as tx:
        tx.events.append("monitor.stopped", {"owner": "somebody"})
    assert words in home(store), "its last sign of life is seconds old, but it said goodbye"
    give_sign_of_life(store)
    assert words not in home(store)
    with store.transaction() as tx:
        tx.notes.delete("monitor", "coordinator")
    assert words in home(store)


def test_home_counts_what_was_found_when_a_pool_was_examined(store: Store) -> None:
    pool = fill(store)
    evidence = {"novel": {"cam-1": 55, "cam-2": 12}, "sources": ["cam-1"]}
    with store.transaction() as tx:
        tx.pools.begin_asking(pool, budget=3, detector_version=1, evidence=evidence)
    text = home(store)
    assert "<b>67</b> of 0 images look new" in text
    assert "more looks new at cam-1 than chance explains" in text


def test_who_begins_is_told_what_comes_first(tmp_path: Path) -> None:
    with Store.open(tmp_path / "nothing") as store:
        assert "<code>conclad fit --data FILES</code>, then" in home(store)
