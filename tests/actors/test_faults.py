"""The fault matrix: after an outage a run ends as if nothing had happened, and without a person.

Each fault strikes in the middle of a run with an oracle, in one process; what the state holds at
the end is compared with that of an undisturbed run. ``bench.faults`` has those that take minutes.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import torch

import actors.coordinator
import monitor.store.database
from actors.batch_retries import BatchesFailAlike
from actors.run_monitor import Summary, run
from actors.worker_pool import EngineFactory
from monitor.backbones.engine import Engine, Features, Images
from monitor.config import Config
from monitor.feed.errors import SourceError
from monitor.jobs.from_config import open_engine_of
from monitor.store import Store, check, commit_batches
from monitor.store.backup import back_up, restore
from tests.actors.crashing import at
from tests.actors.engines import Around
from tests.actors.story import Story, expected_ids, image_ids, outcome, tell_story, with_oracle
from tests.store.conftest import make_database
from tests.store.postgres import server

#: Long enough to be met by several tries, short enough for a test.
AWAY_SECONDS = 1.5
#: The batch before which a fault strikes: some are done, most are not.
STRIKES = 4


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell_story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def undisturbed(told: Story, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = copied(told, tmp_path_factory.mktemp("undisturbed"))
    run(config, once=True)
    return outcome(Path(config.state.dir))


@pytest.fixture
def config(told: Story, tmp_path: Path) -> Config:
    return copied(told, tmp_path)


def copied(told: Story, folder: Path) -> Config:
    shutil.copytree(told.state, folder / "state")
    shutil.copytree(told.config.feed.path, folder / "feed")
    config = with_oracle(at(told.config, folder / "state"))
    feed = config.feed.model_copy(update={"path": str(folder / "feed")})
    return config.model_copy(update={"feed": feed})


def striking(strike: Callable[[], object], call: int = STRIKES) -> EngineFactory:
    """An engine before whose n-th call something happens."""
    calls = iter(range(1, 1_000_000))

    def before(_: Images) -> None:
        if next(calls) == call:
            strike()

    return lambda config: Around(open_engine_of(config), before)


def later(action: Callable[[], object], seconds: float = AWAY_SECONDS) -> None:
    threading.Timer(seconds, action).start()


def assert_as_undisturbed(config: Config, summary: Summary, undisturbed: dict[str, Any]) -> None:
    state = Path(config.state.dir)
    assert summary.quarantined == {"files": 0, "batches": 0, "images": 0}
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert sorted(image_ids(state)) == expected_ids()
    assert outcome(state) == undisturbed
    with Store.open(state) as store:
        assert [finding for finding in check(store) if finding.severity == "error"] == []


def test_the_folder_of_the_feed_is_away(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    feed, away = tmp_path / "feed", tmp_path / "away"
    heard: list[str] = []

    def strike() -> None:
        feed.rename(away)
        later(lambda: away.rename(feed))

    summary = run(
        config, once=True, open_engine=striking(strike), listener=lambda m: heard.append(m.kind)
    )
    assert heard.count("feed.unavailable") == 1, "it is said once, not at every try"
    assert "feed.back" in heard
    assert_as_undisturbed(config, summary, undisturbed)


def test_the_folder_of_the_feed_is_empty_because_it_is_not_mounted(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    feed, away = tmp_path / "feed", tmp_path / "away"

    def strike() -> None:
        feed.rename(away)
        feed.mkdir()

        def mount() -> None:
            feed.rmdir()
            away.rename(feed)

        later(mount)

    summary = run(config, once=True, open_engine=striking(strike))
    assert_as_undisturbed(config, summary, undisturbed)


def test_a_feed_that_was_never_there_is_a_mistake(config: Config, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "feed")
    with pytest.raises(SourceError, match="no such folder"):
        run(config, once=True)


def test_planned_files_are_touched(
    config: Config, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    def strike() -> None:
        for number, file in enumerate(sorted((tmp_path / "feed").iterdir())):
            os.utime(file, (1_000_000 + number, 1_000_000 + number))

    summary = run(config, once=True, open_engine=striking(strike))
    assert_as_undisturbed(config, summary, undisturbed)


def test_a_file_that_was_not_read_is_replaced(config: Config, tmp_path: Path) -> None:
    """Its new content is read, and nobody has to do anything."""
    last = tmp_path / "feed" / "003.parquet"
    summary = run(
        config,
        once=True,
        open_engine=striking(lambda: shutil.copy(tmp_path / "feed" / "001.parquet", last)),
    )
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert summary.quarantined["images"] == 0
    assert sum(summary.images.values()) == len(expected_ids())
    assert summary.images["duplicate"] == 60


class _Broken(Around):
    """A device that fails in this process from some moment on, as CUDA does."""

    def __init__(self, inner: Engine, errors: Iterator[Exception | None]) -> None:
        super().__init__(inner, lambda images: None)
        self._errors = errors
        self._broken: Exception | None = None

    def _run(self, images: Images) -> Features:
        self._broken = self._broken or next(self._errors)
        if self._broken is not None:
            raise self._broken
        return super()._run(images)


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ],
    ids=["accelerator", "cudnn"],
)
def test_a_device_breaks_for_its_process(
    config: Config, undisturbed: dict[str, Any], error: Exception
) -> None:
    """Sticky: every later call of the same engine fails. Another worker has a sound one."""
    errors = iter([None] * STRIKES + [error] + [None] * 3 + [error] + [None] * 1000)
    opened: list[Engine] = []

    def factory(config: Config) -> Engine:
        opened.append(_Broken(open_engine_of(config), errors))
        return opened[-1]

    summary = run(config, once=True, open_engine=factory)
    assert len(opened) == 3, "the worker was replaced twice"
    assert_as_undisturbed(config, summary, undisturbed)


def test_a_device_has_no_memory_for_a_while(config: Config, undisturbed: dict[str, Any]) -> None:
    heard: list[str] = []
    until: list[float] = []

    def before(images: Images) -> None:
        if not until and heard.append("call") is None and heard.count("call") == STRIKES:  # type: ignore[func-returns-value]
            until.append(time.monotonic() + AWAY_SECONDS)
        if until and time.monotonic() < until[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    summary = run(
        config,
        once=True,
        open_engine=lambda config: Around(open_engine_of(config), before),
        listener=lambda m: heard.append(m.kind),
    )
    assert heard.count("device.unavailable") == 1
    assert_as_undisturbed(config, summary, undisturbed)


def test_one_image_without_a_finite_feature_is_one_rejected_row(config: Config) -> None:
    class Overflowing(Around):
        done = False

        def _run(self, images: Images) -> Features:
            features = super()._run(images)
            if not self.done:
                features[3, 0], self.done = np.inf, True
            return features

    summary = run(
        config,
        once=True,
        open_engine=lambda config: Overflowing(open_engine_of(config), lambda images: None),
    )
    assert summary.images["rejected"] == 1
    assert summary.quarantined["images"] == summary.unaccounted == 0
    assert len(image_ids(Path(config.state.dir))) == len(expected_ids()) - 1


def test_a_locked_database_is_waited_for(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor.store.database, "BUSY_SECONDS", 0.2)
    heard: list[str] = []

    def strike() -> None:
        other = sqlite3.connect(
            Path(config.state.dir) / "conclad.db", isolation_level=None, check_same_thread=False
        )
        other.execute("BEGIN EXCLUSIVE")
        later(other.close)

    summary = run(
        config, once=True, open_engine=striking(strike), listener=lambda m: heard.append(m.kind)
    )
    assert "store.unavailable" in heard
    assert "store.back" in heard
    assert_as_undisturbed(config, summary, undisturbed)


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EACCES], ids=["full", "read-only", "forbidden"]
)
def test_the_disk_takes_no_more_for_a_while(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sync, heard = os.fsync, []
    until = [0.0]

    def fail(handle: int) -> None:
        if time.monotonic() < until[0]:
            raise OSError(code, os.strerror(code))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fail)

    def strike() -> None:
        until[0] = time.monotonic() + AWAY_SECONDS

    summary = run(
        config, once=True, open_engine=striking(strike), listener=lambda m: heard.append(m.text)
    )
    assert sum(text.startswith("waiting: ") for text in heard) == 1, "said once"
    assert_as_undisturbed(config, summary, undisturbed)


def test_what_the_system_says_of_writing_is_never_the_batches_fault(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: it used to cost the rows of the batch that was next, one by one."""
    left = [3]

    def fail(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EINVAL, "Invalid argument")
        return commit_batches(*arguments, **options)

    monkeypatch.setattr(actors.coordinator, "commit_batches", fail)
    assert_as_undisturbed(config, run(config, once=True), undisturbed)


