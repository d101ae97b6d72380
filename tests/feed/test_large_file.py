"""A file of a million rows in one row group: memory stays flat from the first batch to the last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1_000_000

READ = """
import sys
from monitor.feed.batch_plan import plan_batches
from monitor.feed.batch_reader import BatchReader
from monitor.feed.feed_storage import FeedStorage

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

source = FeedStorage.at(sys.argv[1])
[file] = source.list()
before, rows, peaks = resident(), 0, [0, 0]
with BatchReader(source) as reader:
    for spec in plan_batches(source, file, rows_per_batch=4096):
        rows += len(reader.read(spec).rows)
        if rows >= 100_000:
            half = int(rows >= 550_000)
            peaks[half] = max(peaks[half], resident())
print(rows, before, *peaks)
"""


def test_a_million_rows_in_flat_memory(tmp_path: Path) -> None:
    ids = pa.array(np.arange(ROWS)).cast(pa.string())
    noise = pa.py_buffer(np.random.default_rng(0).bytes(64 * ROWS))
    offsets = pa.py_buffer(np.arange(0, 64 * (ROWS + 1), 64, dtype=np.int32))
    image = pa.Array.from_buffers(pa.binary(), ROWS, [None, offsets, noise])
    content = pa.table({"image_id": ids, "image": image})
    pq.write_table(content, tmp_path / "a.parquet", row_group_size=ROWS, compression="none")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=True
    )
    rows, before, early, late = (int(value) for value in done.stdout.split())
    size = (tmp_path / "a.parquet").stat().st_size
    assert rows == ROWS
    assert late < 1.05 * early
    assert max(early, late) - before < size
