"""Stand-ins for what a bench does not want to pay for: devices, images, detectors.

An image here is one colour, and the colour is a number: whoever decodes it knows which sample it
is. So a bench chooses what features every image has, and how long they take.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import Engine, Features, Images
from monitor.config import Config, load
from monitor.images.decode import Decoding
from monitor.novelty.detector import Detector
from monitor.store import NewClass, Store, VersionUpdate, commit_version
from monitor.store.record_states import ClassOrigin

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
#: The tiny backbone takes images of this size as they are.
SIZE = 32
#: Images that a device embeds at least before it dies.
LIFE = 200


class Table(Engine):
    """Features from a file: the colour of an image says in which row."""

    runtime, batch, workers = "table", 256, 2

    def __init__(self, path: Path) -> None:
        self._table = np.load(path, mmap_mode="r")
        tiny = load_backbone(BackboneSpec("tiny"))
        super().__init__(replace(tiny, blocks=(self._table.shape[1],)), "float32", Decoding())

    def _run(self, images: Images) -> Features:
        return np.asarray(self._table[numbers_of(images) % len(self._table)], np.float32)


class Paced(Table):
    """The same at the pace of a device that computes one batch after the other.

    The device has a clock of its own: it is never late because this machine is crowded, only
    because nobody gave it anything to do. It sleeps, so it leaves the processor free, like a GPU.
    """

    def __init__(self, path: Path, rate: float, batch: int = 64) -> None:
        super().__init__(path)
        self.batch = batch
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def _run(self, images: Images) -> Features:
        with self._lock:
            begins = max(time.monotonic(), self._free_at)
            self._free_at = ends = begins + len(images) / self._rate
        time.sleep(max(0.0, ends - time.monotonic()))
        return super()._run(images)


class Mortal(Paced):
    """A device whose process dies after some images, so many times in all.

    Each death leaves a file in ``graves``, which all processes see.
    """

    def __init__(self, path: Path, rate: float, batch: int, graves: Path, deaths: int) -> None:
        super().__init__(path, rate, batch)
        self._graves, self._deaths, self._images = graves, deaths, 0

    def _run(self, images: Images) -> Features:
        self._images += len(images)
        if self._images > LIFE and len(list(self._graves.iterdir())) < self._deaths:
            (self._graves / str(os.getpid())).touch()
            os._exit(1)
        return super()._run(images)


def table_engine(path: Path, config: Config) -> Engine:
    return Table(path)


def paced_engine(path: Path, rate: float, batch: int, config: Config) -> Engine:
    return Paced(path, rate, batch)


def mortal_engine(
    path: Path, rate: float, batch: int, graves: Path, deaths: int, config: Config
) -> Engine:
    return Mortal(path, rate, batch, graves, deaths)


def numbers_of(images: Images) -> np.ndarray[Any, np.dtype[np.int64]]:
    red, green, blue = (images[:, 0, 0, i].astype(np.int64) for i in range(3))
    return red << 16 | green << 8 | blue


def numbered_image(number: int) -> bytes:
    """A PNG of one colour, written by hand: an encoder would take most of a bench's time."""
    return (
        _SIGNATURE
        + _chunk(b"IHDR", _HEADER)
        + _chunk(b"PLTE", number.to_bytes(3, "big"))
        + _pixels()
    )


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Width, height, one bit per pixel, a palette (of one colour).
_HEADER = struct.pack(">IIBBBBB", SIZE, SIZE, 1, 3, 0, 0, 0)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@cache
def _pixels() -> bytes:
    rows = (b"\0" + bytes(SIZE // 8)) * SIZE
    return _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def write_numbered(
    path: Path,
    numbers: Sequence[int],
    *,
    first_id: int = 0,
    labels: Sequence[str] | None = None,
    source: str = "cam-1",
) -> Path:
    """A file of the feed whose images are these numbers; it appears at once and whole."""
    ids = range(first_id, first_id + len(numbers))
    content = pa.table(
        {
            "image_id": [f"{i:09d}" for i in ids],
            "captured_at": pa.array(
                [NOON + timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")
            ),
            "source_id": pa.array([source] * len(numbers)).dictionary_encode(),
            "image": pa.array([numbered_image(int(n)) for n in numbers], pa.binary()),
            "label": list(labels) if labels is not None else [""] * len(numbers),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    pq.write_table(content, hidden)
    hidden.rename(path)
    return path


def configuration(folder: Path, *overrides: str) -> Config:
    """Feed and state below a folder; nothing of the user's own."""
    empty = folder / "empty.yaml"
    empty.touch()
    ours = [
        f"feed.path={folder / 'feed'}",
        f"state.dir={folder / 'state'}",
        "backbone.name=tiny",
        "backbone.engine=torch",
    ]
    return load(empty, overrides=[*ours, *overrides], environ={}).config


def put_into_use(state: Path, detector: Detector) -> None:
    """A state whose first version is this detector."""
    with Store.open(state) as store:
        commit_version(
            store,
            VersionUpdate(
                key="bench",
                detector=detector,
                parent=None,
                classes=[NewClass(c.id, c.name, ClassOrigin.FIT) for c in detector.classes],
                who="bench",
            ),
        )


def table_of_classes(
    folder: Path, config: Config, *, known: int, new: int, dimension: int
) -> tuple[list[str], list[np.ndarray], np.ndarray]:
    """Features of classes in a table, and in use a detector that was fitted on the first of them.

    Returns the name of each row, the rows of each class, and the rows of known classes that were
    not fitted on.
    """
    features, names = blobs(known + new, 60_000, dimension)
    np.save(folder / "features.npy", features)
    by_class = [np.flatnonzero(np.asarray(names) == name) for name in sorted(set(names))]
    train = np.concatenate([rows[:400] for rows in by_class[:known]])
    fingerprint = Table(folder / "features.npy").fingerprint
    detector = Detector.fit(features[train], [names[i] for i in train], fingerprint=fingerprint)
    put_into_use(Path(config.state.dir), detector)
    return names, by_class, np.concatenate([rows[400:] for rows in by_class[:known]])


def blobs(
    classes: int, samples: int, dimension: int = 64, *, seed: int = 0, spread: float = 6.0
) -> tuple[Features, list[str]]:
    """Clusters that the method tells apart: features, and the name of each one's cluster."""
    # The centres depend on the seed alone, so more classes leave the first ones where they are.
    centres = np.random.default_rng(seed).normal(0, spread, (1000, dimension))[:classes]
    rng = np.random.default_rng([seed, samples])
    which = rng.integers(0, classes, samples)
    # Few directions of variation, as in real features: a subspace explains a class.
    bases = np.random.default_rng([seed, 1]).normal(0, 1, (1000, 4, dimension))[:classes]
    inside = np.einsum("nk,nkd->nd", rng.normal(0, 1, (samples, 4)), bases[which])
    features = centres[which] + inside + rng.normal(0, 0.3, (samples, dimension))
    return features.astype(np.float32), [f"class-{i:03d}" for i in which]
