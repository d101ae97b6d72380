"""Reading batches: every row read or rejected, whatever the file is like."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.feed.batch_plan import PlannedBatch, plan_batches
from monitor.feed.batch_reader import BatchReader, ReadRows
from monitor.feed.errors import FileChanged, FileGone
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.input_contract import Columns, Row
from monitor.images.reject_reasons import Reason
from tests.feed.make import read_batch, table, write

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)


def read_all(
    source: FeedStorage, file: FeedFile, columns: Columns | None = None, rows_per_batch: int = 256
) -> list[ReadRows]:
    specs = plan_batches(source, file, columns, rows_per_batch=rows_per_batch)
    with BatchReader(source, columns) as reader:
        return [reader.read(spec) for spec in specs]


def only_row(folder: Path, content: pa.Table, columns: Columns | None = None) -> Row:
    [batch] = read_all(*write(folder, "one.parquet", content), columns)
    [row] = batch.rows
    return row


def one(**values: pa.Array) -> pa.Table:
    return pa.table({"image_id": ["1"], "image": pa.array([b"jpeg"])} | values)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(1000), row_group_size=300)
    batches = read_all(source, file, rows_per_batch=128)
    rows = [row for batch in batches for row in batch.rows]
    assert [row.row for row in rows] == list(range(1000))
    assert [row.image_id for row in rows] == [f"cam-7/{i}" for i in range(1000)]
    assert [row.image[-3:] for row in rows[-2:]] == [b"998", b"999"]
    assert rows[7].captured_at == datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC)


def test_any_batch_alone_equals_the_same_batch_in_sequence(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(5000), row_group_size=3000)
    specs = plan_batches(source, file, rows_per_batch=700)
    with BatchReader(source) as reader:
        in_order = [reader.read(spec) for spec in specs]
        backwards = [reader.read(spec) for spec in reversed(specs)]
    assert in_order == backwards[::-1]
    assert in_order[3] == read_batch(source, specs[3])
    assert read_batch(source, PlannedBatch(file, 2999, 2)).rows[1].row == 3000


def test_another_process_reads_the_same_rows(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(100))
    specs = plan_batches(source, file, rows_per_batch=50)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(read_batch, source, specs[1]).result() == read_batch(source, specs[1])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo", "-08:00", None])
def test_times_of_every_unit_and_zone_are_the_same_moment(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    written = MOMENT if zone else MOMENT.replace(tzinfo=None)
    times = pa.array([written], pa.timestamp(unit, zone))
    assert only_row(tmp_path, one(captured_at=times)).captured_at == MOMENT


def test_times_in_seconds_and_in_legacy_int96(tmp_path: Path) -> None:
    whole = MOMENT.replace(microsecond=0)
    assert (
        only_row(tmp_path, one(captured_at=pa.array([whole], pa.timestamp("s", "UTC")))).captured_at
        == whole
    )
    legacy = one(captured_at=pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ns")))
    source, file = write(tmp_path, "int96.parquet", legacy, use_deprecated_int96_timestamps=True)
    assert read_all(source, file)[0].rows[0].captured_at == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:30:15.250Z",
        "2026-03-01T13:30:15.250+01:00",
        "2026-03-01 12:30:15.250",
        "20260301T123015.250Z",
    ],
)
def test_iso_texts_are_moments_and_utc_without_a_zone(tmp_path: Path, text: str) -> None:
    assert only_row(tmp_path, one(captured_at=pa.array([text]))).captured_at == MOMENT


def test_times_before_1970_and_nanoseconds_are_cut_to_the_past(tmp_path: Path) -> None:
    times = pa.array([-1, 1_999, None], pa.timestamp("ns", "UTC"))
    content = pa.table({"image_id": ["1", "2", "3"], "image": [b"x"] * 3, "captured_at": times})
    [batch] = read_all(*write(tmp_path, "a.parquet", content))
    assert [row.captured_at for row in batch.rows] == [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        None,
    ]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([2**62], pa.timestamp("s", "UTC")),
        pa.array([-(2**62)], pa.timestamp("ms")),
        pa.array(["yesterday"]),
        pa.array(["2026-03-01"]),
        pa.array(["0001-01-01T00:00:00+23:00"]),
    ],
    ids=str,
)
def test_times_that_cannot_be_reject_their_row(tmp_path: Path, times: pa.Array) -> None:
    # Milliseconds are as far as Parquet goes, so seconds of that size are written as a bare type.
    if pa.types.is_timestamp(times.type) and times.type.unit == "s":
        times = pa.array([2**62], pa.timestamp("us", "UTC"))
    [batch] = read_all(*write(tmp_path, "a.parquet", one(captured_at=times)))
    [rejected] = batch.rejected
    assert (rejected.reason, rejected.image_id) == (Reason.BAD_TIME, "1")


@pytest.mark.parametrize(
    "text",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("binary", [pa.large_binary(), pa.binary_view()], ids=str)
def test_every_layout_of_text_and_binary(
    tmp_path: Path, text: pa.DataType, binary: pa.DataType
) -> None:
    content = pa.table(
        {
            "image_id": pa.array(["å", "b"]).cast(text),
            "source_id": pa.array(["cam", None]).cast(text),
            "label": pa.array(["x", None]).cast(text),
            "image": pa.array([b"1", b"2"]).cast(binary),
        }
    )
    [batch] = read_all(*write(tmp_path, "folder/a.parquet", content))
    found = [(row.image_id, row.source_id, row.label, row.image) for row in batch.rows]
    assert found == [("å", "cam", "x", b"1"), ("b", "folder", None, b"2")]


def test_dictionary_encoded_images_and_integer_ids(tmp_path: Path) -> None:
    images = pa.array([b"same", b"same", b"other"]).dictionary_encode()
    content = pa.table({"image_id": [7, 8, 2**63 - 1], "image": images})
    [batch] = read_all(*write(tmp_path, "a.parquet", content))
    assert [(row.image_id, row.image) for row in batch.rows] == [
        ("7", b"same"),
        ("8", b"same"),
        ("9223372036854775807", b"other"),
    ]


def test_struct_images_give_their_bytes_and_reject_paths_without_bytes(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"never to be read")
    images = pa.array(
        [
            {"bytes": b"jpeg", "path": None},
            {"bytes": None, "path": str(secret)},
            None,
            {"bytes": b"", "path": ""},
        ],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    content = pa.table({"image_id": ["1", "2", "3", "4"], "image": images})
    [batch] = read_all(*write(tmp_path, "a.parquet", content))
    assert [row.image for row in batch.rows] == [b"jpeg"]
    assert [(bad.row, bad.reason) for bad in batch.rejected] == [
        (row, Reason.NO_IMAGE) for row in (1, 2, 3)
    ]


def test_columns_deep_in_structs(tmp_path: Path) -> None:
    frames = pa.array(
        [{"jpeg": {"bytes": b"1", "path": "p"}, "camera": "north"}, None],
        pa.struct(
            [
                ("jpeg", pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])),
                ("camera", pa.string()),
            ]
        ),
    )
    content = pa.table({"key": ["a", "b"], "frame": frames})
    columns = Columns(image_id="key", image="frame.jpeg", source_id="frame.camera")
    [batch] = read_all(*write(tmp_path, "a.parquet", content), columns)
    assert [(row.source_id, row.image) for row in batch.rows] == [("north", b"1")]
    assert [bad.reason for bad in batch.rejected] == [Reason.NO_IMAGE]


def test_ids_that_name_nothing_reject_their_row_only(tmp_path: Path) -> None:
    ids = pa.array([b"good", None, b"", b"\xff\xfe"], pa.binary()).view(pa.string())
    content = pa.table({"image_id": ids, "image": [b"x"] * 4})
    [batch] = read_all(*write(tmp_path, "a.parquet", content))
    assert [row.image_id for row in batch.rows] == ["good"]
    assert [(bad.row, bad.reason) for bad in batch.rejected] == [
        (row, Reason.BAD_ID) for row in (1, 2, 3)
    ]
    assert batch.rejected[2].detail == "image_id is not valid UTF-8"


@pytest.mark.parametrize(
    ("name", "default", "expected"),
    [
        ("cam-7/a.parquet", None, "cam-7"),
        ("cam-7/a.parquet", "roof", "roof"),
        ("source_id=cam%207/day=1/a.parquet", "roof", "cam 7"),
        ("a.parquet", None, "default"),
    ],
)
def test_the_source_of_rows_without_one(
    tmp_path: Path, name: str, default: str | None, expected: str
) -> None:
    source, file = write(tmp_path, name, one())
    batch = read_batch(source, plan_batches(source, file)[0], default_source=default)
    assert batch.rows[0].source_id == expected


def test_columns_of_type_null_are_columns_of_nulls(tmp_path: Path) -> None:
    empty = pa.nulls(1)
    row = only_row(tmp_path, one(captured_at=empty, source_id=empty, label=empty))
    assert (row.captured_at, row.source_id, row.label) == (None, "default", None)
    for role, reason in (("image_id", Reason.BAD_ID), ("image", Reason.NO_IMAGE)):
        [batch] = read_all(*write(tmp_path, "null.parquet", one(**{role: empty})))
        assert [bad.reason for bad in batch.rejected] == [reason]


def test_one_row_and_no_rows(tmp_path: Path) -> None:
    assert only_row(tmp_path, table(1)).image_id == "cam-7/0"
    assert read_all(*write(tmp_path, "none.parquet", table(0))) == []


def test_a_corrupt_row_group_rejects_its_rows_and_no_others(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(300), row_group_size=100, compression="zstd")
    chunk = pq.read_metadata(tmp_path / file.path).row_group(1).column(3)
    with (tmp_path / file.path).open("r+b") as handle:
        handle.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
        handle.write(b"\xff" * chunk.total_compressed_size)
    file = source.stat(file.path)
    batches = read_all(source, file, rows_per_batch=64)
    assert all(len(b.rows) + len(b.rejected) == b.spec.rows for b in batches)
    assert sum(len(batch.rows) for batch in batches) == 200
    rejected = [bad for batch in batches for bad in batch.rejected]
    assert [bad.row for bad in rejected] == list(range(100, 200))
    assert {bad.reason for bad in rejected} == {Reason.UNREADABLE}
    assert "row group 1 cannot be read" in rejected[0].detail
    alone = [read_batch(source, batch.spec) for batch in batches]
    assert alone == batches


def test_a_file_that_changed_after_planning_is_loud(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(10))
    [spec] = plan_batches(source, file)
    write(tmp_path, "a.parquet", table(11))
    with pytest.raises(FileChanged, match="files of a feed must not change"):
        read_batch(source, spec)
    write(tmp_path, "b.parquet", table(10))
    (tmp_path / file.path).unlink()
    with pytest.raises(FileGone):
        read_batch(source, spec)


def test_a_file_that_was_only_touched_is_the_same(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(10))
    [spec] = plan_batches(source, file)
    os.utime(tmp_path / file.path, ns=(1, 1))
    assert len(read_batch(source, spec).rows) == 10
    unknown = replace(spec, file=replace(spec.file, digest=None))
    with pytest.raises(FileChanged):
        read_batch(source, unknown)


def test_another_file_of_the_same_size_is_another_file(tmp_path: Path) -> None:
    ids = pa.array([f"{i:04}" for i in range(10)])
    images = pa.array([b"x" * 100] * 10)
    source, file = write(tmp_path, "a.parquet", pa.table({"image_id": ids, "image": images}))
    [spec] = plan_batches(source, file)
    other = pa.table({"image_id": pa.array([f"{i + 100:04}" for i in range(10)]), "image": images})
    _, now = write(tmp_path, "a.parquet", other)
    os.utime(tmp_path / file.path, ns=(1, 1))
    assert now.size == file.size
    with pytest.raises(FileChanged):
        read_batch(source, spec)


def test_rows_beyond_the_end_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(10))
    with pytest.raises(FileChanged, match="ends before row 20"):
        read_batch(source, PlannedBatch(file, 5, 15))


def test_a_reader_goes_on_after_an_error(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(10))
    with BatchReader(source) as reader:
        with pytest.raises(FileChanged):
            reader.read(PlannedBatch(file, 5, 15))
        assert len(reader.read(PlannedBatch(file, 0, 10)).rows) == 10
