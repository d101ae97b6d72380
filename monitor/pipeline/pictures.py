"""Pictures and labels of single images: the work of the querier.

Image bytes are read where they lie and stay there; what leaves is a small picture encoded anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.feed.contract import Columns
from monitor.feed.errors import FeedError
from monitor.feed.images import Decoding
from monitor.feed.plan import BatchSpec
from monitor.feed.reader import BatchReader
from monitor.feed.reasons import Rejected
from monitor.feed.rows import Row
from monitor.feed.source import Source
from monitor.feed.thumbnail import render_thumbnail


@dataclass(frozen=True, slots=True)
class Picture:
    """What a person is shown, and what the label column says, if there is one.

    Both may be None: a feed's file can be gone by the time somebody is asked about it.
    """

    thumbnail: bytes | None = None
    label: str | None = None


class Painter:
    """Reads single rows of the feed and renders them."""

    def __init__(
        self,
        source: Source,
        columns: Columns,
        decoding: Decoding,
        *,
        default_source: str | None = None,
    ) -> None:
        self._source = source
        self._columns = columns
        self._decoding = decoding
        self._default_source = default_source

    def paint(self, places: Sequence[tuple[str, int]]) -> list[Picture]:
        """One picture for each (file, row), in their order."""
        order = sorted(range(len(places)), key=lambda i: places[i])
        painted = dict(zip(order, self._in_order([places[i] for i in order]), strict=True))
        return [painted[i] for i in range(len(places))]

    def _in_order(self, places: Sequence[tuple[str, int]]) -> Iterator[Picture]:
        """Sorted by file and row, so that each file is walked through once."""
        with BatchReader(
            self._source, self._columns, default_source=self._default_source
        ) as reader:
            for path, row in places:
                try:
                    batch = reader.read(BatchSpec(self._source.stat(path), row, 1))
                except FeedError:
                    yield Picture()
                else:
                    yield self._picture(batch.rows[0]) if batch.rows else Picture()

    def _picture(self, row: Row) -> Picture:
        rendered = render_thumbnail(row.image, self._decoding)
        return Picture(None if isinstance(rendered, Rejected) else rendered, row.label)
