"""A storage that fails while a footer is read says nothing about the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from monitor.feed.batch_plan import open_parquet, plan_batches
from monitor.feed.errors import ContractError, FileCorrupt, SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from tests.jobs.feeds import write_feed


class _Flaky(io.BytesIO):
    """Bytes of which the first large read fails; small ones, and all later, are sound."""

    def __init__(self, content: bytes, fail: Callable[[bytes], bytes]) -> None:
        super().__init__(content)
        self._fail, self._failed = fail, False

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) > 8 and not self._failed:
            self._failed = True
            return self._fail(found)
        return found


def _drop(found: bytes) -> bytes:
    raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 18")


@pytest.mark.parametrize("fail", [_drop, lambda found: bytes(len(found))], ids=["lost", "zeros"])
def test_a_footer_that_did_not_come_through_is_an_outage(
    tmp_path: Path, fail: Callable[[bytes], bytes]
) -> None:
    content = write_feed(tmp_path / "a.parquet", ["water"] * 3).read_bytes()
    handle = pa.PythonFile(_Flaky(content, fail), mode="r")
    with pytest.raises(SourceUnavailable):
        open_parquet(handle, "s3://feed/a.parquet")
    assert open_parquet(handle, "s3://feed/a.parquet").metadata.num_rows == 3


def test_a_footer_that_is_damaged_where_it_lies_is_the_files_own(tmp_path: Path) -> None:
    content = bytearray(write_feed(tmp_path / "a.parquet", ["water"] * 3).read_bytes())
    content[-400:-8] = bytes([255]) * 392
    with pytest.raises(FileCorrupt, match="footer cannot be read"):
        open_parquet(pa.PythonFile(io.BytesIO(bytes(content)), mode="r"), "a.parquet")


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def _text(name: bytes) -> bytes:
    return _varint(len(name)) + name


def _leaf(name: bytes) -> bytes:
    return b"\x15" + _varint(12) + b"\x25\x00\x18" + _text(name) + b"\0"


def _nested(depth: int) -> bytes:
    """A file without rows, a column of it nested so deep; as its bytes, no writer makes it."""
    root = b"\x48" + _text(b"schema") + b"\x15" + _varint(6) + b"\0"
    group = b"\x35\x02\x18" + _text(b"a") + b"\x15" + _varint(2) + b"\0"
    elements = [root, _leaf(b"image_id"), _leaf(b"image"), *[group] * depth, _leaf(b"z")]
    schema = b"\x19\xfc" + _varint(len(elements)) + b"".join(elements)
    meta = b"\x15\x02" + schema + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + meta + len(meta).to_bytes(4, "little") + b"PAR1"


def test_a_schema_that_is_nested_too_deep_does_not_end_the_process(tmp_path: Path) -> None:
    """It is walked by calls within calls; without a limit it would end the coordinator."""
    path = tmp_path / "a.parquet"
    source = FeedStorage.at(tmp_path)
    path.write_bytes(_nested(60))
    with pytest.raises(ContractError, match="image_id"):
        plan_batches(source, source.list()[0])
    path.write_bytes(_nested(400_000))
    with pytest.raises(FileCorrupt, match="nested"):
        plan_batches(source, source.list()[0])
