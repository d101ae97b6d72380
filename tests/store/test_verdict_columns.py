"""Output files: fixed columns, exact bytes, and a rule that readers can rely on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs as pafs

from monitor.store.atomic_files import Folder, is_temporary
from monitor.store.errors import NotFound, StoreAddress, TableMismatch
from monitor.store.exemplars import get_thumbnail, put_thumbnail
from monitor.store.verdict_columns import (
    DISCOVERIES,
    REJECTED,
    SETTLED,
    VERDICTS,
    Span,
    completed,
    covered,
    feature_column,
    feature_matrix,
    features_schema,
    read_table,
    table,
    write_table,
)

ROW = {"file": ["a"], "row": [3], "reason": ["truncated"]}


def test_the_columns_are_those_we_promise() -> None:
    assert " ".join(VERDICTS.names) == (
        "image_id source_id captured_at score score_ratio p_known verdict nearest_class "
        "nearest_class_name shift_corrected same_as detector_version file row"
    )
    assert " ".join(REJECTED.names) == "image_id source_id file row reason detail"
    assert " ".join(DISCOVERIES.names) == (
        "image_id source_id captured_at class_id class_name by confidence detector_version "
        "pool file row"
    )
    assert " ".join(SETTLED.names) == (
        "image_id source_id captured_at verdict class_id class_name probability by pool "
        "detector_version revision"
    )


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    folder = Folder.local(tmp_path)
    one = write_table(folder, "one.parquet", table(REJECTED, ROW))
    two = write_table(folder, "two.parquet", table(REJECTED, ROW))
    assert one.sha256 == two.sha256 == folder.sha256("one.parquet")
    assert pq.read_table(tmp_path / "two.parquet").to_pylist() == [
        {"image_id": None, "source_id": None, "detail": None, "file": "a", "row": 3}
        | {"reason": "truncated"}
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"colour": ["red"]}, "columns colour"),
        ({"file": ["a"], "row": [1]}, "column reason: is missing"),
        ({**ROW, "reason": [None]}, "column reason: has empty values"),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, list[object]], words: str) -> None:
    with pytest.raises(TableMismatch, match=words):
        table(REJECTED, columns)


@given(st.integers(0, 5), st.integers(1, 7))
def test_features_come_back_exactly(rows: int, dimension: int) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, dimension)).astype(np.float32)
    column = pa.chunked_array([feature_column(values[:1]), feature_column(values[1:])])
    assert feature_matrix(column).tobytes() == values.tobytes()
    assert column.type == features_schema(dimension).field("features").type


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder.local(tmp_path)
    folder.write("notes/a", b"old")

    def half(sink: object) -> None:
        sink.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        folder.stage("notes/a", half)
    assert folder.read("notes/a") == b"old"
    assert [entry.name for entry in folder.list()] == ["notes/a"]


def test_a_staged_file_is_invisible_to_parquet_readers(tmp_path: Path) -> None:
    folder = Folder.local(tmp_path)
    staged = folder.stage_bytes("b1.parquet", b"not yet")
    assert is_temporary(staged.temporary)
    assert staged.temporary.startswith(".")
    staged.publish()
    assert folder.read("b1.parquet") == b"not yet"


def test_publishing_a_new_name_never_overwrites(tmp_path: Path) -> None:
    for folder in (Folder.local(tmp_path), Folder(pafs._MockFileSystem(), "bucket")):
        folder.write("a", b"first")
        staged = folder.stage_bytes("a", b"second")
        with pytest.raises(FileExistsError):
            staged.publish_new()
        assert folder.read("a") == b"first"


def test_folders_by_uri(tmp_path: Path) -> None:
    folder = Folder.at(f"file://{tmp_path}")
    assert folder.is_local
    folder.child("deep").write("a", b"1")
    assert Folder.at(tmp_path).read("deep/a") == b"1"
    with pytest.raises(StoreAddress, match="cannot be opened"):
        Folder.at("nonsense://bucket")


def test_tables_on_a_filesystem_that_is_not_local() -> None:
    folder = Folder(pafs._MockFileSystem(), "bucket/state")
    write_table(folder, "rejected/b1.parquet", table(REJECTED, ROW))
    assert read_table(folder, "rejected/b1.parquet").num_rows == 1
    assert [entry.name for entry in folder.list("rejected")] == ["rejected/b1.parquet"]


def test_pictures_are_named_by_their_content(tmp_path: Path) -> None:
    folder = Folder.local(tmp_path)
    digest = put_thumbnail(folder, b"pixels")
    assert put_thumbnail(folder, b"pixels") == digest
    assert get_thumbnail(folder, digest) == b"pixels"
    for name in ("0" * 64, "../../etc/passwd", "", digest.upper()):
        with pytest.raises(NotFound):
            get_thumbnail(folder, name)


def naive(names: list[str]) -> set[str]:
    """The reader's rule, word for word and slowly."""
    spans = {name: Span.parse(name) for name in names}
    return {
        name
        for name, span in spans.items()
        for other in spans.values()
        if span is not None and other is not None and other.hides(span)
    }


@given(st.data())
def test_the_rule_agrees_with_its_definition(data: st.DataObject) -> None:
    """Over listings as they occur: parts, nested merges of them, and rewritten files."""
    names: set[str] = set()

    def build(first: int, last: int) -> None:
        if data.draw(st.booleans(), "file"):
            generations = data.draw(st.integers(0, 2), "generations")
            names.update(Span(first, last, g).name("b") for g in range(generations + 1))
        if first < last:
            middle = data.draw(st.integers(first, last - 1), "cut")
            build(first, middle)
            build(middle + 1, last)

    build(1, 6)
    listing = sorted(names)
    assert covered(listing) == naive(listing)


def test_a_column_that_is_newer_than_a_file_is_empty(tmp_path: Path) -> None:
    folder = Folder.local(tmp_path)
    old = pa.schema([field for field in REJECTED if field.name != "detail"])
    write_table(folder, "rejected/b1.parquet", table(old, ROW))
    found = read_table(folder, "rejected/b1.parquet", ["row", "detail"])
    assert found.to_pylist() == [{"row": 3, "detail": None}]
    (rows,) = table(old, ROW).to_batches()
    assert completed(rows, REJECTED).schema == REJECTED
    assert completed(rows, REJECTED).to_pylist()[0]["detail"] is None
