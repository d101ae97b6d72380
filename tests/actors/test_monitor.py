"""The running monitor, from files to versions, with people who answer when they like."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.coordinator_lease import AlreadyRunning, acquire_lease, process_started
from actors.run_monitor import Summary, run
from monitor.config import Config
from monitor.store import Store, release_version
from monitor.store.answer_kinds import AnswerKind
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import ClassOrigin, FileState, VersionState
from monitor.store.records import Question
from tests.actors.crashing import at
from tests.actors.story import CHAPTERS, Story, expected_ids, image_ids, tell_story, with_oracle
from tests.jobs.feeds import picture, write_feed


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture
def config(told: Story, tmp_path: Path) -> Config:
    """The story with a state and a feed of the test's own."""
    shutil.copytree(told.state, tmp_path / "state")
    shutil.copytree(told.config.feed.path, tmp_path / "feed")
    config = at(told.config, tmp_path / "state")
    return changed(config, "feed", path=str(tmp_path / "feed"))


def changed(config: Config, section: str, **values: object) -> Config:
    part = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: part})


def opened(config: Config) -> Store:
    return Store.open(config.state.dir)


def truth(question: Question) -> str:
    """What is on the picture: the story's letters, by the image's number."""
    letter = "".join(CHAPTERS)[int(question.image_id)]
    return {"w": "water", "f": "forest", "s": "sand", "n": "snow"}[letter]


def answer_all(config: Config, say: Callable[[Question], str | None] = truth) -> int:
    """Answer every open question as a person would; returns how many there were."""
    with opened(config) as store, store.transaction() as tx:
        questions = tx.questions.list_open()
        current = tx.versions.current()
        assert current is not None
        for question in questions:
            name = say(question)
            if name is None:
                continue
            row = tx.classes.ensure(name, ClassOrigin.PERSON)
            known = row.origin is ClassOrigin.FIT or row.created_in is not None
            kind = AnswerKind.KNOWN_CLASS if known else AnswerKind.NEW_CLASS
            tx.answers.record(
                question.id, kind, who="ada", client_id=f"ada:{question.id}", class_id=row.id
            )
        return len(questions)


