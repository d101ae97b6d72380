"""How much was novel, when and where: read from the verdicts, remembered file by file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import pyarrow.compute as pc

from monitor.store.store import Store
from monitor.store.verdict_columns import NOVEL, WrittenFile, read_table

FILES = 400
"""Latest files of verdicts that one look takes in; compaction makes them cover weeks."""

POINTS = 48
"""Across a plot as wide as a phone, more could not be told apart."""

SOURCES = 12
"""Plots on the page, unless one is asked for; those with the most images of late."""


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """Images of one source within one stretch of time."""

    at: datetime
    known: int
    novel: int

    @property
    def share(self) -> float:
        return self.novel / max(1, self.known + self.novel)


@dataclass(frozen=True, slots=True)
class Series:
    source: str
    points: tuple[ActivityPoint, ...]

    @property
    def images(self) -> int:
        return sum(point.known + point.novel for point in self.points)

    @property
    def novel(self) -> int:
        return sum(point.novel for point in self.points)


def novelty_over_time(store: Store) -> list[Series]:
    """The latest verdicts of every source, in stretches of equal length."""
    minutes: dict[str, dict[int, tuple[int, int]]] = {}
    for file in _files(store):
        for (source, minute), (known, novel) in _counts(file).counts.items():
            of_source = minutes.setdefault(source, {})
            before = of_source.get(minute, (0, 0))
            of_source[minute] = (before[0] + known, before[1] + novel)
    found = [Series(source, _points(counts)) for source, counts in minutes.items()]
    return sorted(found, key=lambda series: series.source)


def busiest(found: Sequence[Series]) -> list[Series]:
    """The sources with the most images, as many as fit on a page."""
    latest = sorted(found, key=lambda series: (-series.images, series.source))[:SOURCES]
    return sorted(latest, key=lambda series: series.source)


def first_judged(store: Store) -> dict[int, datetime]:
    """When the first image was taken that each detector version judged, by the version's number.

    In the feed's own time, which is not the time at which the version was made: a feed may be
    read days or years after it was recorded.
    """
    found: dict[int, int] = {}
    for file in _files(store):
        for version, minute in _counts(file).versions.items():
            found[version] = min(minute, found.get(version, minute))
    return {version: _EPOCH + timedelta(minutes=minute) for version, minute in found.items()}


def _files(store: Store) -> list[WrittenFile]:
    with store.reading() as tx:
        outputs = tx.outputs.of_kind("verdicts")[-FILES:]
    return [WrittenFile(store.folder, output.name) for output in outputs]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _points(counts: Mapping[int, tuple[int, int]]) -> tuple[ActivityPoint, ...]:
    first, last = min(counts), max(counts)
    width = max(1, -(-(last - first + 1) // POINTS))
    sums: dict[int, tuple[int, int]] = {}
    for minute, (known, novel) in counts.items():
        place = (minute - first) // width
        before = sums.get(place, (0, 0))
        sums[place] = (before[0] + known, before[1] + novel)
    return tuple(
        ActivityPoint(_EPOCH + timedelta(minutes=first + place * width), *sums[place])
        for place in sorted(sums)
    )


@dataclass(frozen=True, slots=True)
class _FileCounts:
    """Known and novel images by source and minute, and the first minute of each version."""

    counts: Mapping[tuple[str, int], tuple[int, int]]
    versions: Mapping[int, int]


@lru_cache(maxsize=4 * FILES)
def _counts(file: WrittenFile) -> _FileCounts:
    """What one file says; images without a time are left out.

    Of unchanged frames only the first counts: the others repeat what was chance in it, so that no
    number of them is comparable with the share that is expected by chance.
    """
    columns = ["source_id", "captured_at", "verdict", "detector_version", "same_as"]
    try:
        table = read_table(file.folder, file.name, columns)
    except FileNotFoundError:  # merged into another one since it was listed
        return _FileCounts({}, {})
    timed = table.filter(pc.is_valid(table.column("captured_at")))
    minutes = pc.divide(timed.column("captured_at").cast("int64"), 60_000_000)
    timed = timed.append_column("minute", minutes)
    versions = timed.group_by("detector_version").aggregate([("minute", "min")]).to_pylist()
    grouped = (
        timed.filter(pc.is_null(timed.column("same_as")))
        .group_by(["source_id", "minute", "verdict"])
        .aggregate([([], "count_all")])
        .to_pylist()
    )
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for row in grouped:
        key = (row["source_id"], row["minute"])
        known, novel = counts.get(key, (0, 0))
        if row["verdict"] == NOVEL:
            novel += row["count_all"]
        else:
            known += row["count_all"]
        counts[key] = (known, novel)
    return _FileCounts(counts, {row["detector_version"]: row["minute_min"] for row in versions})
