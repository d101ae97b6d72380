"""Cutting files into batches from their footers."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.feed.batch_plan import (
    Footer,
    PlannedBatch,
    RowGroup,
    cut,
    plan_batches,
    plan_files,
    read_footer,
)
from monitor.feed.errors import ContractError, FileCorrupt, FileGone, FileIncomplete
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.input_contract import Columns, Layout
from tests.feed.make import table, write

FILE = FeedFile("a.parquet", 1000, 1)


def footer(*rows: int, row_bytes: int = 10) -> Footer:
    groups: list[RowGroup] = []
    first = 0
    for index, count in enumerate(rows):
        size = count * row_bytes
        groups.append(RowGroup(index, first, count, size))
        first += count
    return Footer(FILE, Layout(("image_id",), ("image",)), tuple(groups))


def sizes(specs: tuple[PlannedBatch, ...]) -> list[int]:
    return [spec.rows for spec in specs]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([0, 0], []),
        ([1], [1]),
        ([100], [100]),
        ([101], [50, 51]),
        ([250], [83, 83, 84]),
        ([40, 40, 40], [80, 40]),
        ([0, 100, 0, 100, 0], [100, 100]),
        ([30, 150, 30, 30], [30, 75, 75, 60]),
    ],
)
def test_batches_follow_row_groups_without_crumbs(groups: list[int], expected: list[int]) -> None:
    assert sizes(cut(footer(*groups), 100, 1 << 20)) == expected


def test_large_rows_make_small_batches() -> None:
    assert sizes(cut(footer(10, row_bytes=300), 100, 1000)) == [2, 3, 2, 3]
    assert sizes(cut(footer(2, row_bytes=5000), 100, 1000)) == [1, 1]


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 120), st.integers(1, 4000))
def test_every_row_is_in_exactly_one_batch(groups: list[int], rows: int, size: int) -> None:
    specs = cut(footer(*groups), rows, size)
    covered = [row for spec in specs for row in range(spec.first_row, spec.end_row)]
    assert covered == list(range(sum(groups)))
    assert all(1 <= spec.rows <= rows for spec in specs)


def test_batches_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        cut(footer(1), 0, 1)


def test_empty_file_and_empty_groups(tmp_path: Path) -> None:
    source, file = write(tmp_path, "empty.parquet", table(0))
    assert plan_batches(source, file) == ()
    with pq.ParquetWriter(tmp_path / "gaps.parquet", table(0).schema) as writer:
        for rows in (0, 3, 0, 2, 0):
            writer.write_table(table(rows))
    found = read_footer(source, source.stat("gaps.parquet"))
    assert sum(group.rows for group in found.groups) == 5
    assert sizes(plan_batches(source, found.file, rows_per_batch=3)) == [3, 2]


def test_a_footer_that_contradicts_itself_is_corrupt(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(50), store_schema=False)
    path = tmp_path / file.path
    whole = path.read_bytes()
    # Thrift writes a count of 50 as the byte 100; the last one is that of the row group.
    at = whole.rindex(b"\x16\x64")
    changed = bytearray(whole)
    changed[at + 1] = 98
    path.write_bytes(changed)
    with pytest.raises(FileCorrupt, match="50 rows in all, 49 in its groups"):
        plan_batches(source, source.stat(file.path))


@pytest.mark.parametrize("keep", [0, 1, 4, 7, 11, 12, 200, -1, -4, -8])
def test_a_file_without_its_end_is_incomplete(tmp_path: Path, keep: int) -> None:
    source, file = write(tmp_path, "a.parquet", table(50))
    whole = (tmp_path / file.path).read_bytes()
    (tmp_path / file.path).write_bytes(whole[:keep])
    with pytest.raises(FileIncomplete, match=r"has no footer yet \(\d+ bytes\)"):
        plan_batches(source, source.stat(file.path))


def test_a_file_that_grew_since_it_was_listed_is_incomplete(tmp_path: Path) -> None:
    source, file = write(tmp_path, "a.parquet", table(50))
    smaller = FeedFile(file.path, file.size - 10, file.modified_ns)
    with pytest.raises(FileIncomplete, match="still being written; list the feed again"):
        plan_batches(source, smaller)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"image_id,image\n1,2\n", "is not a Parquet file"),
        (b"PAR1" + b"\x00" * 20 + b"\xff\xff\xff\x7fPAR1", "its footer cannot be read"),
        (b"PAR1" + b"\x00" * 20 + b"\x08\x00\x00\x00PAR1", "its footer cannot be read"),
        (b"PARE" + b"\x00" * 20 + b"\x08\x00\x00\x00PARE", "is encrypted"),
    ],
)
def test_files_that_will_never_be_read_are_corrupt(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    source = FeedStorage.at(tmp_path)
    with pytest.raises(FileCorrupt, match=message):
        plan_batches(source, source.stat("a.parquet"))


def test_many_files_keep_their_order_and_a_bad_one_costs_only_itself(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path, f"{number:02}.parquet", table(number))
    (tmp_path / "03.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "04.parquet").write_bytes(b"something else altogether")
    write(tmp_path, "05.parquet", table(5).rename_columns(["id", "at", "from", "jpeg"]))
    source = FeedStorage.at(tmp_path)
    files = source.list()
    (tmp_path / "06.parquet").unlink()
    plans = list(plan_files(source, files, Columns(), rows_per_batch=10, threads=4))
    assert [plan.file for plan in plans] == list(files)
    problems = {plan.file.path: type(plan.problem) for plan in plans if plan.problem}
    assert problems == {
        "03.parquet": FileIncomplete,
        "04.parquet": FileCorrupt,
        "05.parquet": ContractError,
        "06.parquet": FileGone,
    }
    assert sum(plan.rows for plan in plans) == sum(range(30)) - 3 - 4 - 5 - 6
