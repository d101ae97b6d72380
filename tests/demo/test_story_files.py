"""The files of the demo: valid after the contract, the same for a seed, in the right order."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.demo.errors import TooFewImages
from monitor.demo.image_source import Collected, DrawnImages, collect
from monitor.demo.story import SOURCES, Story
from monitor.demo.story_files import Written, write
from monitor.feed.feed_storage import FeedStorage, by_arrival
from monitor.feed.input_contract import Columns, check_schema
from monitor.images.decode import Decoded, decode
from tests.jobs.feeds import write_feed

SMALL = Story.of(DrawnImages(0).labels, days=8, per_day=6, training=5)


def _bytes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.parquet")
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(SMALL, DrawnImages(0), tmp_path_factory.mktemp("demo"))


def test_every_file_keeps_the_contract_and_every_image_can_be_decoded(written: Written) -> None:
    paths = [written.labelled, *sorted(written.feed.rglob("*.parquet"))]
    for path in paths:
        check_schema(pq.read_schema(path), Columns(), where=str(path), need_label=True)
        for image in pq.read_table(path).column("image").to_pylist():
            assert isinstance(decode(image), Decoded)
    assert len(paths) == written.files + 1


def test_the_labelled_images_are_those_of_the_known_classes(written: Written) -> None:
    labels = Counter(pq.read_table(written.labelled).column("label").to_pylist())
    assert labels == dict.fromkeys(SMALL.known, SMALL.training)


def test_files_arrive_in_the_order_of_their_days(written: Written) -> None:
    files = by_arrival(FeedStorage.at(written.feed).list())
    days = [file.path.split("/")[0] for file in files]
    assert days == sorted(days)
    assert len(files) == SMALL.days * len(SOURCES)


def test_rows_lie_in_the_order_of_their_times(written: Written) -> None:
    for path in written.feed.rglob("*.parquet"):
        times = pq.read_table(path).column("captured_at").to_pylist()
        assert times == sorted(times)


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_processes(
    written: Written, tmp_path: Path
) -> None:
    write(SMALL, DrawnImages(0), tmp_path / "again", processes=2)
    assert _bytes(tmp_path / "again") == _bytes(written.feed.parent)


def test_another_seed_gives_another_feed(written: Written, tmp_path: Path) -> None:
    write(SMALL, DrawnImages(1), tmp_path / "other", seed=1)
    other, ours = _bytes(tmp_path / "other"), _bytes(written.feed.parent)
    assert other.keys() == ours.keys()
    assert not set(other.values()) & set(ours.values())


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Seventy images of each of four classes, and ten of a fifth."""
    path = tmp_path / "mine.parquet"
    kinds = [*(["water", "forest", "sand", "snow"] * 70), *(["water"] * 10)]
    write_feed(path, kinds)
    table = pq.read_table(path)
    names = [f"{kind}-{i % 2}" for i, kind in enumerate(kinds[:280])] + ["rare"] * 10
    pq.write_table(table.set_column(4, "label", pa.array(names)), path, row_group_size=64)
    return path


def test_own_images_must_have_enough_classes(labelled: Path) -> None:
    with pytest.raises(TooFewImages, match=r"mine\.parquet: has 4 classes of at least 60"):
        collect(labelled, 0)


def test_own_images_keep_their_labels_and_are_drawn_by_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    kinds = ["water", "forest", "sand", "snow"] * 160
    write_feed(path, kinds)
    table = pq.read_table(path)
    names = [f"{kind} {(i // 4) % 2}" for i, kind in enumerate(kinds)]
    pq.write_table(table.set_column(4, "label", pa.array(names)), path, row_group_size=100)
    truth = dict(zip(table.column("image").to_pylist(), names, strict=True))

    first, again, other = collect(path, 0), collect(path, 0), collect(path, 1)
    assert first == again
    assert first.labels != other.labels
    assert set(first.labels) == set(names)
    for label, images in first.images.items():
        assert {truth[image] for image in images} == {label}


def test_a_class_that_runs_out_begins_again_but_not_with_what_was_learnt() -> None:
    pictures = Collected(0, {"a": (b"1", b"2", b"3")})
    assert pictures.training == 1
    shown = [pictures.of("a", number) for number in range(6)]
    assert shown == [b"1", b"2", b"3", b"2", b"3", b"2"]


def test_what_cannot_be_decoded_is_left_to_the_monitor() -> None:
    assert Collected(0, {"a": (b"no image",)}).of("a", 0, dirty=True) == b"no image"
