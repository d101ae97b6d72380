"""What a run stands on is struck: the state's folder, the clock, tasks of pools, a hanging feed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import actors.batch_feeder
import actors.coordinator
import actors.desk_beside_monitor
import actors.run_monitor
import monitor.pipeline.worker_tasks
from actors.desk_beside_monitor import DeskKeeper
from actors.run_monitor import StoppedInOutage, run, watching_store
from monitor.backbones.engine import Images
from monitor.config import Config
from monitor.desk.errors import CannotStart
from monitor.desk.server import Handle
from monitor.errors import ErrorKind
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.new_files import FeedWatch, Sight
from monitor.images.errors import DecodersFailed
from monitor.jobs.from_config import open_engine_of
from monitor.outages import Outages
from monitor.pipeline.pool_inspection import PoolInspection, inspect_pool
from monitor.store import Store
from monitor.store.database import Database
from monitor.store.errors import StoreUnreachable
from tests.actors.engines import Around
from tests.actors.story import Story, expected_ids, image_ids, tell_story
from tests.actors.test_faults import (
    assert_as_undisturbed,
    copied,
    later,
    striking,
    undisturbed,
)

__all__ = ["undisturbed"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture
def config(told: Story, tmp_path: Path) -> Config:
    return copied(told, tmp_path)


def test_the_folder_of_the_state_is_away(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """What is open goes on with the folder that was renamed; nothing is made in its place."""
    state, away = tmp_path / "state", tmp_path / "away"
    heard: list[str] = []

    def bring_back() -> None:
        assert not state.exists()
        away.rename(state)

    def strike() -> None:
        state.rename(away)
        later(bring_back)

    summary = run(
        config, once=True, open_engine=striking(strike), listener=lambda m: heard.append(m.kind)
    )
    assert {"disk.unavailable", "disk.back"} <= set(heard)
    assert_as_undisturbed(config, summary, undisturbed)


def test_a_planned_file_is_cut_short_and_written_again(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """A run over what is there looks again before it ends."""
    last = tmp_path / "feed" / "003.parquet"
    whole = last.read_bytes()

    def strike() -> None:
        last.write_bytes(whole[: len(whole) // 2])

    calls = iter(range(1, 1_000_000))

    def before(_: Images) -> None:
        number = next(calls)
        if number == 4:
            strike()
        if number == 10:
            last.write_bytes(whole)

    summary = run(config, once=True, open_engine=lambda one: Around(open_engine_of(one), before))
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


@pytest.mark.parametrize("days", [1, -1, 400])
def test_a_clock_that_is_wrong_for_a_while_ends_nothing(
    config: Config, undisturbed: dict[str, Any], days: int
) -> None:
    """No pool closes because of its age, no round because of its time."""
    offset, heard = [timedelta()], list[str]()

    def strike() -> None:
        offset[0] = timedelta(days=days)
        later(lambda: offset.__setitem__(0, timedelta()))

    summary = run(
        config,
        once=True,
        open_engine=striking(strike),
        clock=lambda: datetime.now(UTC) + offset[0],
        listener=lambda m: heard.append(m.kind),
    )
    assert "clock.jumped" in heard
    assert_as_undisturbed(config, summary, undisturbed)


@pytest.mark.parametrize(
    ("error", "times"),
    [(MemoryError(), 3), (OSError(24, "Too many open files"), 3), (DecodersFailed("died"), 9)],
    ids=["memory", "files", "worker"],
)
def test_a_pool_is_not_given_up_for_what_may_pass(
    config: Config,
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    times: int,
) -> None:
    monkeypatch.setattr(actors.coordinator, "POOL_RETRY_SECONDS", 0.01)
    left = [times]

    def fail(*arguments: Any, **named: Any) -> PoolInspection:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return inspect_pool(*arguments, **named)

    monkeypatch.setattr(monitor.pipeline.worker_tasks, "inspect_pool", fail)
    assert_as_undisturbed(config, run(config, once=True), undisturbed)


def test_a_pool_that_always_fails_is_given_up_and_the_feed_goes_on(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.coordinator, "POOL_RETRY_SECONDS", 0.01)

    def fail(*arguments: Any, **named: Any) -> PoolInspection:
        raise ValueError("out of numbers")

    monkeypatch.setattr(monitor.pipeline.worker_tasks, "inspect_pool", fail)
    summary = run(config, once=True)
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert summary.pools == {"unresolved": 4}


def test_a_feed_that_hangs_is_said_to_be_away(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead mount answers nothing, not even that it is dead."""
    monkeypatch.setattr(actors.batch_feeder, "HANG_SECONDS", 0.1)
    mounted, heard = threading.Event(), list[str]()
    look = FeedWatch.look

    def hang(*_: object) -> bool:
        assert mounted.wait(60)
        return True

    def hanging_look(watch: FeedWatch) -> Sight:
        hang()
        return look(watch)

    monkeypatch.setattr(FeedWatch, "look", hanging_look)
    monkeypatch.setattr(FeedStorage, "is_there", hang)

    def listener(message: Any) -> None:
        heard.append(message.kind)
        if message.kind == "feed.unavailable":
            mounted.set()

    summary = run(config, once=True, listener=listener)
    assert heard.count("feed.unavailable") == heard.count("feed.back") == 1
    assert_as_undisturbed(config, summary, undisturbed)


