"""A labelled collection of images as features: embedded once, then taken from the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from monitor.backbones.backbone_spec import cache_root
from monitor.backbones.embed_images import embed_images
from monitor.backbones.engine import Engine, Features
from monitor.backbones.feature_cache import Chunk, FeatureCache
from monitor.feed.batch_plan import PlannedBatch, plan_batches
from monitor.feed.batch_reader import BatchReader
from monitor.feed.class_folders import class_folder, class_images
from monitor.feed.errors import SourceError
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.file_arguments import find_files
from monitor.feed.input_contract import Columns, Row
from monitor.images.reject_reasons import Reason, Rejected
from monitor.plain_text import path_problem

CHUNK = 512
"""Images a cache file holds, and what an interruption can cost: some seconds on two cores."""

_TOGETHER = 8
"""Neighbouring rows in a sample: reading one row of a group costs as much as reading several."""

Progress = Callable[[int, int], None]
"""Called with the images done and the images there are."""


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """One image of a collection, or the reason why it has none."""

    image_id: str
    label: str | None
    where: str
    """File and row, as a message would name it."""
    image: bytes | Rejected


@dataclass(frozen=True, slots=True)
class RejectedSample:
    """An image that has no feature, and why."""

    image_id: str
    where: str
    rejected: Rejected


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedDataset:
    """Features with their labels, in the order of the files and rows."""

    features: Features
    labels: tuple[str | None, ...]
    image_ids: tuple[str, ...]
    rejected: tuple[RejectedSample, ...]


def embed_dataset(
    files: Sequence[str | os.PathLike[str]],
    engine: Engine,
    *,
    columns: Columns | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
    need_label: bool = True,
    seen: Callable[[LabelledImage], None] | None = None,
) -> EmbeddedDataset:
    """Embed Parquet files (paths, folders, patterns) or one folder of class folders.

    A folder without Parquet files whose folders hold images is read as class folders: the class
    is the folder's name. What was embedded before, with the same backbone, is taken from the
    cache; see `cache_root` for where that is. ``seen`` is shown every sample that has a
    feature, with its image, also when the feature came from the cache.
    """
    folder = class_folder(files)
    if folder is not None:
        total, samples = _from_folders(folder)
    else:
        total, samples = _from_parquet(files, columns or Columns(), need_label)
    store = FeatureCache(cache_root(cache), engine.fingerprint)
    report = progress or (lambda done, total: None)
    show = seen or (lambda sample: None)
    parts: list[Features] = [np.empty((0, engine.fingerprint.dimension), np.float32)]
    kept: list[LabelledImage] = []
    rejected: list[RejectedSample] = []
    done = 0
    report(0, total)
    while some := list(islice(samples, CHUNK)):
        chunk = _chunk(some, engine, store)
        parts.append(chunk.features)
        found = [some[position] for position in chunk.positions]
        for sample in found:
            show(sample)
        # Without its image: a collection is larger than memory.
        kept.extend(replace(sample, image=b"") for sample in found)
        rejected.extend(
            RejectedSample(some[position].image_id, some[position].where, why)
            for position, why in sorted(chunk.rejected.items())
        )
        done += len(some)
        report(done, total)
    return EmbeddedDataset(
        np.concatenate(parts),
        tuple(sample.label for sample in kept),
        tuple(sample.image_id for sample in kept),
        tuple(rejected),
    )


def sample_dataset(
    files: Sequence[str | os.PathLike[str]], count: int, *, columns: Columns | None = None
) -> list[LabelledImage]:
    """About ``count`` labelled images from evenly over the collection, the same every time.

    Rows are taken a few together, so that not more of a large collection is read than needed.
    """
    folder = class_folder(files)
    if folder is not None:
        paths = list(class_images(folder))
        step = max(1.0, len(paths) / count)
        chosen = [paths[int(place * step)] for place in range(min(count, len(paths)))]
        samples: Iterator[LabelledImage] = (_of_file(folder, path) for path in chosen)
    else:
        columns = columns or Columns()
        source, specs = _planned(files, columns, True)
        samples = _rows(source, columns, _spread(specs, count))
    return [s for s in samples if isinstance(s.image, bytes) and (s.label or "").strip()]


def _spread(specs: list[PlannedBatch], count: int) -> list[PlannedBatch]:
    """Parts of batches, a few rows each and evenly apart, ``count`` rows in all."""
    total = sum(spec.rows for spec in specs)
    if total <= count:
        return specs
    gap = total / (count / _TOGETHER)
    parts: list[PlannedBatch] = []
    passed, due = 0, 0.0
    for spec in specs:
        while due < passed + spec.rows:
            first = int(due) - passed
            rows = min(_TOGETHER, spec.rows - first)
            parts.append(PlannedBatch(spec.file, spec.first_row + first, rows))
            due += gap
        passed += spec.rows
    return parts


def _chunk(some: list[LabelledImage], engine: Engine, store: FeatureCache) -> Chunk:
    """Features of the samples that have an image, from the cache or computed and put there."""
    unread = {i: s.image for i, s in enumerate(some) if isinstance(s.image, Rejected)}
    images = [(i, s.image) for i, s in enumerate(some) if isinstance(s.image, bytes)]
    data = [image for _, image in images]
    chunk = store.get(data)
    if chunk is None:
        chunk = _computed(data, engine)
        store.put(data, chunk)
    positions = np.array([i for i, _ in images], np.int64)
    rejected = {int(positions[i]): why for i, why in chunk.rejected.items()}
    return Chunk(positions[chunk.positions], chunk.features, unread | rejected)


def _computed(images: list[bytes], engine: Engine) -> Chunk:
    found = list(embed_images(enumerate(images), engine))
    empty = np.empty((0, engine.fingerprint.dimension), np.float32)
    return Chunk(
        np.array([position for part in found for position in part.keys], np.int64),
        np.concatenate([empty, *(part.features for part in found)]),
        {position: why for part in found for position, why in part.rejected},
    )


def _from_parquet(
    files: Sequence[str | os.PathLike[str]], columns: Columns, need_label: bool
) -> tuple[int, Iterator[LabelledImage]]:
    source, specs = _planned(files, columns, need_label)
    return sum(spec.rows for spec in specs), _rows(source, columns, specs)


def _planned(
    files: Sequence[str | os.PathLike[str]], columns: Columns, need_label: bool
) -> tuple[FeedStorage, list[PlannedBatch]]:
    source, found = find_files(files)
    return source, [
        spec
        for file in found
        for spec in plan_batches(source, file, columns, need_label=need_label)
    ]


def _rows(
    source: FeedStorage, columns: Columns, specs: list[PlannedBatch]
) -> Iterator[LabelledImage]:
    with BatchReader(source, columns) as reader:
        for spec in specs:
            for row in reader.iter_rows(spec):
                where = f"{source.where(spec.file.path)}, row {row.row}"
                if isinstance(row, Row):
                    yield LabelledImage(row.image_id, row.label, where, row.image)
                else:
                    reason = Rejected(row.reason, row.detail)
                    yield LabelledImage(row.image_id or "", None, where, reason)


def _from_folders(folder: Path) -> tuple[int, Iterator[LabelledImage]]:
    paths = list(class_images(folder))
    if not paths:
        raise SourceError(f"{folder}: no class folder with images in it; check the path")
    return len(paths), (_of_file(folder, path) for path in paths)


def _of_file(folder: Path, path: Path) -> LabelledImage:
    name = path.relative_to(folder).as_posix()
    problem = path_problem(name)
    if problem is not None:
        return LabelledImage("", None, str(path), Rejected(Reason.BAD_ID, f"its name {problem}"))
    try:
        image: bytes | Rejected = path.read_bytes() or Rejected(
            Reason.NO_IMAGE, "the file is empty"
        )
    except OSError as error:
        image = Rejected(Reason.UNREADABLE, error.strerror or type(error).__name__)
    return LabelledImage(name, name.split("/", 1)[0], str(path), image)
