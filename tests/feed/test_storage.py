"""Buckets and failing storages: what the storage does wrong is never blamed on the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from monitor.feed.batch_plan import plan_batches, plan_files
from monitor.feed.batch_reader import BatchReader
from monitor.feed.errors import SourceUnavailable
from monitor.feed.feed_storage import FeedStorage, compare
from monitor.feed.file_arguments import find_files
from tests.buckets import bucket_at
from tests.feed.faults import Faults
from tests.feed.make import read_batch, table, write


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    """A template of addresses in a store whose bucket `frames` holds a small feed."""
    with pytest.MonkeyPatch.context() as patch, bucket_at(request.param, "frames", patch) as at:
        store, _ = fs.FileSystem.from_uri(at.format("frames"))
        for name in (
            "cam-7/0001.parquet",
            "cam-7/0002.parquet",
            "cam 8/å.parquet",
            "_tmp/x.parquet",
        ):
            with store.open_output_stream(f"frames/feed/{name}") as out:
                pq.write_table(table(30, source=name), out, row_group_size=10)
        yield at


def test_a_bucket_is_listed_planned_and_read(bucket: str) -> None:
    source = FeedStorage.at(bucket.format("frames/feed"))
    files = source.list()
    assert [file.path for file in files] == [
        "cam 8/å.parquet",
        "cam-7/0001.parquet",
        "cam-7/0002.parquet",
    ]
    plans = list(plan_files(source, files, rows_per_batch=20))
    specs = [spec for plan in plans for spec in plan.batches]
    assert [spec.rows for spec in specs] == [20, 10] * 3
    with BatchReader(source) as reader:
        batches = [reader.read(spec) for spec in specs]
    assert sum(len(batch.rows) for batch in batches) == 90
    assert batches[0].rows[0].source_id == "cam 8/å.parquet"
    assert compare(source.list(), {file.path: file for file in files}).new == ()


def test_patterns_over_a_bucket(bucket: str) -> None:
    source, files = find_files([bucket.format("frames/feed/cam*/*1.parquet")])
    assert [file.path for file in files] == ["frames/feed/cam-7/0001.parquet"]
    assert len(read_batch(source, plan_batches(source, files[0])[0]).rows) == 30
    _, everything = find_files([bucket.format("frames/feed/**/*.parquet")])
    assert len(everything) == 3


def test_an_object_store_without_the_bucket_is_named(bucket: str) -> None:
    scheme = bucket.partition(":")[0]
    source = FeedStorage.at(bucket.format("nowhere/feed"))
    with pytest.raises(Exception, match=f"^{scheme}://nowhere/feed: ") as caught:
        source.list()
    assert "secret" not in str(caught.value)


def test_a_file_in_memory_reads_like_one_on_disk(tmp_path: Path) -> None:
    memory = fs._MockFileSystem()
    with memory.open_output_stream("a.parquet") as out:
        pq.write_table(table(20), out)
    source = FeedStorage("memory", memory, "")
    [file] = source.list()
    local, same = write(tmp_path, "a.parquet", table(20))
    found = read_batch(source, plan_batches(source, file)[0])
    assert found.rows == read_batch(local, plan_batches(local, same)[0]).rows


@pytest.fixture
def failing(tmp_path: Path) -> tuple[Faults, FeedStorage]:
    write(tmp_path, "a.parquet", table(300), row_group_size=100)
    faults = Faults()
    return faults, FeedStorage("feed", fs.PyFileSystem(faults), str(tmp_path))


def test_an_unreachable_footer_is_unavailable_not_corrupt(
    failing: tuple[Faults, FeedStorage],
) -> None:
    faults, source = failing
    [file] = source.list()
    faults.broken = 100
    with pytest.raises(SourceUnavailable, match=r"feed/a\.parquet: the storage did not answer"):
        plan_batches(source, file)


def test_a_storage_that_stays_away_rejects_no_row(failing: tuple[Faults, FeedStorage]) -> None:
    faults, source = failing
    specs = plan_batches(source, source.list()[0], rows_per_batch=100)
    with BatchReader(source) as reader:
        assert len(reader.read(specs[0]).rows) == 100
        faults.broken = 1000
        with pytest.raises(SourceUnavailable):
            reader.read(specs[1])
        faults.broken = 0
        assert [row.row for row in reader.read(specs[1]).rows] == list(range(100, 200))


def test_a_hiccup_costs_nothing(failing: tuple[Faults, FeedStorage]) -> None:
    faults, source = failing
    specs = plan_batches(source, source.list()[0], rows_per_batch=100)
    with BatchReader(source) as reader:
        reader.read(specs[0])
        faults.broken = 1
        batch = reader.read(specs[1])
    assert faults.broken == 0
    assert [row.row for row in batch.rows] == list(range(100, 200))
