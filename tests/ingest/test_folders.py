"""Folders in any layout: every image once, unchanged, with its source, label and time."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from monitor.cli.root import run
from monitor.images.image_formats import sniff
from monitor.ingest.batches import Limits
from monitor.ingest.errors import FeedRefused
from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options
from monitor.ingest.path_pattern import PathPattern
from tests.ingest.making import OLD, cameras, images, jpeg, moment, put, rows


def test_every_image_is_in_the_feed_once_and_unchanged(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 50)
    assert run(["ingest", str(tmp_path / "in"), "--to", str(tmp_path / "feed")]) == 0
    assert images(tmp_path / "feed") == made
    assert {row["source_id"] for row in rows(tmp_path / "feed")} == {"cam-1", "cam-2"}


def test_images_without_a_sub_folder_have_the_folders_name(tmp_path: Path) -> None:
    put(tmp_path / "north-gate" / "1.jpg", jpeg())
    ingest([str(tmp_path / "north-gate")], tmp_path / "feed")
    assert [row["source_id"] for row in rows(tmp_path / "feed")] == ["north-gate"]


def test_deep_hidden_and_foreign_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in ("a/b/c/1.JPG", "2.png", "a/3", ".hidden.jpg", "a/_tmp/4.jpg", "5.jpg.part"):
        put(folder / name, jpeg(hash(name) % 100))
    put(folder / "notes.txt", b"hello")
    put(folder / "a" / "1.json", b"{}")
    done = ingest([str(folder)], tmp_path / "feed")
    assert sorted(images(tmp_path / "feed")) == ["2.png", "a/3", "a/b/c/1.JPG"]
    assert done.ignored == {".txt": 1, ".json": 1}


def test_a_second_run_adds_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 10)
    ingest([str(tmp_path / "in")], tmp_path / "feed")
    made["cam-3/new.jpg"] = jpeg(77)
    put(tmp_path / "in/cam-3/new.jpg", jpeg(77))
    done = ingest([str(tmp_path / "in")], tmp_path / "feed")
    assert (done.images, done.known) == (1, 10)
    assert images(tmp_path / "feed") == made


def test_files_that_were_touched_or_moved_are_not_new(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 6)
    ingest([str(tmp_path / "in")], tmp_path / "feed")
    for name in made:
        os.utime(tmp_path / "in" / name, (OLD + 5, OLD + 5))
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    done = ingest([str(tmp_path / "elsewhere")], tmp_path / "feed")
    assert (done.images, done.known) == (0, 6)
    assert images(tmp_path / "feed") == made


def test_a_file_that_is_overwritten_is_a_new_image(tmp_path: Path) -> None:
    for seed in range(3):
        put(tmp_path / "in/cam/latest.jpg", jpeg(seed), at=OLD + seed)
        ingest([str(tmp_path / "in")], tmp_path / "feed")
    found = images(tmp_path / "feed")
    assert sorted(found.values()) == sorted(jpeg(seed) for seed in range(3))
    assert all(name.startswith("cam/latest.jpg") for name in found)


def test_two_folders_with_the_same_names_lose_nothing(tmp_path: Path) -> None:
    put(tmp_path / "monday/cam/1.jpg", jpeg(1))
    put(tmp_path / "tuesday/cam/1.jpg", jpeg(2))
    ingest([str(tmp_path / "monday"), str(tmp_path / "tuesday")], tmp_path / "feed")
    assert sorted(images(tmp_path / "feed").values()) == sorted([jpeg(1), jpeg(2)])


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """Old cameras and FTP servers write names in other encodings."""
    folder = tmp_path / "in" / os.fsdecode(b"caf\xe9")
    for seed, name in enumerate((b"\xe9.jpg", b"\xe8.jpg", "größe.jpg".encode())):
        put(folder / os.fsdecode(name), jpeg(seed))
    put(folder / os.fsdecode(b"\xe7.jpg"), b"no image")
    arguments = ["ingest", str(tmp_path / "in"), "--to", str(tmp_path / "feed")]
    for _ in range(2):
        assert run(arguments) == 0
    assert sorted(images(tmp_path / "feed").values()) == sorted(jpeg(seed) for seed in range(3))
    assert {row["source_id"] for row in rows(tmp_path / "feed")} == {"caf\ufffd"}


def test_a_feed_inside_the_folder_is_not_read_back(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 4)
    for _ in range(2):
        ingest([str(tmp_path / "in")], tmp_path / "in" / "feed")
    assert images(tmp_path / "in" / "feed") == made


def test_patterns_give_source_label_and_time(tmp_path: Path) -> None:
    put(tmp_path / "in/cam-1/boat/20260311T070509_8.jpg", jpeg(1))
    put(tmp_path / "in/cam-1/boat/latest.jpg", jpeg(2))
    pattern = PathPattern.parse(
        "{source}/{label}/{time:%Y%m%dT%H%M%S}_*.jpg", ZoneInfo("Asia/Tokyo")
    )
    done = ingest([str(tmp_path / "in")], tmp_path / "feed", Options(pattern=pattern))
    [row] = rows(tmp_path / "feed")
    assert (row["source_id"], row["label"]) == ("cam-1", "boat")
    assert row["captured_at"] == moment("2026-03-10T22:05:09+00:00")
    assert done.left_out == {"its path does not match --pattern": 1}


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)), st.sampled_from(["a", "cam-1"]))
def test_a_time_in_a_path_comes_back(when: datetime, source: str) -> None:
    pattern = PathPattern.parse("**/{source}_{time:%Y%m%d%H%M%S%f}.jpg")
    found = pattern.match(f"x/y/{source}_{when:%Y%m%d%H%M%S%f}.jpg")
    assert found is not None
    assert (found.source, found.time) == (source, when.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("offset", "zone", "expected"),
    [
        (None, "UTC", "2026-03-11T07:05:09.250000+00:00"),
        (None, "Europe/Berlin", "2026-03-11T06:05:09.250000+00:00"),
        ("+09:00", "Europe/Berlin", "2026-03-10T22:05:09.250000+00:00"),
    ],
)
def test_times_of_exif(tmp_path: Path, offset: str | None, zone: str, expected: str) -> None:
    inner = {
        ExifTags.Base.DateTimeOriginal: "2026:03:11 07:05:09",
        ExifTags.Base.SubsecTimeOriginal: "25",
    }
    if offset:
        inner[ExifTags.Base.OffsetTimeOriginal] = offset
    exif = Image.Exif()
    exif[ExifTags.IFD.Exif] = inner
    put(tmp_path / "in/1.jpg", jpeg(exif=exif))
    ingest([str(tmp_path / "in")], tmp_path / "feed", Options(zone=ZoneInfo(zone)))
    assert rows(tmp_path / "feed")[0]["captured_at"] == moment(expected)


def test_without_exif_the_time_of_the_file_counts(tmp_path: Path) -> None:
    put(tmp_path / "in/1.jpg", jpeg(), at=OLD + 0.25)
    ingest([str(tmp_path / "in")], tmp_path / "feed")
    wanted = datetime.fromtimestamp(OLD, UTC) + timedelta(milliseconds=250)
    assert rows(tmp_path / "feed")[0]["captured_at"] == wanted


def test_what_the_feed_cannot_read_becomes_png_and_what_is_no_image_is_told(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9), "red").save(tmp_path / "in.bmp")
    put(tmp_path / "in/a.bmp", (tmp_path / "in.bmp").read_bytes())
    put(tmp_path / "in/b.jpg", b"<html>not found</html>")
    put(tmp_path / "in/c.jpg", b"")
    done = ingest([str(tmp_path / "in")], tmp_path / "feed")
    [image] = images(tmp_path / "feed").values()
    assert sniff(image) == "PNG"
    assert done.left_out == {"not an image, whatever its name says": 1, "the file is empty": 1}


def test_half_a_file_is_not_taken(tmp_path: Path) -> None:
    """A writer that pauses half way through an image for longer than a look at the folder."""
    path, data, stop = tmp_path / "in/cam/1.jpg", jpeg(1, side=256), threading.Event()
    put(path, data[: len(data) // 2], at=time.time())
    options = Options(follow=True, settle=0.6, poll=0.02, limits=Limits(seconds=0.05))
    job = threading.Thread(
        target=ingest,
        args=([str(tmp_path / "in")], tmp_path / "feed", options),
        kwargs={"stop": stop},
    )
    job.start()
    try:
        for upto in (len(data) // 2 + 100, len(data) // 2 + 200, len(data)):
            time.sleep(0.2)
            assert not list((tmp_path / "feed").glob("2*/*.parquet"))
            path.write_bytes(data[:upto])
        _wait_for(lambda: list((tmp_path / "feed").glob("2*/*.parquet")))
    finally:
        stop.set()
        job.join(10)
    assert images(tmp_path / "feed") == {"cam/1.jpg": data}


def test_a_recording_that_goes_on_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    made, stop = cameras(tmp_path / "in", 3), threading.Event()
    recording = put(tmp_path / "in/cam-1/now.zip", b"", at=time.time())

    def record() -> None:
        with recording.open("ab", buffering=0) as file:
            while not stop.wait(0.02):
                file.write(b"more")

    writer = threading.Thread(target=record)
    writer.start()
    try:
        done = ingest([str(tmp_path / "in")], tmp_path / "feed", Options(settle=0.2))
    finally:
        stop.set()
        writer.join()
    assert done.left_out == {"somebody is still writing it; run this again later": 1}
    assert images(tmp_path / "feed") == made


def test_new_files_are_followed(tmp_path: Path) -> None:
    stop, made = threading.Event(), cameras(tmp_path / "in", 3)
    options = Options(follow=True, poll=0.02, limits=Limits(seconds=0.05))
    job = threading.Thread(
        target=ingest,
        args=([str(tmp_path / "in")], tmp_path / "feed", options),
        kwargs={"stop": stop},
    )
    job.start()
    try:
        for seed in range(100, 110):
            made[f"cam-9/{seed}.jpg"] = jpeg(seed)
            put(tmp_path / f"in/cam-9/{seed}.jpg", jpeg(seed), at=time.time())
            _wait_for(lambda: len(rows(tmp_path / "feed")) == len(made))
    finally:
        stop.set()
        job.join(10)
    assert images(tmp_path / "feed") == made


def test_batches_by_count_and_two_at_once_are_refused(tmp_path: Path) -> None:
    made = cameras(tmp_path / "in", 25)
    refused: list[str] = []

    def second(step: str) -> None:
        if not refused:
            with pytest.raises(FeedRefused, match="another ingest writes here") as caught:
                ingest([str(tmp_path / "in")], tmp_path / "feed")
            refused.append(str(caught.value))

    options = Options(limits=Limits(images=10))
    done = ingest([str(tmp_path / "in")], tmp_path / "feed", options, step=second)
    assert refused
    assert done.files == 3
    assert images(tmp_path / "feed") == made
    # With a journal of its own another one may write beside it.
    ingest([str(tmp_path / "in")], tmp_path / "feed", Options(name="second"))
    assert len(rows(tmp_path / "feed")) == 50


def _wait_for(condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
