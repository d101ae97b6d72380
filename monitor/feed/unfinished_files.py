"""How long an unfinished file is waited for before it is quarantined.

One :class:`UnfinishedFile` is kept for each file without a footer; it is tried again at the next
listing and quarantined once it is overdue. Values only; the clock is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitor.feed.feed_storage import FeedFile

PATIENCE = timedelta(minutes=10)
"""A writer that has not added a byte for ten minutes has died: uploads stall for seconds."""


@dataclass(frozen=True, slots=True)
class UnfinishedFile:
    """A file that had no footer when it was last looked at.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> waiting = wait_for(FeedFile("a.parquet", 100, 1), None, noon)
    >>> is_overdue(waiting, noon + timedelta(minutes=9)), is_overdue(waiting, noon + PATIENCE)
    (False, True)
    >>> grown = wait_for(FeedFile("a.parquet", 200, 2), waiting, noon + PATIENCE)
    >>> is_overdue(grown, noon + PATIENCE)
    False
    """

    file: FeedFile
    since: datetime
    tries: int = 1


def wait_for(file: FeedFile, before: UnfinishedFile | None, now: datetime) -> UnfinishedFile:
    """One more look that found no footer; a file that grew meanwhile starts its wait again."""
    if before is None or before.file != file:
        return UnfinishedFile(file, now)
    return UnfinishedFile(file, before.since, before.tries + 1)


def is_overdue(waiting: UnfinishedFile, now: datetime, patience: timedelta = PATIENCE) -> bool:
    """Whether the file has stood still for so long that nobody is writing it any more."""
    return now - waiting.since >= patience
