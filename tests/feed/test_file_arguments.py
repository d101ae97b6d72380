"""Files named on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.feed.errors import SourceError
from monitor.feed.file_arguments import find_files, matches


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    for name in ("a.parquet", "x/b.parquet", "x/y/c.parquet", "x/_d.parquet", "x/.t/e.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"PAR1")
    (tmp_path / "x" / "notes.txt").write_text("not ours")
    (tmp_path / "odd[1].parquet").write_bytes(b"PAR1")
    return tmp_path


def names(feed: Path, *arguments: str) -> list[str]:
    _, files = find_files([str(feed / argument) for argument in arguments])
    return [Path(file.path).relative_to(feed).as_posix() for file in files]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.parquet"], ["a.parquet"]),
        (["x/*.parquet"], ["x/b.parquet"]),
        (["x/**/*.parquet"], ["x/b.parquet", "x/y/c.parquet"]),
        (["?.parquet"], ["a.parquet"]),
        (["[ab].parquet"], ["a.parquet"]),
        (["x"], ["x/b.parquet", "x/y/c.parquet"]),
        (["x/_d.parquet"], ["x/_d.parquet"]),
        (["x/notes.txt"], ["x/notes.txt"]),
        (["odd[1].parquet"], ["odd[1].parquet"]),
        (["x", "a.parquet", "x/b.parquet"], ["a.parquet", "x/b.parquet", "x/y/c.parquet"]),
    ],
)
def test_what_arguments_mean(feed: Path, arguments: list[str], expected: list[str]) -> None:
    assert names(feed, *arguments) == expected


def test_relative_arguments(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(feed)
    source, files = find_files(["x/*.parquet", "a.parquet"])
    assert [Path(file.path).name for file in files] == ["a.parquet", "b.parquet"]
    with source.open(files[0].path) as handle:
        assert handle.read() == b"PAR1"


@pytest.mark.parametrize("argument", ["nothing.parquet", "z/*.parquet", "x/.t/*.csv"])
def test_arguments_that_mean_nothing_are_named(feed: Path, argument: str) -> None:
    with pytest.raises(SourceError, match="check the path"):
        names(feed, "a.parquet", argument)


def test_no_arguments_and_mixed_storages_are_refused(feed: Path) -> None:
    with pytest.raises(SourceError, match="no files were named"):
        find_files([])
    with pytest.raises(SourceError, match="different storages"):
        find_files([str(feed), "s3://bucket/feed?region=us-east-1"])


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c", "a/**/c", True),
        ("a/c", "a/**/c", True),
        ("a/b/c", "a/*/c", True),
        ("a/b/b/c", "a/*/c", False),
        ("a/b", "**", True),
        ("a/b.parquet", "a/*.PARQUET", False),
    ],
)
def test_patterns_match_part_by_part(path: str, pattern: str, expected: bool) -> None:
    assert matches(path, pattern) is expected