def test_a_database_that_starts_after_the_monitor_is_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop before it is there, the monitor has stopped, and that is no failure."""
    heard: list[str] = []

    def refuse(*_: object) -> Store:
        if len(heard) > 0:
            later(lambda: os.kill(os.getpid(), signal.SIGTERM), 0.1)
        raise StoreUnreachable("connection refused")

    monkeypatch.setattr(actors.run_monitor, "open_state_to_write", refuse)
    with pytest.raises(StoppedInOutage, match="connection refused"):
        run(config, listener=lambda message: heard.append(message.kind))
    assert heard == ["store.unavailable"]


class _Database:
    """Hangs for as long as it is told to, for the thread that asked for it."""

    where, hangs = "postgresql://somewhere", False

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def busy_seconds(self, thread: int) -> float:
        return 60.0 if self.hangs and thread == self._thread else 0.0


def test_a_database_that_hangs_is_said_to_be_away() -> None:
    database, heard = _Database(), list[str]()
    outages = Outages(report=lambda kind, text: heard.append(kind))
    with watching_store(cast(Database, database), outages, lambda kind: False, look_seconds=0.01):
        database.hangs = True
        until(lambda: bool(heard))
        assert [one.kind for one in outages.current()] == [ErrorKind.STORE]
        assert outages.is_waiting()
        database.hangs = False
        until(lambda: len(heard) == 2)
    assert heard == ["store.unavailable", "store.back"]
    assert outages.current() == ()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_transaction_knows_how_long_it_takes(tmp_path: Path) -> None:
    me = threading.get_ident()
    with Store.open(tmp_path) as store:
        assert store.database.busy_seconds(me) == 0
        with store.transaction():
            until(lambda: store.database.busy_seconds(me) > 0.05)
            assert store.database.busy_seconds(me + 1) == 0
        assert store.database.busy_seconds(me) == 0


class _Desk:
    """One that dies when it is told to."""

    url = "http://desk"

    def __init__(self) -> None:
        self.lives, self.is_stopped = True, False

    def alive(self) -> bool:
        return self.lives

    def stop(self) -> None:
        self.is_stopped = True


def test_a_desk_that_cannot_start_or_dies_is_started_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.desk_beside_monitor, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(actors.desk_beside_monitor, "LOOK_SECONDS", 0.01)
    heard, desks = list[str](), list[_Desk]()
    troubles = [CannotStart("the database is away")] * 3

    def start(_: Config) -> Handle:
        if troubles:
            raise troubles.pop()
        desks.append(_Desk())
        return cast(Handle, desks[-1])

    keeper = DeskKeeper(config, heard.append, start)
    until(lambda: len(desks) == 1)
    desks[0].lives = False
    until(lambda: len(desks) == 2)
    keeper.close()
    assert [desk.is_stopped for desk in desks] == [True, True]
    assert heard == [
        "without a desk for now: the database is away",
        "desk: http://desk",
        "the desk has ended; another one is started",
        "desk: http://desk",
    ]
