"""Where the demo's images come from: drawn, or taken from labelled images of your own."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow.parquet as pq

from monitor.demo.errors import TooFewImages
from monitor.demo.scenes.catalog import SCENES, jpeg, render
from monitor.demo.scenes.dirty_lens import soiled
from monitor.demo.story import LEAST_CLASSES, MOST_CLASSES
from monitor.feed.batch_plan import plan_batches, read_footer
from monitor.feed.batch_reader import BatchReader
from monitor.feed.feed_storage import FeedFile, FeedStorage
from monitor.feed.file_arguments import find_files
from monitor.feed.input_contract import Row
from monitor.images.decode import decode
from monitor.images.reject_reasons import Rejected

Place = tuple[str, int]
"""A file and a row of it."""

LEAST_IMAGES = 60
"""A class with fewer would be half learnt."""
MOST_IMAGES = 700
"""As many of a class as the story can show; more are not kept in memory."""
LEARNT = 60
"""Labelled images of each known class at the beginning: an afternoon's work for one person."""


class Pictures(Protocol):
    """Encoded images by class and number."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def training(self) -> int:
        """Labelled images of each known class that a story should begin with."""
        ...

    def of(self, label: str, number: int, *, dirty: bool = False) -> bytes: ...


@dataclass(frozen=True, slots=True)
class DrawnImages:
    """Procedural scenes; see :mod:`monitor.demo.scenes.catalog`.

    >>> DrawnImages(seed=0).of("snow", 3)[:2] == bytes([0xFF, 0xD8])
    True
    """

    seed: int

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(SCENES)

    @property
    def training(self) -> int:
        return LEARNT

    def of(self, label: str, number: int, *, dirty: bool = False) -> bytes:
        pixels = render(label, (self.seed, number))
        return jpeg(soiled(pixels, self.seed) if dirty else pixels)


@dataclass(frozen=True, slots=True)
class Collected:
    """Images of a labelled Parquet file; a class that runs out of them starts again.

    The first ``training`` of each class are not shown again, since they may have been learnt.
    """

    seed: int
    images: Mapping[str, tuple[bytes, ...]]
    """By class, in a random order of classes and images."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.images)

    @property
    def training(self) -> int:
        # No more than half of the smallest, so that the feed has others to show.
        return min(LEARNT, min(len(images) for images in self.images.values()) // 2)

    def of(self, label: str, number: int, *, dirty: bool = False) -> bytes:
        images, learnt = self.images[label], self.training
        if number >= len(images):
            number = learnt + (number - learnt) % (len(images) - learnt)
        image = images[number]
        if not dirty:
            return image
        found = decode(image)
        # What cannot be decoded is for the monitor to reject, dirty or not.
        return image if isinstance(found, Rejected) else jpeg(soiled(found.pixels, self.seed))


def collect(file: str | Path, seed: int) -> Collected:
    """Draw classes and images from labelled Parquet; the seed decides which, and their order.

    Read twice: the labels, to choose, then the images that were chosen, so that files much larger
    than memory will do.
    """
    rng = np.random.default_rng([seed, 2])
    source, files = find_files([file])
    places: dict[str, list[Place]] = {}
    for found in files:
        for row, label in enumerate(_labels(source, found)):
            if label:
                places.setdefault(label, []).append((found.path, row))
    large = sorted(label for label, at in places.items() if len(at) >= LEAST_IMAGES)
    if len(large) < LEAST_CLASSES:
        raise TooFewImages(
            f"{file}: has {len(large)} classes of at least {LEAST_IMAGES} images; the demo needs "
            f"{LEAST_CLASSES}"
        )
    labels = [large[i] for i in rng.permutation(len(large))[:MOST_CLASSES]]
    wanted: dict[Place, tuple[str, int]] = {}
    for label in labels:
        chosen = rng.permutation(len(places[label]))[:MOST_IMAGES]
        wanted |= {places[label][i]: (label, order) for order, i in enumerate(chosen)}
    images: dict[str, dict[int, bytes]] = {label: {} for label in labels}
    for place, image in _images(source, files, wanted):
        label, order = wanted[place]
        images[label][order] = image
    return Collected(
        seed, {label: tuple(its[order] for order in sorted(its)) for label, its in images.items()}
    )


def _labels(source: FeedStorage, file: FeedFile) -> Iterator[str]:
    layout = read_footer(source, file, need_label=True).layout
    assert layout.label is not None
    with source.open(file.path) as handle:
        for batch in pq.ParquetFile(handle).iter_batches(columns=[".".join(layout.label)]):
            column = batch.column(0)
            for name in layout.label[1:]:
                column = column.field(name)
            yield from ("" if value is None else str(value).strip() for value in column.to_pylist())


def _images(
    source: FeedStorage, files: Sequence[FeedFile], wanted: Container[Place]
) -> Iterator[tuple[Place, bytes]]:
    with BatchReader(source) as reader:
        for file in files:
            for spec in plan_batches(source, file):
                for row in reader.iter_rows(spec):
                    place = (file.path, row.row)
                    if place in wanted and isinstance(row, Row):
                        yield place, row.image
