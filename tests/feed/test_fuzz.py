"""Mutated files: no crash, no hang, no row lost without a reason; bench/fuzz_feed.py runs more."""

from __future__ import annotations

import random
from pathlib import Path

from tests.feed.fuzz import image_case, parquet_case, run
from tests.feed.mutate import images, mutate, parquets

CASES = 800


def test_mutated_files_and_images_end_in_rows_or_reasons() -> None:
    report = run(first=0, count=CASES)
    assert report.failures == []
    assert sum(report.outcomes.values()) == CASES
    # The mutations must be neither harmless nor all fatal, or nothing was tried.
    for outcome in ("image decoded", "image corrupt", "file read", "file FileCorrupt"):
        assert report.outcomes[outcome] > CASES // 100, report.outcomes


def test_the_files_it_starts_from_are_sound(tmp_path: Path) -> None:
    assert all(parquet_case(data, tmp_path).startswith("file read") for data in parquets())
    decoded = [image_case(data, random.Random(0)) for data in images()]
    assert decoded.count("image decoded") >= len(decoded) // 2


def test_the_same_seed_is_the_same_case() -> None:
    data = images()[0]
    assert mutate(data, random.Random(7)) == mutate(data, random.Random(7)) != data
