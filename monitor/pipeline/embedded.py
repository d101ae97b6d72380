"""What an embedder hands on: features, and which rows they belong to.

Apart from the work itself, so that whoever only reads them need not load a backbone's framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitor.feed.plan import BatchSpec
from monitor.feed.rows import RejectedRow
from monitor.novelty.arrays import Floats


@dataclass(frozen=True, slots=True)
class Place:
    """A row without its image."""

    row: int
    image_id: str
    source_id: str
    captured_at: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedBatch:
    """What became of each row of a batch; ``places``, ``features`` and ``stats`` go together."""

    spec: BatchSpec
    places: tuple[Place, ...]
    features: Floats
    stats: Floats
    """How each image was taken, in the figures of :mod:`monitor.feed.image_stats`."""
    rejected: tuple[RejectedRow, ...]
