"""Labelled images seen through a worse camera: features, and their cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from monitor.backbones.backbone_spec import cache_root
from monitor.backbones.engine import Engine
from monitor.backbones.feature_cache import Chunk, FeatureCache
from monitor.evaluation.shift_corruptions import corrupted
from monitor.feed.labelled_dataset import CHUNK, LabelledImage
from monitor.images.decode import Decoded, decode


@dataclass(frozen=True, slots=True)
class DrawnImage:
    """An encoded image, its class, and its place among all images that have a feature."""

    row: int
    label: str
    image: bytes


class Lottery:
    """Draws some images of every class from a stream, without keeping the rest.

    >>> lottery = Lottery(2, seed=0)
    >>> for i in range(9):
    ...     lottery(LabelledImage(str(i), "cat", "", b"image"))
    >>> [drawn.label for drawn in lottery.drawn]
    ['cat', 'cat']
    """

    def __init__(self, per_class: int, *, seed: int) -> None:
        self._per_class = per_class
        self._rng = np.random.default_rng(seed)
        self._drawn: dict[str, list[DrawnImage]] = {}
        self._met: dict[str, int] = {}
        self._rows = 0

    def __call__(self, sample: LabelledImage) -> None:
        row, label = self._rows, sample.label or ""
        self._rows += 1
        met = self._met[label] = self._met.get(label, 0) + 1
        kept = self._drawn.setdefault(label, [])
        assert isinstance(sample.image, bytes)
        if len(kept) < self._per_class:
            kept.append(DrawnImage(row, label, sample.image))
        elif (place := int(self._rng.integers(met))) < self._per_class:
            # Reservoir sampling: each image of the class so far is kept with the same chance.
            kept[place] = DrawnImage(row, label, sample.image)

    @property
    def drawn(self) -> list[DrawnImage]:
        return sorted((d for kept in self._drawn.values() for d in kept), key=lambda d: d.row)


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedFeatures:
    """Features of images through one camera, and their classes."""

    features: NDArray[np.float32]
    labels: NDArray[np.str_]

    def part(self, first: int, last: int) -> ShiftedFeatures:
        return ShiftedFeatures(self.features[first:last], self.labels[first:last])


def seen_through(
    images: list[DrawnImage],
    engine: Engine,
    corruption: str,
    severity: int,
) -> ShiftedFeatures:
    """Embed images as a camera with this fault would show them; images that cannot be decoded
    are left out."""
    store = FeatureCache(cache_root(), engine.fingerprint)
    features: list[NDArray[np.float32]] = []
    labels: list[str] = []
    stream, done = iter(images), 0
    while part := list(islice(stream, CHUNK)):
        # The fault is part of the key: the same bytes through another camera are other features.
        keys = [b"%s:%d:" % (corruption.encode(), severity) + p.image for p in part]
        chunk = store.get(keys)
        if chunk is None:
            chunk = _computed(part, engine, corruption, severity, done)
            store.put(keys, chunk)
        features.append(chunk.features)
        labels += [part[i].label for i in chunk.positions]
        done += len(part)
    return ShiftedFeatures(np.concatenate(features), np.array(labels, dtype=np.str_))


def _computed(
    part: list[DrawnImage], engine: Engine, corruption: str, severity: int, first: int
) -> Chunk:
    recipe = engine.backbone.preprocessing
    kept: list[int] = []
    found: list[NDArray[np.float32]] = []
    for batch in _batches(range(len(part)), engine.batch):
        squares = []
        for i in batch:
            image = decode(part[i].image, engine.decoding, min_side=recipe.decode_side)
            if not isinstance(image, Decoded):
                continue
            rng = np.random.default_rng((severity, first + i))
            squares.append(recipe.apply(corrupted(image.pixels, corruption, severity, rng)))
            kept.append(i)
        if squares:
            found.append(engine.embed(np.stack(squares)))
    empty = np.empty((0, engine.fingerprint.dimension), np.float32)
    return Chunk(np.array(kept, np.int64), np.concatenate([empty, *found]), {})


def _batches(rows: Iterable[int], size: int) -> Iterable[list[int]]:
    stream = iter(rows)
    while batch := list(islice(stream, size)):
        yield batch
