"""Which schemas are read, and what a person is told about the others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from monitor.feed.errors import ContractError
from monitor.feed.input_contract import Columns, Layout, check_schema

WHERE = "feed/cam-7/0003.parquet"


def schema(**types: pa.DataType) -> pa.Schema:
    whole = {"image_id": pa.string(), "image": pa.binary()} | types
    return pa.schema(list(whole.items()))


def check(found: pa.Schema, columns: Columns | None = None, *, need_label: bool = False) -> Layout:
    return check_schema(found, columns or Columns(), where=WHERE, need_label=need_label)


def test_missing_column_says_what_was_found_and_where_to_map_it() -> None:
    with pytest.raises(ContractError) as caught:
        check(pa.schema([("image_id", pa.string()), ("img", pa.binary()), ("ts", pa.string())]))
    assert str(caught.value) == (
        "feed/cam-7/0003.parquet: no column 'image' (found: image_id, img, ts); map it under "
        "feed.columns in ray_config.yaml"
    )


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_binary_images_of_every_layout(kind: pa.DataType) -> None:
    assert check(schema(image=kind)).image == ("image",)


@pytest.mark.parametrize("inner", [pa.binary(), pa.large_binary()], ids=str)
def test_struct_images_read_the_bytes_and_never_the_path(inner: pa.DataType) -> None:
    layout = check(schema(image=pa.struct([("bytes", inner), ("path", pa.string())])))
    assert layout.leaves() == ["image.bytes", "image_id"]


def test_struct_without_bytes_is_refused_with_its_fields() -> None:
    with pytest.raises(ContractError, match=r"without a field 'bytes' \(found: data, path\)"):
        check(schema(image=pa.struct([("data", pa.binary()), ("path", pa.string())])))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.uint8()), pa.int64(), pa.list_(pa.binary())], ids=str
)
def test_images_of_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ContractError, match="not images; write the encoded files as binary"):
        check(schema(image=kind))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.large_string()),
        pa.int64(),
        pa.uint8(),
    ],
    ids=str,
)
def test_texts_of_every_layout_and_integers_are_ids(kind: pa.DataType) -> None:
    layout = check(schema(image_id=kind, source_id=kind, label=kind), need_label=True)
    assert (layout.image_id, layout.source_id, layout.label) == (
        ("image_id",),
        ("source_id",),
        ("label",),
    )


@pytest.mark.parametrize("role", ["image_id", "source_id", "label"])
def test_ids_of_other_types_are_refused(role: str) -> None:
    with pytest.raises(ContractError, match=f"where {role} wants text or integers"):
        check(schema(**{role: pa.float64()}))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Oslo", "+05:30"])
def test_timestamps_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    assert check(schema(captured_at=pa.timestamp(unit, zone))).captured_at == ("captured_at",)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.int64(), pa.time64("us")], ids=str)
def test_times_that_name_no_moment_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ContractError, match="write captured_at as a timestamp in UTC or as ISO"):
        check(schema(captured_at=kind))


def test_optional_columns_may_be_absent_but_not_once_they_are_mapped() -> None:
    layout = check(schema())
    assert (layout.captured_at, layout.source_id, layout.label) == (None, None, None)
    with pytest.raises(ContractError, match="no column 'camra'"):
        check(schema(camera=pa.string()), Columns(source_id="camra"))


def test_label_is_required_only_where_it_is_needed() -> None:
    with pytest.raises(ContractError, match="no column 'label'"):
        check(schema(), need_label=True)


def test_columns_inside_structs_are_reached_by_a_dot() -> None:
    meta = pa.struct([("camera", pa.string()), ("at", pa.timestamp("ms"))])
    layout = check(schema(meta=meta), Columns(source_id="meta.camera", captured_at="meta.at"))
    assert layout.source_id == ("meta", "camera")
    assert layout.captured_at == ("meta", "at")


def test_a_column_that_bears_a_dotted_name_wins_over_a_struct() -> None:
    found = schema(**{"meta.camera": pa.string(), "meta": pa.struct([("camera", pa.int64())])})
    assert check(found, Columns(source_id="meta.camera")).source_id == ("meta.camera",)


def test_two_columns_of_one_name_are_refused_even_for_an_optional_role() -> None:
    twice = pa.schema([*schema(), ("label", pa.string()), ("label", pa.string())])
    with pytest.raises(ContractError, match="2 columns are called 'label'"):
        check(twice)
