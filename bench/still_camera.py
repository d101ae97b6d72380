"""What unchanged frames cost: python -m bench.still_camera --data eurosat.parquet [--draws 24].

A fixed camera with one image a second, rendered from labelled images: a view made of them, the
noise of a sensor, JPEG; in 5% of the frames something lies before it, of a known or of a new
class. Two measurements on such feeds, each with and without ``feed.reuse_unchanged``:

- core-seconds of ``conclad score`` (this process and its decoders, without start-up), interleaved,
- by draw: whether every changed frame is embedded, and whether the monitor's walk names the new
  class.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from bench.process_tree import processor_seconds
from monitor.backbones.embed_images import Reuse, embed_frames
from monitor.backbones.engine import Engine
from monitor.cli.evaluate import live_steps
from monitor.config import Config, load
from monitor.evaluation.live_feed import LivePool
from monitor.evaluation.live_monitor import LiveMonitor
from monitor.jobs.fit_detector import fit
from monitor.jobs.from_config import open_engine_of
from monitor.jobs.progress import JobProgress
from monitor.jobs.score_files import Scored, score
from monitor.novelty.detector import Detector
from monitor.novelty.trigger.trigger_settings import TriggerSettings

CHANGED = 0.05
KNOWN = 3
LABELLED = 60
NOISE, QUALITY = 3.0, 85
#: What lies before the camera, over the height of the picture.
OBJECT = 0.7
#: The class of a frame in which nothing lies before the camera.
NOTHING = "nothing"
BATCH, POOL = 256, 400
Sizes = tuple[int, int]


@dataclass
class Camera:
    """One view, the classes that come before it, and the frames it takes."""

    images: dict[str, list[bytes]]
    size: Sizes
    rng: np.random.Generator
    known: list[str] = field(init=False)
    new: str = field(init=False)

    def __post_init__(self) -> None:
        names = [str(name) for name in self.rng.permutation(sorted(self.images))]
        self.known, self.new = names[:KNOWN], names[KNOWN]
        width, height = self.size
        self._view = np.zeros((height, width, 3), np.float32)
        tile = height // 2
        for top in range(0, height, tile):
            for left in range(0, width, tile):
                some = names[KNOWN + 1 + int(self.rng.integers(len(names) - KNOWN - 1))]
                place = self._view[top : top + tile, left : left + tile]
                place[:] = self._image(some, tile)[: place.shape[0], : place.shape[1]]
        shape = (16, height, width, 3)
        self._noise = self.rng.standard_normal(shape, np.float32) * np.float32(NOISE)

    def frame(self, name: str) -> bytes:
        """What the camera sees when something of this class lies before it."""
        view = self._view
        if name != NOTHING:
            height, width = view.shape[:2]
            side = int(OBJECT * height)
            # Within what a backbone sees, the middle of the picture.
            top = int(self.rng.integers(height // 16, height - side - height // 16))
            left = (width - height) // 2 + int(self.rng.integers(height // 16, height // 4))
            view = view.copy()
            view[top : top + side, left : left + side] = self._image(name, side)
        noise = self._noise[int(self.rng.integers(len(self._noise)))]
        shifted = np.roll(noise, tuple(self.rng.integers(0, 99, 2).tolist()), axis=(0, 1))
        file = io.BytesIO()
        picture = np.clip(view + shifted, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def feed(self, frames: int) -> list[str]:
        """What lies before the camera in each second; a third of it is new."""
        names = [NOTHING] * frames
        changed = self.rng.choice(np.arange(1, frames), round(CHANGED * frames), replace=False)
        for number, second in enumerate(changed.tolist()):
            names[second] = self.new if number % 3 == 0 else self.known[number % KNOWN]
        return names

    def labelled(self) -> list[str]:
        return [name for name in (NOTHING, *self.known) for _ in range(LABELLED)]

    def _image(self, name: str, side: int) -> NDArray[np.float32]:
        of_class = self.images[name]
        with Image.open(io.BytesIO(of_class[int(self.rng.integers(len(of_class)))])) as image:
            scaled = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        return np.asarray(scaled).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="labelled images, as Parquet")
    parser.add_argument("--frames", type=int, default=3072, help="scored in each turn")
    parser.add_argument("--cameras", type=int, default=1, help="in the scored file, in turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", type=int, nargs=2, default=(320, 240))
    parser.add_argument("--precision", default="auto", help="as backbone.precision")
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--draw-frames", type=int, default=1024)
    given = parser.parse_args(arguments)
    if not given.data.is_file():
        parser.error(f"{given.data} is no file")
    images = by_class(given.data)
    size = (given.size[0], given.size[1])
    with tempfile.TemporaryDirectory() as temporary:
        if given.turns:
            config = config_in(Path(temporary), given.precision)
            cameras = [Camera(images, size, np.random.default_rng(n)) for n in range(given.cameras)]
            measure_cost(config, Path(temporary), cameras, given.frames, given.turns)
        if given.draws:
            # None of these is fitted to a file, and so has chosen a precision.
            config = config_in(Path(temporary) / "draws", "float32")
            measure_findings(config, images, given.draws, given.draw_frames)


def by_class(data: Path) -> dict[str, list[bytes]]:
    table = pq.read_table(data, columns=["image", "label"])
    found: dict[str, list[bytes]] = {}
    for row in table.to_pylist():
        found.setdefault(row["label"], []).append(row["image"])
    return found


def measure_cost(
    config: Config,
    folder: Path,
    cameras: Sequence[Camera],
    frames: int,
    turns: int,
) -> None:
    """Core-seconds of `conclad score` with and without reuse, one after the other."""
    write(folder / "labelled.parquet", cameras[:1], cameras[0].labelled())
    fit(config, [folder / "labelled.parquet"])
    size = cameras[0].size
    feeds = [camera.feed(frames // len(cameras)) for camera in cameras]
    names = [name for second in zip(*feeds, strict=True) for name in second]
    write(folder / "feed.parquet", cameras, names)
    used: dict[Reuse, list[float]] = {"never": [], "auto": []}
    for turn in range(turns):
        for reuse, seconds in used.items():
            found, spent = scored(config, folder, reuse, f"{turn}-{reuse}")
            seconds.append(spent)
            if not turn:
                missed = not_embedded(folder / f"{turn}-{reuse}", names)
                print(
                    f"{reuse}: {found.images} frames of {size[0]} x {size[1]}, {len(cameras)} "
                    f"cameras in turn, {found.reused} reused, {missed} changed frames not embedded"
                )
    for reuse, seconds in used.items():
        shown = ", ".join(f"{one:.2f}" for one in seconds)
        print(
            f"{reuse}: {1000 * statistics.median(seconds) / len(names):.2f} core-ms a frame "
            f"({shown})"
        )
    ratio = statistics.median(used["never"]) / statistics.median(used["auto"])
    print(f"embedding each frame takes {ratio:.1f} times the core-seconds")


def scored(config: Config, folder: Path, reuse: Reuse, out: str) -> tuple[Scored, float]:
    """The run, and its core-seconds once the backbone is loaded and the files are planned."""
    ready: list[float] = []

    def watch(progress: JobProgress) -> None:
        if progress.stage == "plan":
            ready.append(processor_seconds())

    feed = config.feed.model_copy(update={"reuse_unchanged": reuse})
    changed = config.model_copy(update={"feed": feed})
    found = score(changed, [folder / "feed.parquet"], folder / out, progress=watch)
    return found, processor_seconds() - ready[-1]


def not_embedded(out: Path, names: Sequence[str]) -> int:
    """Changed frames that were taken for unchanged."""
    rows = pq.read_table(out / "verdicts", columns=["row", "same_as"]).to_pylist()
    return sum(row["same_as"] is not None and names[row["row"]] != NOTHING for row in rows)


def write(path: Path, cameras: Sequence[Camera], names: Sequence[str]) -> None:
    """What the cameras see one after the other, in turn."""
    numbers = range(len(names))
    takes = [number % len(cameras) for number in numbers]
    columns = {
        "image_id": [f"{number:07d}" for number in numbers],
        "captured_at": pa.array(
            [number * 1_000_000 for number in numbers], pa.timestamp("us", "UTC")
        ),
        "source_id": [f"camera-{take}" for take in takes],
        "image": [cameras[take].frame(name) for take, name in zip(takes, names, strict=True)],
        "label": list(names),
    }
    pq.write_table(pa.table(columns), path, row_group_size=BATCH)


def config_in(folder: Path, precision: str) -> Config:
    folder.mkdir(exist_ok=True)
    empty = folder / "empty.yaml"
    empty.touch()
    given = [f"state.dir={folder / 'state'}", f"backbone.precision={precision}"]
    return load(empty, overrides=given, environ={}).config


def measure_findings(
    config: Config, images: dict[str, list[bytes]], draws: int, frames: int
) -> None:
    """By draw: changed frames that were not embedded, and whether the new class was named."""
    found: dict[Reuse, set[int]] = {"never": set(), "auto": set()}
    missed = embedded = changed = 0
    with open_engine_of(config) as engine:
        for draw in range(draws):
            camera = Camera(images, (320, 240), np.random.default_rng([1, draw]))
            labels = camera.labelled()
            features = embed(engine, [camera.frame(name) for name in labels], "never")[1]
            detector = Detector.fit(features, labels)
            names = np.asarray(camera.feed(frames))
            pictures = [camera.frame(str(name)) for name in names]
            for reuse, finders in found.items():
                rows, features = embed(engine, pictures, reuse)
                if names_new(detector, features, names[rows], camera.new, draw):
                    finders.add(draw)
                if reuse == "auto":
                    missed += int(
                        np.isin(np.flatnonzero(names != NOTHING), rows, invert=True).sum()
                    )
                    embedded += len(rows)
                    changed += int((names != NOTHING).sum())
    print(
        f"{draws} draws of {frames} frames (320 x 240): {embedded} embedded with reuse, "
        f"{changed} changed, {missed} of these not embedded"
    )
    print(
        f"new class named in {len(found['never'])} draws without reuse, in {len(found['auto'])} "
        f"with it; found without and missed with it: {len(found['never'] - found['auto'])}"
    )


def embed(
    engine: Engine, frames: Sequence[bytes], reuse: Reuse
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The frames that are embedded, batch by batch, and their features."""
    rows: list[int] = []
    features = []
    for first in range(0, len(frames), BATCH):
        part = [(first + i, data) for i, data in enumerate(frames[first : first + BATCH])]
        one = embed_frames(part, engine, reuse, lambda key: "camera", stats=False)
        rows += one.keys
        features.append(one.features)
    return np.asarray(rows, np.int64), np.concatenate(features)


def names_new(
    detector: Detector,
    features: NDArray[np.float32],
    labels: NDArray[np.str_],
    new: str,
    seed: int,
) -> bool:
    """Whether the monitor's walk over pools of these images ends with the new class named."""
    monitor = LiveMonitor(detector, live_steps(), TriggerSettings(), seed)
    for day, first in enumerate(range(0, len(features), POOL)):
        some = slice(first, first + POOL)
        sources = np.full(len(features[some]), "camera", dtype=object)
        pool = LivePool(features[some], labels[some], sources, clean=False)
        if new in monitor.take(pool, 86400.0 * day).discovered:
            return True
    return False


if __name__ == "__main__":
    main()
