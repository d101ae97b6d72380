"""A storage that fails while a footer is read says nothing about the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from monitor.feed.batch_plan import open_parquet
from monitor.feed.errors import FileCorrupt, SourceUnavailable
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