def test_a_stop_during_an_outage_is_a_clean_end(
    config: Config, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, is_full = os.fsync, threading.Event()

    def fail(handle: int) -> None:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    def strike() -> None:
        is_full.set()
        later(lambda: os.kill(os.getpid(), signal.SIGTERM))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        summary = run(config, once=True, open_engine=striking(strike))
    assert summary.pending > 0
    assert_as_undisturbed(config, run(config, once=True), undisturbed)


@pytest.mark.parametrize("seconds", [90, 86_400, -86_400])
def test_the_clock_jumps(config: Config, undisturbed: dict[str, Any], seconds: int) -> None:
    """The lease stays ours; by a day, only ages by the calendar notice (a pool closes earlier)."""
    offset = [timedelta()]

    def strike() -> None:
        offset[0] = timedelta(seconds=seconds)

    summary = run(
        config,
        once=True,
        open_engine=striking(strike),
        clock=lambda: datetime.now(UTC) + offset[0],
    )
    if seconds == 90:
        assert_as_undisturbed(config, summary, undisturbed)
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()
    assert summary.quarantined["images"] == summary.unaccounted == summary.pending == 0
    assert summary.discovered == ("sand",)


def test_when_everything_fails_nothing_is_quarantined(
    config: Config, undisturbed: dict[str, Any]
) -> None:
    def before(images: Images) -> None:
        raise RuntimeError("libjpeg 9 where 8 was expected")

    with pytest.raises(BatchesFailAlike, match="different batches fail alike at embedding"):
        run(config, once=True, open_engine=lambda c: Around(open_engine_of(c), before))
    with Store.open(config.state.dir) as store, store.reading() as tx:
        assert tx.quarantine.list() == []
    assert_as_undisturbed(config, run(config, once=True), undisturbed)


def test_one_image_that_fails_costs_one_image_and_can_be_taken_back(config: Config) -> None:
    """A batch that fails is halved until the row is found; the rest of it passes."""
    poison: list[bytes] = []

    def before(images: Images) -> None:
        if not poison:
            poison.append(images[5].tobytes())
        if any(image.tobytes() == poison[0] for image in images):
            raise RuntimeError("a decoder's bug")

    summary = run(config, once=True, open_engine=lambda c: Around(open_engine_of(c), before))
    assert summary.quarantined == {"files": 0, "batches": 1, "images": 1}
    assert (summary.pending, summary.unaccounted) == (0, 0)
    assert len(image_ids(Path(config.state.dir))) == len(expected_ids()) - 1
    with Store.open(config.state.dir) as store, store.transaction() as tx:
        tx.quarantine.retry()
    summary = run(config, once=True)
    assert summary.quarantined["images"] == 0
    assert sorted(image_ids(Path(config.state.dir))) == expected_ids()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def on_postgresql(config: Config, postgresql: str, tmp_path: Path) -> Config:
    """The same state, with its database on a server."""
    url = make_database(postgresql)
    files = tmp_path / "files"
    with Store.open(config.state.dir) as store:
        back_up(store, tmp_path / "backup")
    with Store.open(url, files=files) as store:
        restore(tmp_path / "backup", store)
    state = config.state.model_copy(update={"url": url, "dir": str(files)})
    return config.model_copy(update={"state": state})


def test_a_database_server_ends_every_session(on_postgresql: Config, postgresql: str) -> None:
    """What a restart does to whoever is connected, several times, at any moment."""
    heard: list[str] = []

    def strike(_: Images) -> None:
        with closing(psycopg.connect(f"{postgresql}/postgres", autocommit=True)) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    over = threading.Event()

    def storm() -> None:
        while not over.wait(0.3):
            strike(np.empty(0, np.uint8))

    thread = threading.Thread(target=storm)

    def begin() -> None:
        thread.start()
        later(over.set, 3.0)

    summary = run(
        on_postgresql,
        once=True,
        open_engine=striking(begin, 2),
        listener=lambda m: heard.append(m.kind),
    )
    over.set()
    thread.join()
    assert summary.quarantined["images"] == summary.unaccounted == summary.pending == 0
    assert sum(summary.images.values()) == len(expected_ids())
    assert summary.discovered == ("sand",)
    assert on_postgresql.state.url is not None
    with Store.open(on_postgresql.state.url, files=on_postgresql.state.dir) as store:
        assert [finding for finding in check(store) if finding.severity == "error"] == []
