"""How long an unfinished file is waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from monitor.feed.feed_storage import FeedFile
from monitor.feed.unfinished_files import PATIENCE, UnfinishedFile, is_overdue, wait_for

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def watch(sizes: list[int]) -> UnfinishedFile:
    """Look once a minute at a file that has these sizes."""
    waiting: UnfinishedFile | None = None
    for minute, size in enumerate(sizes):
        waiting = wait_for(FeedFile("a.parquet", size, size), waiting, START + minute * MINUTE)
    assert waiting is not None
    return waiting


def test_a_file_that_grows_is_waited_for_without_end() -> None:
    waiting = watch(list(range(100)))
    assert not is_overdue(waiting, START + 99 * MINUTE)
    assert waiting.tries == 1


def test_a_file_that_stands_still_is_given_up_after_the_patience_and_not_before() -> None:
    waiting = watch([1, 2, 2, 2])
    assert waiting.tries == 3
    assert waiting.since == START + MINUTE
    assert not is_overdue(waiting, waiting.since + PATIENCE - timedelta(microseconds=1))
    assert is_overdue(waiting, waiting.since + PATIENCE)
    assert is_overdue(waiting, waiting.since + MINUTE, patience=MINUTE)
