"""Deletes pictures that nobody needs any more, once an hour."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.errors import ConcladError
from monitor.people.class_pictures import drop_conclusions, keep_answered_pictures
from monitor.store.retention import drop_thumbnails
from monitor.store.store import Store

EVERY_SECONDS = 3600.0
"""Retention is counted in days; an hour more or less is nothing to it."""

log = logging.getLogger(__name__)


async def housekeeping(store: Store, config: DeskConfig) -> None:
    """Until cancelled. A store that is away for an hour is tried again the next."""
    while True:
        try:
            await asyncio.to_thread(drop_old_pictures, store, config)
        except ConcladError as error:
            log.warning("pictures were not cleared: %s", error)
        await asyncio.sleep(EVERY_SECONDS)


def drop_old_pictures(store: Store, config: DeskConfig) -> int:
    """Delete pictures of questions and conclusions older than ``desk.keep_pictures_days``.

    A few of each class stay with it: somebody has to see next year what it looked like.
    """
    if config.keep_pictures_days is None:
        return 0
    with store.reading() as tx:
        before = tx.now - timedelta(days=config.keep_pictures_days)
    keep_answered_pictures(store)
    return drop_conclusions(store, before) + drop_thumbnails(store, before=before)
