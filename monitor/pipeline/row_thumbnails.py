"""Thumbnails and labels of single rows: the work of the querier.

Image bytes are read on the node of the worker; only a newly encoded thumbnail is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from monitor.feed.batch_plan import PlannedBatch
from monitor.feed.batch_reader import BatchReader
from monitor.feed.contract import Columns, Row
from monitor.feed.errors import FeedError, SourceUnavailable
from monitor.feed.feed_storage import FeedStorage
from monitor.images.decode import Decoding
from monitor.images.isolated_decoding import decoders_for
from monitor.images.reject_reasons import Rejected
from monitor.images.thumbnail import SIDE

#: A file that alone stays away for so long is gone: then there is no picture of its images.
ALONE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RowThumbnail:
    """What a person is shown, and what the label column says, if there is one.

    Both may be None: a feed's file can be gone by the time somebody is asked about it.
    """

    thumbnail: bytes | None = None
    label: str | None = None
    is_other: bool = False
    """Whether another image stands there than the one that was scored: it is not shown."""


class ThumbnailReader:
    """Reads single rows of the feed and renders them."""

    def __init__(
        self,
        source: FeedStorage,
        columns: Columns,
        decoding: Decoding,
        *,
        default_source: str | None = None,
        side: int = SIDE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._away_since: float | None = None
        self._source = source
        self._columns = columns
        self._decoding = decoding
        self._default_source = default_source
        self._side = side

    def render(
        self,
        places: Sequence[tuple[str, int]],
        digests: Sequence[str | None] | None = None,
    ) -> list[RowThumbnail]:
        """One thumbnail for each (file, row), in their order.

        With ``digests`` only of images that are still those which were scored. Raises
        SourceUnavailable while the feed is away: a question without its picture is a lost one.
        """
        known = digests or [None] * len(places)
        order = sorted(range(len(places)), key=lambda i: places[i])
        chosen = [(*places[i], known[i]) for i in order]
        rendered = dict(zip(order, self._in_order(chosen), strict=True))
        return [rendered[i] for i in range(len(places))]

    def _in_order(self, places: Sequence[tuple[str, int, str | None]]) -> Iterator[RowThumbnail]:
        """Sorted by file and row, so that each file is walked through once."""
        with BatchReader(
            self._source, self._columns, default_source=self._default_source
        ) as reader:
            for path, row, digest in places:
                try:
                    batch = reader.read(PlannedBatch(self._source.stat(path), row, 1))
                except SourceUnavailable as error:
                    self._check_alone(error)
                    yield RowThumbnail()
                except FeedError:
                    yield RowThumbnail()
                else:
                    self._away_since = None
                    found = batch.rows[0] if batch.rows else None
                    yield self._thumbnail(found, digest) if found else RowThumbnail()

    def _check_alone(self, error: SourceUnavailable) -> None:
        """Raise, unless the feed is there and only this file has been away for long."""
        now = self._clock()
        self._away_since = now if self._away_since is None else self._away_since
        if not self._source.is_there() or now - self._away_since < ALONE_SECONDS:
            raise error

    def _thumbnail(self, row: Row, digest: str | None) -> RowThumbnail:
        if digest is not None and row.identity.digest != digest:
            return RowThumbnail(is_other=True)
        rendered = decoders_for(self._decoding).thumbnail(row.image, self._side)
        return RowThumbnail(None if isinstance(rendered, Rejected) else rendered, row.label)
