"""Pictures of any image that has a verdict, rendered from the feed when somebody looks.

Nothing of it is written down: a purge, or a feed that lets go of its files, ends what can be seen.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock, Semaphore

from monitor.config import Config
from monitor.feed.errors import FeedError
from monitor.feed.feed_storage import FeedStorage
from monitor.images.thumbnail import SIDE
from monitor.jobs.from_config import columns_of, decoding_of
from monitor.pipeline.worker_tasks import ThumbnailReader

LARGE = 1280
"""Pixels of the longer side of a large view: a screen's worth."""

REMEMBERED_BYTES = 48 * 1024 * 1024
"""Some two thousand small pictures: what a person scrolls through in minutes."""

AT_ONCE = 4
"""Pictures rendered at the same time, so that a page full of them leaves answers their turn."""


class FeedPictures:
    """Renders images of the feed, and remembers the latest."""

    def __init__(self, config: Config, *, remembered: int = REMEMBERED_BYTES) -> None:
        self._config = config
        self._readers: dict[int, ThumbnailReader] = {}
        self._known: OrderedDict[tuple[str, int, int], bytes | None] = OrderedDict()
        self._bytes, self._most = 0, remembered
        self._lock, self._turns = Lock(), Semaphore(AT_ONCE)

    def get(self, file: str, row: int, *, large: bool = False) -> bytes | None:
        """A JPEG of the image; None if the feed does not have it any more."""
        side = LARGE if large else SIDE
        key = (file, row, side)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        with self._turns:
            try:
                [picture] = self._reader(side).render([(file, row)])
            except FeedError:
                return None
        if picture.thumbnail is not None:
            self._remember(key, picture.thumbnail)
        return picture.thumbnail

    def _remember(self, key: tuple[str, int, int], data: bytes) -> None:
        with self._lock:
            if key in self._known:
                return
            self._known[key] = data
            self._bytes += len(data)
            while self._bytes > self._most:
                _, gone = self._known.popitem(last=False)
                self._bytes -= len(gone or b"")

    def _reader(self, side: int) -> ThumbnailReader:
        if side not in self._readers:
            self._readers[side] = ThumbnailReader(
                FeedStorage.at(self._config.feed.path),
                columns_of(self._config),
                decoding_of(self._config),
                default_source=self._config.feed.default_source,
                side=side,
            )
        return self._readers[side]
