"""How long a year of frames takes to list and plan: python -m bench.listing [FOLDER].

Makes 10,000 files of 100 rows once (a minute), then lists them, compares the listing with what
is known, and plans every file from its footer, with several numbers of threads.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.feed.batch_plan import LOCAL_THREADS, REMOTE_THREADS, FileBatches, plan_files
from monitor.feed.feed_storage import FeedFile, FeedStorage, compare

T = TypeVar("T")

FILES, ROWS, SOURCES = 10_000, 100, 40


def make(folder: Path) -> None:
    """A feed of tiny rows; the cost of listing and planning does not depend on the images."""
    content = pa.table(
        {
            "image_id": [f"{row:08}" for row in range(ROWS)],
            "captured_at": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
            "source_id": ["camera"] * ROWS,
            "image": [bytes([row]) * 8 for row in range(ROWS)],
        }
    )
    out = pa.BufferOutputStream()
    pq.write_table(content, out)
    data = out.getvalue().to_pybytes()
    for number in range(FILES):
        path = folder / f"cam-{number % SOURCES:02}" / f"{number:05}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def timed(name: str, work: Callable[[], T]) -> T:
    began, worked = time.monotonic(), time.process_time()
    result = work()
    wall, work_time = time.monotonic() - began, time.process_time() - worked
    print(f"{name:<30} {wall:7.2f} s, of which the processor {work_time:.2f} s")
    return result


def main(folder: Path) -> None:
    if not any(folder.iterdir()):
        timed(f"make {FILES} files", lambda: make(folder))
    source = FeedStorage.at(folder)
    files = timed("list", source.list)
    known = {file.path: file for file in files}
    timed("compare with all known", lambda: compare(files, known))
    for threads in (1, LOCAL_THREADS, REMOTE_THREADS):
        plans = timed(f"plan, {threads} threads", partial(plan, source, files, threads))
    batches = sum(len(each.batches) for each in plans)
    print(f"{len(files)} files, {sum(each.rows for each in plans)} rows, {batches} batches")


def plan(source: FeedStorage, files: tuple[FeedFile, ...], threads: int) -> list[FileBatches]:
    return list(plan_files(source, files, threads=threads))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
