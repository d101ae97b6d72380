"""New files are seen at the next glance, and the full listing stays the truth."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest
from pyarrow import fs

from monitor.feed import new_files as watching
from monitor.feed.errors import SourceMissing, SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.new_files import TICK_SECONDS, YOUNG_SECONDS, FeedWatch, Sight


class Clock:
    """The wall's time, which a test may move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def touch(path: Path, size: int = 4, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def names(sight: Sight) -> list[str]:
    return [file.path for file in sight.files]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    folder = tmp_path / "feed"
    folder.mkdir()
    return folder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(feed: Path, clock: Clock) -> FeedWatch:
    """One listing has been made, and the next is an hour away."""
    touch(feed / "cam-1" / "old.parquet", age=3600)
    watch = FeedWatch(FeedStorage.at(feed), seconds=3600, clock=clock)
    assert watch.look() == Sight(FeedStorage.at(feed).list(), is_whole=True)
    return watch


def test_nothing_new_is_nothing_seen(watch: FeedWatch) -> None:
    assert watch.look() == Sight((), is_whole=False)


def test_what_comes_is_seen_once_and_as_a_listing_shows_it(watch: FeedWatch, feed: Path) -> None:
    touch(feed / "cam-1" / "b.parquet")
    touch(feed / "a.PQ", age=3600)
    assert sorted(names(watch.look())) == ["a.PQ", "cam-1/b.parquet"]
    assert watch.look().files == ()
    listed = {file.path: file for file in FeedStorage.at(feed).list()}
    touch(feed / "c.parquet")
    (seen,) = watch.look().files
    assert seen == FeedStorage.at(feed).stat("c.parquet")
    assert seen.path not in listed


def test_files_come_by_renaming_and_in_new_folders(
    watch: FeedWatch, feed: Path, tmp_path: Path
) -> None:
    touch(tmp_path / "elsewhere" / "deep" / "1.parquet", age=3600)
    os.rename(tmp_path / "elsewhere", feed / "cam-2")
    touch(feed / "_2.parquet").rename(feed / "2.parquet")
    (feed / "cam-3").mkdir()
    assert sorted(names(watch.look())) == ["2.parquet", "cam-2/deep/1.parquet"]
    touch(feed / "cam-3" / "3.parquet")
    assert names(watch.look()) == ["cam-3/3.parquet"]


def test_what_is_not_ours_is_passed_over(watch: FeedWatch, feed: Path) -> None:
    for name in ("_a.parquet", ".b.parquet", "notes.txt", "_tmp/c.parquet", "cam-1/.d/e.parquet"):
        touch(feed / name)
    (feed / "folder.parquet").mkdir()
    (feed / "again").symlink_to(feed)
    assert watch.look().files == ()


def test_a_file_that_is_still_written_is_seen_to_grow(watch: FeedWatch, feed: Path) -> None:
    path = touch(feed / "slow.parquet", size=10)
    assert [file.size for file in watch.look().files] == [10]
    touch(path, size=20)
    assert [file.size for file in watch.look().files] == [20]
    assert watch.look().files == ()


def test_of_many_young_files_the_latest_are_minded(
    feed: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "YOUNG_MOST", 2)
    files = [touch(feed / f"{number}.parquet", age=10 - number) for number in range(5)]
    watch = FeedWatch(FeedStorage.at(feed), seconds=3600, clock=clock)
    watch.look()
    for file in files:
        touch(file, size=9)
    assert names(watch.look()) == ["3.parquet", "4.parquet"]


