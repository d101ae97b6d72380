"""Runs mutated files through the feed in a process of its own, so that a crash or hang is seen.

The child says which case it begins and how it ended; the parent keeps the time. What must hold:
planning gives batches or one of our errors; every planned row is read or rejected, once; every
image decodes to pixels or to a reason.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from monitor.feed.batch_plan import plan_files
from monitor.feed.batch_reader import BatchReader
from monitor.feed.feed_storage import FeedStorage
from monitor.images.bands import Bands
from monitor.images.decode import Decoded, Decoding, decode
from monitor.images.reject_reasons import Rejected
from tests.feed.mutate import images, mutate, parquets

SECONDS_PER_CASE = 30.0
"""A case takes milliseconds; a garbled footer may claim a million rows to reject: a few seconds."""

MEMORY = 4 << 30
"""Address space of the child: what wants more must fail by an exception that becomes a reason."""


@dataclass
class Report:
    """What became of the cases: outcomes counted, failures with their seeds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


def run(first: int, count: int, seconds_per_case: float = SECONDS_PER_CASE) -> Report:
    """Run cases by seed; after a crash or hang go on behind it in a new child."""
    report = Report()
    following = first
    while following < first + count:
        following = _run_child(following, first + count, seconds_per_case, report)
    return report


def _run_child(first: int, end: int, seconds: float, report: Report) -> int:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_cases, args=(theirs, first, end), daemon=True)
    child.start()
    theirs.close()
    seed = first
    try:
        # The first answer also waits for the child to import everything.
        if ours.poll(120):
            ours.recv()
        while seed < end:
            began = time.monotonic()
            if not ours.poll(seconds):
                report.failures.append(f"seed {seed}: still running after {seconds} s")
                return seed + 1
            outcome, failure = ours.recv()
            report.slowest = max(report.slowest, time.monotonic() - began)
            report.outcomes[outcome] += 1
            if failure:
                report.failures.append(f"seed {seed}: {failure}")
            seed += 1
    except EOFError:
        child.join(10)
        report.failures.append(f"seed {seed}: the process died with exit code {child.exitcode}")
        seed += 1
    finally:
        if child.is_alive():
            child.kill()
        child.join()
    return seed


def _cases(report: Connection, first: int, end: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole_images, whole_files = images(), parquets()
    report.send("ready")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, end):
            rng = random.Random(seed)
            try:
                if seed % 2:
                    outcome = image_case(mutate(rng.choice(whole_images), rng), rng)
                else:
                    outcome = parquet_case(mutate(rng.choice(whole_files), rng), Path(folder))
                report.send((outcome, None))
            except Exception:  # noqa: BLE001 - whatever escapes is the finding
                report.send(("failed", traceback.format_exc(limit=-6)))


def image_case(data: bytes, rng: random.Random) -> str:
    bands = Bands((4, 3, 2), (0, 3000)) if rng.random() < 0.5 else None
    found = decode(data, Decoding(bands=bands), min_side=rng.choice((None, 16)))
    if isinstance(found, Rejected):
        return f"image {found.reason}"
    assert isinstance(found, Decoded)
    assert found.pixels.dtype == np.uint8
    assert found.pixels.ndim == 3
    assert found.pixels.shape[2] == 3
    return "image decoded"


def parquet_case(data: bytes, folder: Path) -> str:
    (folder / "case.parquet").write_bytes(data)
    source = FeedStorage.at(folder)
    [plan] = plan_files(source, source.list(), rows_per_batch=16, threads=1)
    if plan.problem is not None:
        return f"file {type(plan.problem).__name__}"
    rejected = 0
    with BatchReader(source) as reader:
        for spec in plan.batches:
            batch = reader.read(spec)
            numbers = sorted([row.row for row in batch.rows] + [row.row for row in batch.rejected])
            assert numbers == list(range(spec.first_row, spec.end_row)), "a row was lost"
            rejected += len(batch.rejected)
            for row in batch.rows:
                assert isinstance(decode(row.image), Decoded | Rejected)
    return "file read with rejected rows" if rejected else "file read"
