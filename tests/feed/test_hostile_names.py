"""Names from outside: ids, folders and files that would break a database, a page or a terminal."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConcladError
from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.errors import FileRefused
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.new_files import FeedWatch
from monitor.images.reject_reasons import Reason, Rejected
from monitor.plain_text import NAME_LONGEST, name_problem, path_problem, visible
from tests.feed.make import encoded, picture, read_batch, table, write

IMAGE = encoded(picture())
HOSTILE = [
    *(f"cam{chr(number)}7" for number in (*range(0x20), 0x7F, 0x85, 0x9B)),
    "cam-\u202e7",  # turns what follows around
    "cam-\u2066\u2069",
    "cam\u200b7",
    "cam\ufeff",
    "cam\u2028line",
    "\x1b]0;owned\x07",
    "7" * (NAME_LONGEST + 1),
    "7" * 10_000_000,
]
HARMLESS = [
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "../../etc/passwd",
    "$(id)",
    "ضخم",
]


def rows(ids: list[str], sources: list[str]) -> pa.Table:
    return pa.table({"image_id": ids, "source_id": sources, "image": [IMAGE] * len(ids)})


@pytest.mark.parametrize("column", ["image_id", "source_id"])
def test_a_name_that_cannot_be_taken_in_rejects_its_row(tmp_path: Path, column: str) -> None:
    good = [f"good-{number}" for number in range(len(HOSTILE) + len(HARMLESS))]
    bad = HOSTILE + HARMLESS
    content = rows(bad, good) if column == "image_id" else rows(good, bad)
    source, file = write(tmp_path, "a.parquet", content)
    batch = read_batch(source, PlannedBatch(file, 0, len(bad)))
    assert [row.row for row in batch.rejected] == list(range(len(HOSTILE)))
    assert {row.reason for row in batch.rejected} == {Reason.BAD_ID}
    for row in batch.rejected:
        assert row.detail.startswith(column)
        assert row.detail.isprintable()
        assert len(row.detail) < 100
        assert getattr(row, column) is None
    assert [getattr(row, column) for row in batch.rows] == HARMLESS


@pytest.mark.parametrize(
    "folder", ["source_id=cam%007", "source_id=%1b[31m", "source_id=a%E2%80%AE"]
)
def test_a_folder_that_names_a_source_is_checked_too(tmp_path: Path, folder: str) -> None:
    content = table(2, image=IMAGE).drop_columns(["source_id"])
    source, file = write(tmp_path, f"{folder}/a.parquet", content)
    batch = read_batch(source, PlannedBatch(file, 0, 2))
    assert [(row.reason, row.source_id) for row in batch.rejected] == [(Reason.BAD_ID, None)] * 2


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_taken_in_can_be_stored_and_shown(text: str) -> None:
    if name_problem(text) is None:
        assert text.encode().decode() == text
        assert len(text) <= NAME_LONGEST
        assert text == visible(text)
        assert path_problem(text) is None
    shown = visible(text, 40)
    assert shown.isprintable()
    assert shown.encode().decode() == shown


def test_reasons_and_messages_carry_no_escapes() -> None:
    hostile = "a\x1b[2Jb\x00\r" + "c" * 100_000
    for shown in (Rejected(Reason.CORRUPT, hostile).detail, str(ConcladError(hostile))):
        assert shown.startswith("a\\x1b[2Jb\\x00\\x0d")
        assert shown.isprintable()
        assert len(shown) < 9000
    assert str(ConcladError("two\nlines")) == "two\nlines"


def test_file_names_that_cannot_be_taken_in_are_passed_over(tmp_path: Path) -> None:
    names = [
        b"good.parquet",
        b"\xff.parquet",
        b"a\nb.parquet",
        b"a\x1b[31m.parquet",
        b"\xe2\x80\xae.pq",
    ]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"PAR1")
    survey = FeedStorage.at(tmp_path).survey()
    assert [file.path for file in survey.files] == ["good.parquet"]
    assert len(survey.refused) == 4
    assert all(sentence.isprintable() for sentence in survey.refused)
    assert [file.path for file in FeedWatch(FeedStorage.at(tmp_path), seconds=9).look().files] == [
        "good.parquet"
    ]


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A feed among whose names are links of all kinds and things that are no files."""
    feed, outside = tmp_path / "feed", tmp_path / "outside"
    for folder in (feed / "cam", outside):
        folder.mkdir(parents=True)
        (folder / "a.parquet").write_bytes(b"PAR1")
    (feed / "inside.parquet").symlink_to("cam/a.parquet")
    (feed / "out.parquet").symlink_to(outside / "a.parquet")
    (feed / "up.parquet").symlink_to("../outside/a.parquet")
    (feed / "nowhere.parquet").symlink_to("missing")
    (feed / "circle.parquet").symlink_to("circle.parquet")
    (feed / "loop").symlink_to(".")
    (feed / "cam" / "loop").symlink_to("..")
    (feed / "folder").symlink_to(outside)
    os.mkfifo(feed / "pipe.parquet")
    (feed / "device.parquet").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(feed / "socket.parquet"))
    return feed


@pytest.mark.timeout(20)
def test_links_stay_inside_loops_end_and_special_files_are_passed_over(linked: Path) -> None:
    survey = FeedStorage.at(linked).survey()
    assert [file.path for file in survey.files] == ["cam/a.parquet", "inside.parquet"]
    refused = "\n".join(survey.refused)
    for name in ("out.parquet", "up.parquet", "loop", "folder", "pipe", "device", "socket"):
        assert name in refused
    glances = FeedWatch(FeedStorage.at(linked), seconds=60)
    glances.look()
    (linked / "later.parquet").symlink_to("/etc/passwd")
    os.mkfifo(linked / "pipe-2.parquet")
    (linked / "new.parquet").write_bytes(b"PAR1")
    assert [file.path for file in glances.look().files] == ["new.parquet"]


@pytest.mark.timeout(20)
def test_what_was_swapped_for_a_link_or_a_pipe_after_the_listing_is_not_opened(
    linked: Path,
) -> None:
    source = FeedStorage.at(linked)
    for name in ("out.parquet", "pipe.parquet", "device.parquet", "folder/a.parquet"):
        with pytest.raises(FileRefused, match=name):
            source.stat(name)
        with pytest.raises(FileRefused, match=name):
            source.open(name)
    with source.open("inside.parquet") as handle:
        assert handle.read() == b"PAR1"
