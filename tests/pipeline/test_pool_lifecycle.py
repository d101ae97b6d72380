"""The way of a pool, step by step: what is done next, by whom, and what a crash changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.pipeline.inner_loop_driver import LoopConclusion
from monitor.pipeline.worker_tasks import (
    AdvanceInnerLoop,
    ClusterPool,
    InspectPool,
    RenderThumbnails,
    SettlePool,
)
from monitor.store import VersionUpdate, check, commit_version, refuse_version, release_version
from monitor.store.exemplars import exemplars_of
from monitor.store.pool_transitions import PoolState
from monitor.store.record_states import QuestionState, VersionState
from tests.pipeline.world import CALM, NEW, World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path)
    yield made
    assert check(made.store) == []
    made.store.close()


def truth(kind: str) -> str | None:
    return "new" if kind == "n" else kind


def nobody(kind: str) -> str | None:
    return None


# -- filling and closing --------------------------------------------------------------------


def test_without_a_pool_there_is_nothing_to_do(world: World) -> None:
    assert world.advance().step == "idle"
    assert world.advance(final=True).step == "idle"


def test_a_pool_that_is_not_full_goes_on_filling(world: World) -> None:
    pool = world.fill(CALM[:40])
    assert world.advance().step == "idle"
    assert world.state(pool) is PoolState.FILLING


def test_a_full_pool_is_closed_and_then_inspected(world: World) -> None:
    pool = world.fill(CALM)
    assert world.advance().step == "moved"
    assert world.state(pool) is PoolState.CLOSED
    task = world.advance().task
    assert isinstance(task, InspectPool)
    assert (task.pool_id, task.version, task.versions) == (pool, 1, (1,))
    assert task.features.shape == (60, 16)
    assert set(task.sources) == {"cam-1"}


def test_a_pool_closes_at_its_age(world: World) -> None:
    world.configure("pools", look_minutes=1e6)
    pool = world.fill(CALM[:20])
    world.clock.advance(hours=23)
    assert world.advance().step == "idle"
    world.clock.advance(hours=1)
    assert world.advance().step == "moved"
    assert world.state(pool) is PoolState.CLOSED


def test_a_pool_with_too_few_images_is_not_closed_by_age_or_the_end(world: World) -> None:
    pool = world.fill(CALM[:10])
    world.clock.advance(hours=100)
    assert world.advance(final=True).step == "idle"
    assert world.state(pool) is PoolState.FILLING


def test_the_end_of_the_feed_closes_what_is_there(world: World) -> None:
    pool = world.fill(CALM[:20])
    assert world.advance(final=True).step == "moved"
    assert world.state(pool) is PoolState.CLOSED


def test_one_task_at_a_time_while_full_pools_still_close(world: World) -> None:
    world.fill(CALM)
    world.advance()
    assert world.advance().task is not None
    assert world.pools.is_working
    second = world.fill(CALM)
    assert world.advance().step == "moved"
    assert world.state(second) is PoolState.CLOSED
    advanced = world.advance()
    assert (advanced.step, advanced.task) == ("working", None)


# -- an inspection and its decision -----------------------------------------------------------


def test_a_calm_pool_is_quiet_and_nobody_is_asked(world: World) -> None:
    pool = world.fill(CALM)
    world.settle()
    assert world.state(pool) is PoolState.QUIET
    assert world.tasks() == ["InspectPool", "SettlePool"]
    assert world.questions(pool) == []
    assert [e.payload["pool"] for e in world.events("pool.quiet")] == [pool]


def test_a_pool_with_something_new_is_asked_about(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    assert world.state(pool) is PoolState.WAITING
    assert world.tasks() == ["InspectPool", "AdvanceInnerLoop", "RenderThumbnails"]
    asked = world.questions(pool)
    assert 0 < len(asked) <= world.pool(pool).budget == 12
    assert all(question.thumbnail for question in asked)
    assert world.count("labels_spent") == len(asked)
    (triggered,) = world.events("pool.triggered")
    assert triggered.payload["novel"]["cam-1"] >= 15


def test_a_version_that_came_meanwhile_makes_the_inspection_void(world: World) -> None:
    pool = world.fill(CALM)
    world.advance()
    task = world.advance().task
    assert task is not None
    seen = world.do(task)
    update = VersionUpdate("other", world.current.detector, 1)
    commit_version(world.store, update)
    world.pools.receive(seen, world.current)
    assert world.state(pool) is PoolState.CLOSED
    again = world.advance().task
    assert isinstance(again, InspectPool)
    assert again.version == 2


def test_a_lost_task_is_handed_out_again(world: World) -> None:
    world.fill(CALM)
    world.advance()
    first = world.advance().task
    world.pools.lose()
    second = world.advance().task
    assert isinstance(first, InspectPool)
    assert isinstance(second, InspectPool)
    assert first.pool_id == second.pool_id


def test_a_failed_inspection_gives_the_pool_up_and_says_why(world: World) -> None:
    pool = world.fill(CALM)
    world.advance()
    assert world.advance().task is not None
    assert world.pools.fail(ValueError("out of numbers"))
    assert world.state(pool) is PoolState.UNRESOLVED
    assert world.pool(pool).reason == "its inner loop failed: out of numbers"
    assert world.count("update_failures") == 1
    assert isinstance(world.advance().task, SettlePool)


def test_a_failed_early_inspection_leaves_the_pool_filling(world: World) -> None:
    pool = world.fill(CALM[:40])
    world.clock.advance(minutes=11)
    task = world.advance().task
    assert isinstance(task, InspectPool)
    assert not world.pools.fail(ValueError("out of numbers"))
    assert world.state(pool) is PoolState.FILLING
    assert world.count("update_failures") == 1
    assert world.advance().step == "idle", "not at once again"
    world.fill(CALM[:20])
    world.settle()
    assert world.state(pool) is PoolState.QUIET


def test_an_early_inspection_waits_until_the_pool_has_doubled(world: World) -> None:
    world.configure("pools", size=1000)
    world.fill(CALM[:20])
    world.clock.advance(minutes=11)
    first = world.advance().task
    assert isinstance(first, InspectPool)
    world.pools.receive(world.do(first), world.current)
    world.clock.advance(minutes=11)
    assert world.advance().step == "idle"
    world.fill(CALM[:20])
    second = world.advance().task
    assert isinstance(second, InspectPool)
    assert len(second.features) == 40


# -- rounds -----------------------------------------------------------------------------------


def test_what_people_answer_becomes_a_class(world: World) -> None:
    pool = world.fill(NEW)
    world.settle(answer=truth)
    assert world.state(pool) is PoolState.RESOLVED
    assert [known.name for known in world.current.detector.classes] == ["a", "b", "new"]
    assert world.pool(pool).resolved_by == 2
    assert len(world.events("class.discovered")) == 1
    assert {question.state for question in world.questions(pool)} == {QuestionState.CLOSED}
    assert world.count("inner_loops", "discovered") == 1


def test_pseudo_labels_get_their_thumbnails_before_the_next_pool(world: World) -> None:
    world.fill(NEW)
    world.settle(answer=truth)
    assert isinstance(world.done[-1], SettlePool)
    last = world.done[-2]
    assert isinstance(last, RenderThumbnails)
    assert last.of == "pseudo-labels"
    class_id = world.current.detector.classes[-1].id
    with world.store.reading() as tx:
        shown = exemplars_of(tx, class_id)
    assert len(shown) == len(last.rows) > 0
    assert world.advance().step == "idle"


def test_thumbnails_that_fail_leave_the_class_without_them(world: World) -> None:
    world.fill(NEW)
    world.settle(answer=truth)
    world.fill("ab" * 20 + "m" * 20)
    world.advance()
    while True:
        task = world.advance().task
        if isinstance(task, RenderThumbnails) and task.of == "pseudo-labels":
            break
        if task is None:
            world.answer(lambda kind: "more" if kind == "m" else truth(kind))
            continue
        world.pools.receive(world.do(task), world.current)
    assert not world.pools.fail(ValueError("no such file"))
    assert isinstance(world.advance().task, SettlePool)
    with world.store.reading() as tx:
        assert exemplars_of(tx, world.current.detector.classes[-1].id) == []


def test_answers_that_find_nothing_new_resolve_the_pool(world: World) -> None:
    pool = world.fill(NEW)
    world.settle(answer=lambda kind: "a")
    assert world.state(pool) is PoolState.RESOLVED
    assert world.pool(pool).resolved_by is None
    assert world.current.number == 1
    assert world.pool(pool).reason == "nothing new"


def test_a_round_stays_open_until_all_have_answered(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    assert world.advance().step == "idle"
    world.answer(truth)
    assert world.advance().step == "moved"
    assert world.state(pool) is PoolState.ASKING
    (closed,) = world.events("questions.closed")
    assert closed.payload["unanswered"] == 0


def test_a_crash_between_two_rounds_asks_nobody_twice(world: World, tmp_path: Path) -> None:
    pool = world.fill(NEW)
    for _ in range(20):
        world.settle()
        world.start_again()
        if not world.answer(truth):
            break
    assert world.state(pool) is PoolState.RESOLVED
    rows = [(question.batch_id, question.spool_row) for question in world.questions(pool)]
    assert len(rows) == len(set(rows)) <= world.pool(pool).budget
    calm = make_world(tmp_path / "calm")
    calm.fill(NEW)
    calm.settle(answer=truth)
    assert [(q.batch_id, q.spool_row) for q in calm.questions(pool)] == rows
    calm.store.close()


def test_a_crash_after_the_choice_of_a_round_chooses_it_again(world: World) -> None:
    pool = world.fill(NEW)
    world.advance()
    for _ in range(2):
        task = world.advance().task
        assert task is not None
        world.pools.receive(world.do(task), world.current)
    first = world.advance().task
    assert isinstance(first, RenderThumbnails)
    world.start_again()
    again = world.advance().task
    assert isinstance(again, AdvanceInnerLoop)
    world.pools.receive(world.do(again), world.current)
    assert world.advance().task == first
    assert world.state(pool) is PoolState.ASKING


def test_lost_thumbnails_of_questions_are_rendered_again(world: World) -> None:
    world.fill(NEW)
    world.advance()
    for _ in range(2):
        task = world.advance().task
        assert task is not None
        world.pools.receive(world.do(task), world.current)
    first = world.advance().task
    world.pools.lose()
    assert world.advance().task == first


def test_thumbnails_of_questions_that_fail_give_the_pool_up(world: World) -> None:
    pool = world.fill(NEW)
    world.advance()
    for _ in range(2):
        task = world.advance().task
        assert task is not None
        world.pools.receive(world.do(task), world.current)
    assert isinstance(world.advance().task, RenderThumbnails)
    assert world.pools.fail(ValueError("no such file"))
    assert world.state(pool) is PoolState.UNRESOLVED
    assert isinstance(world.advance().task, SettlePool)


def test_a_pool_that_nobody_answers_is_kept_as_unresolved(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    world.clock.advance(hours=73)
    world.settle()
    assert world.state(pool) is PoolState.UNRESOLVED
    assert world.pool(pool).reason == "nobody answered within 72 hours"


def test_a_pool_that_nobody_answers_may_be_clustered(world: World) -> None:
    world.configure("pools", unanswered="cluster")
    pool = world.fill(NEW)
    world.settle()
    world.clock.advance(hours=73)
    world.settle()
    assert "ClusterPool" in world.tasks()
    assert world.state(pool) is PoolState.RESOLVED
    assert world.current.detector.classes[-1].name == "unnamed 1.1"


def test_clusters_that_find_nothing_leave_the_pool_unresolved(world: World) -> None:
    world.configure("pools", unanswered="cluster")
    pool = world.fill(NEW)
    world.settle()
    world.clock.advance(hours=73)
    assert world.advance().step == "moved"
    assert isinstance(world.advance().task, ClusterPool)
    nothing = LoopConclusion("nothing new", (), None, None, 0, 0, None, 0.0, provisional=True)
    world.pools.receive(nothing, world.current)
    assert world.state(pool) is PoolState.UNRESOLVED


def test_some_answers_in_time_are_enough_to_conclude(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    world.answer(truth)
    world.settle()
    assert world.state(pool) is PoolState.WAITING, "a second round"
    world.clock.advance(hours=73)
    world.settle()
    assert world.state(pool) is PoolState.RESOLVED
    assert world.pool(pool).evidence["stopped"] == "unanswered"


def test_people_who_cannot_tell_teach_nothing(world: World) -> None:
    pool = world.fill(NEW)
    world.settle(answer=nobody)
    assert world.state(pool) is PoolState.RESOLVED
    assert world.current.number == 1


def test_an_oracle_answers_at_once(tmp_path: Path) -> None:
    world = make_world(tmp_path, oracle=True)
    pool = world.fill(NEW)
    world.settle()
    assert world.state(pool) is PoolState.RESOLVED
    assert [known.name for known in world.current.detector.classes] == ["a", "b", "n"]
    world.store.close()


# -- several pools ----------------------------------------------------------------------------


def test_what_is_new_is_asked_about_once(world: World) -> None:
    first, second = world.fill(NEW), 0
    world.settle()
    second = world.fill(NEW)
    world.settle()
    assert (world.state(first), world.state(second)) == (PoolState.WAITING, PoolState.CLOSED)
    world.settle(answer=truth)
    assert world.state(first) is PoolState.RESOLVED
    assert world.state(second) in (PoolState.QUIET, PoolState.RESOLVED)
    assert len(world.events("class.discovered")) == 1, "the new class explains the second pool"


def test_of_too_many_pools_that_wait_the_oldest_is_given_up(world: World) -> None:
    world.configure("pools", waiting_most=2)
    world.fill(NEW)
    world.settle()
    waiting = []
    for _ in range(3):
        waiting.append(world.fill(NEW))
        world.settle()
    states = [world.state(pool) for pool in waiting]
    assert states == [PoolState.UNRESOLVED, PoolState.CLOSED, PoolState.CLOSED]
    assert "more than 2 pools" in str(world.pool(waiting[0]).reason)


def test_a_spent_week_lets_pools_wait_and_says_so_once(world: World) -> None:
    world.configure("labels", per_week=5)
    first = world.fill(NEW)
    world.settle(answer=lambda kind: "a")
    assert world.state(first) is PoolState.RESOLVED
    assert len(world.questions(first)) == 5
    second = world.fill(NEW)
    world.settle()
    world.settle()
    assert world.state(second) is PoolState.CLOSED
    assert [e.payload["pool"] for e in world.events("budget.exhausted")] == [second]
    world.clock.advance(days=8)
    world.settle()
    assert world.state(second) in (PoolState.WAITING, PoolState.QUIET)


def test_a_held_version_blocks_the_next_pools_until_an_operator_decides(world: World) -> None:
    world.configure("gate", least_labels=100)
    first = world.fill(NEW)
    world.settle(answer=truth)
    assert world.state(first) is PoolState.HELD
    second = world.fill(NEW)
    world.settle()
    assert world.state(second) is PoolState.CLOSED
    refuse_version(world.store, 2, who="ada", reason="these are boats")
    assert world.state(first) is PoolState.UNRESOLVED
    world.settle()
    assert world.state(second) is PoolState.WAITING


def test_a_released_version_resolves_its_pool(world: World) -> None:
    world.configure("gate", least_labels=100)
    pool = world.fill(NEW)
    world.settle(answer=truth)
    with world.store.reading() as tx:
        assert tx.versions.get(2).state is VersionState.HELD
    release_version(world.store, 2, who="ada", reason="it is right")
    assert world.state(pool) is PoolState.RESOLVED
    assert world.current.number == 2


def test_a_conclusion_for_an_older_version_is_drawn_again(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    while world.state(pool) is not PoolState.RESOLVED:
        world.answer(truth)
        task = world.advance().task
        if task is None:
            continue
        result = world.do(task)
        if isinstance(result, LoopConclusion) and world.current.number == 1:
            commit_version(world.store, VersionUpdate("other", world.current.detector, 1))
        world.pools.receive(result, world.current)
    assert world.current.number == 3
    assert world.current.detector.classes[-1].name == "new"


def test_a_person_who_changes_the_detector_at_that_moment_wins(world: World) -> None:
    pool = world.fill(NEW)
    world.settle()
    stale = world.current
    while world.count("update_failures") == 0:
        world.answer(truth)
        task = world.advance().task
        if task is None:
            continue
        result = world.do(task)
        if isinstance(result, LoopConclusion):
            commit_version(world.store, VersionUpdate("other", world.current.detector, 1))
            world.pools.receive(result, stale)
        else:
            world.pools.receive(result, world.current)
    assert world.state(pool) is PoolState.ASKING
    world.settle(answer=truth)
    assert world.state(pool) is PoolState.RESOLVED