def test_folders_that_settled_are_not_read_again(
    watch: FeedWatch, feed: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.ahead = TICK_SECONDS + YOUNG_SECONDS
    watch.look()
    monkeypatch.setattr(os, "listdir", _must_not_list)
    assert watch.look().files == ()
    monkeypatch.undo()
    touch(feed / "cam-1" / "new.parquet")
    assert names(watch.look()) == ["cam-1/new.parquet"]


def _must_not_list(path: str) -> list[str]:
    raise AssertionError(f"{path} was read, though nothing came")


def test_folders_and_files_may_go(watch: FeedWatch, feed: Path) -> None:
    touch(feed / "gone.parquet")
    watch.look()
    (feed / "gone.parquet").unlink()
    shutil.rmtree(feed / "cam-1")
    assert watch.look().files == ()
    touch(feed / "cam-1" / "old.parquet")
    assert names(watch.look()) == ["cam-1/old.parquet"]


def test_a_listing_shows_what_glances_cannot(feed: Path, clock: Clock) -> None:
    path = touch(feed / "old.parquet", age=3600)
    watch = FeedWatch(FeedStorage.at(feed), seconds=1e-9, clock=clock)
    watch.look()
    touch(path, size=9, age=1800)
    while not (sight := watch.look()).is_whole:
        assert sight.files == ()
    assert [file.size for file in sight.files] == [9]


def test_other_storage_is_listed_each_time(feed: Path) -> None:
    touch(feed / "a.parquet")
    bucket = FeedStorage("bucket", fs.SubTreeFileSystem(str(feed), fs.LocalFileSystem()), "")
    watch = FeedWatch(bucket, seconds=3600)
    assert [watch.look().is_whole for _ in range(3)] == [True] * 3
    assert not watch.is_due


def test_a_feed_that_is_not_there_is_named(tmp_path: Path) -> None:
    watch = FeedWatch(FeedStorage.at(tmp_path / "nowhere"), seconds=1)
    with pytest.raises(SourceMissing, match="no such folder"):
        watch.look()


def test_a_folder_that_vanishes_is_noticed_at_once_and_looked_at_anew(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "a.parquet").write_bytes(b"-")
    watch = FeedWatch(FeedStorage.at(feed), seconds=3600)
    assert [file.path for file in watch.look().files] == ["a.parquet"]
    feed.rename(tmp_path / "away")
    with pytest.raises(SourceMissing, match="has vanished"):
        watch.look()
    watch.postpone(0.0)
    (tmp_path / "away").rename(feed)
    again = watch.look()
    assert again.is_whole
    assert [file.path for file in again.files] == ["a.parquet"]


def test_new_files_do_not_wait_for_a_long_listing(
    feed: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PIECE_SECONDS", 0.0)
    for number in range(100):
        touch(feed / f"{number:03d}.parquet", age=3600)
    watch = FeedWatch(FeedStorage.at(feed), seconds=1e-9, clock=clock)
    watch.look()
    assert not watch.look().is_whole  # a listing has begun
    touch(feed / "new.parquet")
    sight = watch.look()
    assert (names(sight), sight.is_whole) == (["new.parquet"], False)
    touch(feed / "new.parquet", size=9)
    seen = list(watch.look().files)
    while not (sight := watch.look()).is_whole:
        seen += sight.files
    assert [(file.path, file.size) for file in seen] == [("new.parquet", 9)]
    # The listing may have met the file before it grew: what a glance saw since is what it shows.
    assert sight.files == FeedStorage.at(feed).list()


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.ENOTCONN, errno.EIO])
def test_a_mount_that_fails_under_a_look_is_the_feeds(
    watch: FeedWatch, feed: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Also while a young file is looked at again, and while folders are read for the first time."""
    touch(feed / "cam-1" / "young.parquet")
    watch.look()
    stat = os.stat

    def fail(path: str, **options: bool) -> os.stat_result:
        if str(path).endswith(("young.parquet", "cam-1")):
            raise OSError(code, os.strerror(code))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        with pytest.raises(SourceUnavailable):
            watch.look()
        watch.postpone(0.0)
        with pytest.raises(SourceUnavailable):
            watch.look()
    watch.postpone(0.0)
    assert names(watch.look()) == ["cam-1/old.parquet", "cam-1/young.parquet"]


def test_a_young_file_that_is_as_it_was_costs_one_call(
    watch: FeedWatch, feed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = touch(feed / "cam-1" / "young.parquet")
    assert names(watch.look()) == ["cam-1/young.parquet"]
    looked: list[str] = []

    def problem(path: str, root: str) -> None:
        looked.append(path)

    monkeypatch.setattr(watching, "file_problem", problem)
    assert names(watch.look()) == []
    assert looked == []
    touch(file, size=8)
    assert names(watch.look()) == ["cam-1/young.parquet"]
    assert looked == [str(file)]
