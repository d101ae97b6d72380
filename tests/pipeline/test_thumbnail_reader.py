"""Thumbnails of single rows: in the order asked for, and none where the feed has nothing left."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from monitor.feed.errors import SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns
from monitor.images.decode import Decoding
from monitor.pipeline.worker_tasks import ALONE_SECONDS, RowThumbnail, ThumbnailReader
from tests.jobs.feeds import picture, write_feed

KINDS = ["water", "forest", "sand", "snow"]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    write_feed(tmp_path / "feed" / "a.parquet", KINDS, row_group_size=2)
    write_feed(tmp_path / "feed" / "b.parquet", KINDS[::-1], first_id=10)
    return tmp_path / "feed"


def reader(feed: Path, **columns: str) -> ThumbnailReader:
    return ThumbnailReader(FeedStorage.at(feed), replace(Columns(), **columns), Decoding())


def colour(one: RowThumbnail) -> tuple[int, ...]:
    assert one.thumbnail is not None
    image = Image.open(io.BytesIO(one.thumbnail)).convert("RGB").resize((1, 1))
    pixel = image.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return tuple(round(value / 30) for value in pixel)


def test_rows_come_in_the_order_asked_for(feed: Path) -> None:
    rows = [("b.parquet", 0), ("a.parquet", 3), ("a.parquet", 0), ("b.parquet", 3)]
    found = reader(feed).render(rows)
    assert colour(found[0]) == colour(found[1]), "both are snow"
    assert colour(found[2]) == colour(found[3]), "both are water"
    assert colour(found[0]) != colour(found[2])


def test_the_same_row_may_be_asked_for_twice(feed: Path) -> None:
    first, second = reader(feed).render([("a.parquet", 1), ("a.parquet", 1)])
    assert first == second
    assert first.thumbnail is not None


def test_what_leaves_is_not_the_images_own_bytes(feed: Path) -> None:
    (found,) = reader(feed).render([("a.parquet", 0)])
    assert found.thumbnail != picture("water", 0)
    assert found.thumbnail is not None
    assert Image.open(io.BytesIO(found.thumbnail)).format == "JPEG"


def test_a_label_column_is_read_where_it_is_named(feed: Path) -> None:
    assert [one.label for one in reader(feed, label="label").render([("a.parquet", 2)])] == ["sand"]


def test_a_file_that_is_gone_leaves_the_others(feed: Path) -> None:
    gone, there = reader(feed).render([("gone.parquet", 0), ("a.parquet", 0)])
    assert gone == RowThumbnail()
    assert there.thumbnail is not None


def test_an_image_that_cannot_be_decoded_has_no_thumbnail(tmp_path: Path) -> None:
    images = [picture("water", 0), b"no image"]
    write_feed(tmp_path / "feed" / "a.parquet", KINDS[:2], images=images)
    good, bad = reader(tmp_path / "feed").render([("a.parquet", 0), ("a.parquet", 1)])
    assert good.thumbnail is not None
    assert bad.thumbnail is None


def test_no_rows_are_no_thumbnails(feed: Path) -> None:
    assert reader(feed).render([]) == []


def test_while_the_feed_is_away_nothing_is_decided_about_a_picture(feed: Path) -> None:
    asked = reader(feed, label="label")
    away = feed.with_name("away")
    feed.rename(away)
    with pytest.raises(SourceUnavailable):
        asked.render([("a.parquet", 0)])
    away.rename(feed)
    assert asked.render([("a.parquet", 0)])[0].label == "water"


def test_a_folder_that_left_the_feed_for_good_is_not_waited_for_for_ever(feed: Path) -> None:
    write_feed(feed / "monday" / "c.parquet", KINDS, first_id=20)
    now = [0.0]
    asked = ThumbnailReader(FeedStorage.at(feed), Columns(), Decoding(), clock=lambda: now[0])
    (feed / "monday").rename(feed.with_name("archive"))
    with pytest.raises(SourceUnavailable):
        asked.render([("monday/c.parquet", 0)])
    now[0] = ALONE_SECONDS + 1
    assert asked.render([("monday/c.parquet", 0)]) == [RowThumbnail()]
