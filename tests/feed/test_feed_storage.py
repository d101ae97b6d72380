"""Listing a feed, and telling new from changed from gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from monitor.feed.errors import FileGone, SourceError, SourceMissing, SourceUnavailable
from monitor.feed.feed_storage import FeedFile, FeedStorage, by_arrival, compare, without_secrets

ODD_NAMES = [
    "Ærø/fjord.parquet",
    "with space/a b.parquet",
    "percent%20/100%.parquet",
    "star*/q?[1].parquet",
    "emoji/🛰.parquet",
    "equals=1/day=2026-01-01/x.PARQUET",
    "short.pq",
]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")


def paths(source: FeedStorage) -> list[str]:
    return [file.path for file in source.list()]


def test_lists_recursively_in_order_and_passes_over_what_is_not_ours(tmp_path: Path) -> None:
    touch(tmp_path, "b/2.parquet", "b/1.parquet", "a.parquet", "b/c/d/3.parquet")
    touch(tmp_path, "_SUCCESS.parquet", ".x.parquet", "b/_tmp/4.parquet", "b/.git/5.parquet")
    touch(tmp_path, "notes.txt", "b/6.parquet.tmp", "b/7.parquet.crc")
    assert paths(FeedStorage.at(tmp_path)) == [
        "a.parquet",
        "b/1.parquet",
        "b/2.parquet",
        "b/c/d/3.parquet",
    ]


def test_hidden_folders_above_the_feed_do_not_hide_it(tmp_path: Path) -> None:
    touch(tmp_path, ".cache/_feed/a.parquet")
    assert paths(FeedStorage.at(tmp_path / ".cache" / "_feed")) == ["a.parquet"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_listed_and_opened(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    source = FeedStorage.at(tmp_path)
    assert paths(source) == [name]
    with source.open(name) as handle:
        assert handle.read() == b"PAR1"


def test_the_same_feed_by_path_by_uri_and_under_another_filesystem(tmp_path: Path) -> None:
    touch(tmp_path, "cam 7/a.parquet")
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    listings = {
        FeedStorage.at(str(tmp_path)).list(),
        FeedStorage.at(f"{tmp_path}/").list(),
        FeedStorage.at(tmp_path.as_uri()).list(),
        FeedStorage("feed", below, "").list(),
    }
    assert len(listings) == 1


def test_wrong_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        SourceMissing, match=r"nowhere: no such folder; create or mount it, or correct feed\.path"
    ):
        FeedStorage.at(tmp_path / "nowhere").list()
    touch(tmp_path, "a.parquet")
    with pytest.raises(SourceError, match="is a file, where a feed is a folder"):
        FeedStorage.at(tmp_path / "a.parquet").list()
    with pytest.raises(SourceError, match=r"feed\.path takes a local path or a file://"):
        FeedStorage.at("carrier-pigeon://roof/feed")
    with pytest.raises(SourceError, match="no location"):
        FeedStorage.at("")


def test_messages_do_not_repeat_credentials() -> None:
    assert "secret" not in without_secrets("s3://key:secret@bucket/feed?secret_key=secret")
    with pytest.raises(SourceError) as caught:
        FeedStorage.at("carrier-pigeon://key:secret@roof/feed")
    assert "roof/feed: " in str(caught.value)


def test_gone_and_unreachable_are_different(tmp_path: Path) -> None:
    source = FeedStorage.at(tmp_path)
    for look in (source.stat, source.open):
        with pytest.raises(SourceMissing, match="is the folder mounted"):
            look("a.parquet")
        with pytest.raises(SourceMissing):
            look("folder/a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"-")
    for look in (source.stat, source.open):
        with pytest.raises(FileGone):
            look("a.parquet")
        with pytest.raises(SourceMissing):
            look("folder/a.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises((SourceUnavailable, FileGone)):
        source.open("folder.parquet")


def test_late_files_with_old_times_are_new_and_changed_files_are_told() -> None:
    old, late = FeedFile("old", 10, 1_000), FeedFile("late", 10, 1)
    grown, touched = FeedFile("grown", 11, 5), FeedFile("touched", 10, 6)
    known = {
        "old": old,
        "grown": FeedFile("grown", 10, 5),
        "touched": FeedFile("touched", 10, 5),
        "lost": FeedFile("lost", 1, 1),
    }
    changes = compare([grown, late, old, touched], known)
    assert changes.new == (late,)
    assert changes.changed == (grown, touched)
    assert changes.gone == ("lost",)


files = st.builds(FeedFile, st.text(min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(files, unique_by=lambda f: f.path), st.lists(files, unique_by=lambda f: f.path))
def test_every_file_is_new_changed_gone_or_as_it_was(
    before: list[FeedFile], now: list[FeedFile]
) -> None:
    known = {file.path: file for file in before}
    changes = compare(now, known)
    same = [file for file in now if known.get(file.path) == file]
    assert sorted([*changes.new, *changes.changed, *same], key=repr) == sorted(now, key=repr)
    assert set(changes.gone) == set(known) - {file.path for file in now}
    assert not {file.path for file in changes.new} & set(known)
    assert compare(now, {file.path: file for file in now}) == compare([], {})


def test_a_hundred_thousand_known_files_are_compared_in_well_under_a_second() -> None:
    listing = [FeedFile(f"cam-{i % 40}/{i:06}.parquet", i, i) for i in range(100_000)]
    known = {file.path: file for file in listing[:-3]}
    started = time.process_time()
    changes = compare(listing, known)
    assert time.process_time() - started < 1
    assert changes.new == tuple(listing[-3:])


def test_arrival_order_is_by_time_then_path() -> None:
    a, b, c = FeedFile("a", 1, 2), FeedFile("b", 1, 1), FeedFile("c", 1, 1)
    assert by_arrival([a, c, b]) == (b, c, a)
    assert by_arrival([FeedFile("z", 1, None), a])[0].path == "z"


def test_a_failing_storage_is_unavailable_not_empty() -> None:
    class Failing(fs.FileSystemHandler):  # type: ignore[misc]
        """A storage whose every answer is an input/output error."""

        def __getattribute__(self, name: str) -> object:
            if name.startswith(("get_file_info", "open_")):
                raise OSError(5, "Input/output error")
            return object.__getattribute__(self, name)

    Failing.__abstractmethods__ = frozenset()
    source = FeedStorage("feed", fs.PyFileSystem(Failing()), "root")
    for ask in (source.list, lambda: source.stat("a"), lambda: source.open("a")):
        with pytest.raises(SourceUnavailable, match="the storage did not answer"):
            ask()
