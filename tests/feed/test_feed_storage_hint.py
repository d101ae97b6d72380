"""A folder of images where a feed should be: said at once, with the command that helps."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from monitor.cli.root import run
from monitor.config import load
from monitor.doctor import Level
from monitor.doctor.storage_check import feed as look_at_feed
from monitor.feed.errors import SourceError
from monitor.feed.feed_storage import check_for_images
from tests.ingest.making import cameras, put
from tests.jobs.feeds import write_feed


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    cameras(tmp_path / "pictures", 4)
    return tmp_path / "pictures"


SENTENCE = (
    "pictures: holds images and no Parquet; bring them into a feed: conclad ingest pictures "
    "--to pictures-feed"
)


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--once", "--set", "feed.path=pictures"],
        ["run", "--set", "feed.path=pictures"],
        ["score", "--out", "out", "--set", "feed.path=pictures"],
        ["score", "pictures", "--out", "out"],
    ],
)
def test_commands_name_ingest(
    images: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert run(command) == 2
    assert capsys.readouterr().err == f"conclad: {SENTENCE}\n"
    # Without importing torch or starting Ray; generous, for a machine that others use.
    assert time.monotonic() - began < 5


def test_doctor_says_so(images: Path) -> None:
    found = look_at_feed(load(overrides=["feed.path=pictures"]).config)
    assert found.level is Level.PROBLEM
    assert found.sentence == SENTENCE


def test_doctor_opens_a_file(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    config = load(overrides=[f"feed.path={tmp_path / 'feed'}"]).config
    found = look_at_feed(config)
    assert found.level is Level.WARNING
    assert "conclad ingest" in found.sentence
    write_feed(tmp_path / "feed/cam-1/day/a.parquet", ["water"] * 3)
    found = look_at_feed(config)
    assert found.level is Level.GOOD
    assert found.sentence.endswith("a.parquet can be read; its first image has 32 x 32 pixels")


def test_doctor_finds_a_file_that_is_not_a_feed(tmp_path: Path) -> None:
    put(tmp_path / "feed/a.parquet", b"PAR1 hello PAR1")
    config = load(overrides=[f"feed.path={tmp_path / 'feed'}"]).config
    assert look_at_feed(config).level is Level.PROBLEM
    write_feed(tmp_path / "feed/a.parquet", ["water"], images=[b"no image"])
    found = look_at_feed(config)
    assert found.level is Level.WARNING
    assert "unknown_format" in found.sentence


def test_a_feed_with_images_beside_it_is_a_feed(images: Path) -> None:
    write_feed(images / "cam-1/a.parquet", ["water"])
    check_for_images(images)


def test_what_is_not_there_empty_or_elsewhere_is_not_judged(tmp_path: Path) -> None:
    for place in (tmp_path / "nope", tmp_path, "s3://bucket/feed"):
        check_for_images(place)


def test_archives_are_named_as_such(tmp_path: Path) -> None:
    put(tmp_path / "in/a.zip", b"")
    with pytest.raises(SourceError, match="holds archives or video and no Parquet"):
        check_for_images(tmp_path / "in")
