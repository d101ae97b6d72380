"""What is shown of sources that have no label of their own."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from monitor.store import Store
from monitor.telemetry.source_label_cap import NONE, OTHER, Cap, combined
from monitor.telemetry.store_summary import DriftSummary, SourceSummary

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FULL = SourceSummary(
    name="",
    images={"known": 8, "novel": 2},
    rejected={"truncated": 1},
    settled={"known": 9},
    above=2.0,
    expected_above=0.5,
    ratios={"1.0": 8.0},
    ratio_sum=9.5,
    reused=3,
    reuse_checks=2,
    reuse_change=0.1,
    questions_open=2,
    questions_suspected=1,
    oldest_question_at=NOON,
    implausible=4,
    drift=DriftSummary(level=1.5, strength=0.7, active=True, since=NOON),
    corrected=True,
)


def test_images_without_a_source_keep_all_that_is_known_of_them(tmp_path: Path) -> None:
    left_empty = {field.name for field in fields(FULL) if not getattr(FULL, field.name)}
    assert left_empty == {"name", "last_captured_at", "last_commit_at"}
    with Store.open(tmp_path) as store:
        assert Cap(store, 9).apply([FULL]) == (replace(FULL, name=NONE),)


def test_sources_are_corrected_together_if_one_of_them_is() -> None:
    plain = SourceSummary("cam-1", implausible=1)
    both = combined([FULL, plain], OTHER)
    assert (both.corrected, both.implausible) == (True, 5)
    assert not combined([plain, plain], OTHER).corrected