class Clock:
    """A clock that stands until it is moved; it starts now, as leases were taken now."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def pass_hours(self, hours: float) -> None:
        self.now += timedelta(hours=hours)


def test_people_answer_between_runs_and_nothing_is_asked_twice(config: Config) -> None:
    asked: list[int] = []
    for _ in range(12):
        summary = run(config, once=True)
        with opened(config) as store, store.reading() as tx:
            asked += [question.id for question in tx.questions.list_open()]
        if not answer_all(config):
            break
    assert summary.discovered == ("sand",)
    assert len(asked) == len(set(asked)) == summary.labels
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


def test_the_feed_does_not_wait_for_people(config: Config) -> None:
    summary = run(config, once=True)
    assert summary.open_questions > 0
    assert sum(summary.images.values()) == len(expected_ids())
    assert summary.pools == {"quiet": 1, "waiting": 1, "closed": 2}


def test_waiting_pools_are_judged_again_by_what_was_learnt(config: Config) -> None:
    """The third pool holds the same new class as the second: nobody is asked about it again."""
    first = run(config, once=True)
    while answer_all(config):
        last = run(config, once=True)
    assert first.pools["closed"] == 2
    assert last.pools == {"quiet": 3, "resolved": 1}
    assert last.labels == 9


def test_a_round_ends_with_the_answers_it_has(config: Config) -> None:
    clock = Clock()
    run(config, once=True, clock=clock)
    answer_all(config, lambda question: truth(question) if question.id > 1 else None)
    clock.pass_hours(config.labels.timeout_hours + 1)
    run(config, once=True, clock=clock)
    with opened(config) as store, store.reading() as tx:
        assert tx.pools.get(2).state is PoolState.RESOLVED
        assert tx.counts.open_questions(2) == 0
        assert tx.pools.get(2).asked < tx.pools.get(2).budget


def test_a_pool_that_nobody_answers_stays_unresolved(config: Config) -> None:
    clock = Clock()
    run(config, once=True, clock=clock)
    clock.pass_hours(config.labels.timeout_hours + 1)
    summary = run(config, once=True, clock=clock)
    assert summary.version == 1
    with opened(config) as store, store.reading() as tx:
        assert tx.pools.get(2).state is PoolState.UNRESOLVED
        assert "nobody answered" in (tx.pools.get(2).reason or "")


def test_a_pool_that_nobody_answers_can_become_provisional_classes(config: Config) -> None:
    clock = Clock()
    config = changed(config, "pools", unanswered="cluster")
    run(config, once=True, clock=clock)
    clock.pass_hours(config.labels.timeout_hours + 1)
    run(config, once=True, clock=clock)
    with opened(config) as store, store.reading() as tx:
        made = [row for row in tx.classes.all() if row.origin is ClassOrigin.PROVISIONAL]
        assert [row.name for row in made][:1] == ["unnamed 2.1"]
        assert tx.pools.get(2).state is PoolState.RESOLVED


def test_the_gate_holds_a_version_until_an_operator_agrees(config: Config) -> None:
    strict = with_oracle(changed(config, "gate", least_labels=100))
    summary = run(strict, once=True)
    assert summary.version == 1
    with opened(config) as store:
        with store.reading() as tx:
            held = next(v for v in tx.versions.all() if v.state is VersionState.HELD)
            assert "least_labels" in (held.reason or "")
            assert [e.kind for e in tx.events.after(kinds=["detector.held"])] == ["detector.held"]
        release_version(store, held.number, who="operator", reason="looks right")
    assert run(strict, once=True).discovered == ("sand",)


def test_another_version_takes_effect_between_two_batches(config: Config, tmp_path: Path) -> None:
    run(with_oracle(config), once=True)
    with opened(config) as store, store.transaction() as tx:
        tx.versions.rollback(1, who="operator", reason="test")
    write_feed(tmp_path / "feed" / "late.parquet", ["sand"] * 5, first_id=1000)
    summary = run(config, once=True)
    assert summary.version == 1
    with opened(config) as store, store.reading() as tx:
        last = max(
            b.id for f in tx.files.in_state(FileState.DONE) for b in tx.batches.of_file(f.id)
        )
        assert tx.batches.get(last).detector_version == 1
        assert tx.batches.get(last).novel == 5


def test_bad_files_are_quarantined_and_the_feed_goes_on(config: Config, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    (feed / "broken.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    pq.write_table(pa.table({"other": [1]}), feed / "alien.parquet")
    write_feed(
        feed / "some.parquet",
        ["water"] * 3,
        first_id=2000,
        images=[picture("water", 1), b"no image", picture("water", 2)],
    )
    heard: list[str] = []
    summary = run(config, once=True, listener=lambda t: heard.append(t.text))
    assert summary.files == {"done": 5, "quarantined": 2}
    assert summary.images["rejected"] == 1
    assert any("alien.parquet" in text for text in heard)
    assert len(image_ids(Path(config.state.dir))) == len(expected_ids()) + 2


def test_an_unfinished_file_is_left_for_the_next_time(config: Config, tmp_path: Path) -> None:
    whole = write_feed(tmp_path / "whole.parquet", ["water"] * 3, first_id=3000).read_bytes()
    (tmp_path / "feed" / "part.parquet").write_bytes(whole[:-20])
    assert run(config, once=True).files == {"done": 4, "new": 1}
    (tmp_path / "feed" / "part.parquet").write_bytes(whole)
    assert run(config, once=True).files == {"done": 5}


def test_duplicates_are_counted_once(config: Config, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "feed" / "000.parquet", tmp_path / "feed" / "again.parquet")
    summary = run(config, once=True)
    assert summary.images["duplicate"] == 60
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()
    with opened(config) as store, store.reading() as tx:
        scored = sum(c.value for c in tx.counters.all("score_ratio"))
    assert scored == len(expected_ids())


def test_a_changed_file_is_a_loud_event(config: Config, tmp_path: Path) -> None:
    run(config, once=True)
    shutil.copy(tmp_path / "feed" / "001.parquet", tmp_path / "feed" / "000.parquet")
    heard: list[str] = []
    run(config, once=True, listener=lambda t: heard.append(t.kind))
    assert "file.changed" in heard
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


def test_a_second_monitor_is_refused_and_a_dead_one_is_not_waited_for(config: Config) -> None:
    parent = os.getppid()
    with opened(config) as store:
        mine = acquire_lease(store)
        with store.transaction() as tx:
            tx.leases.release(mine)
            living = mine.owner.replace(f"pid {os.getpid()}", f"pid {parent}")
            living = living.rpartition(" ")[0] + f" {process_started(parent)}"
            lease = tx.leases.acquire("coordinator", living, timedelta(hours=1))
        with pytest.raises(AlreadyRunning, match=f"pid {parent}"):
            run(config, once=True)
        with store.transaction() as tx:
            tx.leases.release(lease)
            dead = mine.owner.replace(f"pid {os.getpid()}", "pid 999999999")
            tx.leases.acquire("coordinator", dead, timedelta(hours=1))
    summary: Summary = run(config, once=True)
    assert summary.pending == 0


def test_a_week_has_so_many_questions_and_no_more(config: Config) -> None:
    config = with_oracle(changed(config, "labels", per_week=5))
    assert run(config, once=True).labels == 5


def test_too_many_waiting_pools_give_the_oldest_up(config: Config) -> None:
    summary = run(changed(config, "pools", waiting_most=1), once=True)
    assert summary.pools == {"quiet": 1, "waiting": 1, "unresolved": 1, "closed": 1}
