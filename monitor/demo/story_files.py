"""The story as files: labelled images to learn from, and a feed as the contract wants it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.demo.image_source import DrawnImages, Pictures
from monitor.demo.story import SOURCES, START, Shot, Story

LABELLED = "labelled.parquet"
FEED = "feed"

Report = Callable[[int, int], None]
"""Called with the images made and the images there are."""


@dataclass(frozen=True, slots=True)
class Written:
    """What lies in the demo's folder now."""

    labelled: Path
    feed: Path
    training: int
    images: int
    files: int


def write(
    story: Story,
    pictures: Pictures,
    folder: Path,
    *,
    seed: int = 0,
    processes: int = 1,
    progress: Report = lambda done, total: None,
) -> Written:
    """Write ``labelled.parquet`` and ``feed/DAY/SOURCE.parquet``.

    The same story, pictures and seed give the same bytes. Files bear the time of their day, so
    that they arrive in that order.
    """
    training, shots = labelled_shots(story), story.shots(seed)
    parts = [(folder / LABELLED, training)]
    for day in range(story.days):
        date = f"{START + timedelta(days=day):%Y-%m-%d}"
        for source in SOURCES:
            its = [s for s in shots if s.source == source and story.day_of(s.captured_at) == day]
            parts.append((folder / FEED / date / f"{source}.parquet", its))
    total, done = len(training) + len(shots), 0
    progress(0, total)
    for (path, its), images in zip(parts, _drawn(parts, pictures, processes), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(its, images), path)
        _date(path, its[-1].captured_at)
        done += len(its)
        progress(done, total)
    return expected(story, folder)


def expected(story: Story, folder: Path) -> Written:
    """What ``write`` leaves in a folder."""
    return Written(
        labelled=folder / LABELLED,
        feed=folder / FEED,
        training=story.training * len(story.known),
        images=story.images,
        files=story.days * len(SOURCES),
    )


def labelled_shots(story: Story) -> list[Shot]:
    """The images that people labelled before the feed began."""
    return [
        Shot(
            image_id=f"labelled-{label}-{number:04d}",
            source="archive",
            captured_at=START - timedelta(days=30) + timedelta(minutes=number),
            label=label,
            number=number,
            dirty=False,
        )
        for label in story.known
        for number in range(story.training)
    ]


def _drawn(
    parts: Sequence[tuple[Path, Sequence[Shot]]], pictures: Pictures, processes: int
) -> Iterable[list[bytes]]:
    # Drawing takes time, taking from memory does not.
    if processes < 2 or not isinstance(pictures, DrawnImages):
        yield from ([_draw(pictures, shot) for shot in its] for _, its in parts)
        return
    # Spawned, not forked: whoever calls may have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_draw_all, ((pictures, its) for _, its in parts))


def _draw_all(job: tuple[Pictures, Sequence[Shot]]) -> list[bytes]:
    pictures, shots = job
    return [_draw(pictures, shot) for shot in shots]


def _draw(pictures: Pictures, shot: Shot) -> bytes:
    return pictures.of(shot.label, shot.number, dirty=shot.dirty)


def _table(shots: Sequence[Shot], images: Sequence[bytes]) -> pa.Table:
    return pa.table(
        {
            "image_id": [shot.image_id for shot in shots],
            "captured_at": pa.array(
                [shot.captured_at for shot in shots], pa.timestamp("us", "UTC")
            ),
            "source_id": [shot.source for shot in shots],
            "image": pa.array(images, pa.binary()),
            "label": [shot.label for shot in shots],
        }
    )


def _date(path: Path, moment: datetime) -> None:
    os.utime(path, (moment.timestamp(), moment.timestamp()))
