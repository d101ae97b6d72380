"""How fast images become features and verdicts: plain loops, the engine alone, and our ways.

    python -m bench.engine [--backbone embedded] [--data FILE.parquet] [--frame 1024]

All ways take turns in one run, and the medians are compared, so that whatever else the machine
does falls on each alike. The engine alone is the one that `conclad score` opens: with the precision
and the size that `fit` has chosen, unless --precision and --size say which. The plain loops take
the backbone as it was trained. `conclad score` is timed from its plan to its last verdict: reading,
decoding, computing, judging and writing, with an engine of its own that has to warm up, which is a
fifth of a second and why a turn should not be too short. Processor time includes that of the
decoders. What isolation and bookkeeping cost says the comparison with decoding in the same process
and thread, without limits or anything around it: decoding itself is needed by both. The plain loops
take some of the images only, for they are slow, and run in a process of their own, with the
allocator as every Python process has it.

With more than one thread torch waits by spinning: on a machine that others use too, the plain
loop was seen at 0.9 and at 27 images/s within a minute. There, set OMP_NUM_THREADS=1 and read the
CPU column; a ratio from such a machine with more threads says nothing about us.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from bench.process_tree import processor_seconds

if TYPE_CHECKING:
    from monitor.backbones.engine import Engine
    from monitor.config import Config
    from monitor.jobs.progress import JobProgress

PLAIN_BATCHES = (1, 32)
PLAIN_IMAGES = 128
ENGINE, IN_PROCESS = "engine, decoded before", "decoded in process, engine"
EMBEDDING, SCORING = "decode and engine", "conclad score"

Timing = tuple[float, float]
"""Seconds by the clock, and seconds of processor time of this process and its decoders."""
Turn = Callable[[], Timing]


def encoded_images(data: Path | None, frame: int | None, count: int) -> list[bytes]:
    """Images of a Parquet file, or smooth noise; as JPEG of `frame` pixels if that is given."""
    if data is None:
        rng = np.random.default_rng(0)
        coarse = rng.integers(0, 256, (count, 16, 16, 3), np.uint8)
        return [_jpeg(Image.fromarray(pixels), frame or 64) for pixels in coarse]
    import pyarrow.parquet as pq

    batch = next(pq.ParquetFile(data).iter_batches(count, columns=["image"]))
    images: list[bytes] = batch.column(0).to_pylist()
    if frame is None:
        return images
    return [_jpeg(Image.open(io.BytesIO(image)), frame) for image in images]


def _jpeg(image: Image.Image, side: int) -> bytes:
    out = io.BytesIO()
    image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC).save(out, "JPEG")
    return out.getvalue()


def plain_loop(backbone: str, images: Sequence[bytes]) -> dict[int, Callable[[], object]]:
    """What anybody would write first: PIL, timm's transform, the model; by batch size."""
    import torch

    from bench.peer_ways import network_and_transform

    network, transform = network_and_transform(backbone)

    def run(batch: int) -> object:
        features = []
        with torch.inference_mode():
            for first in range(0, len(images), batch):
                part = images[first : first + batch]
                features.append(network(torch.stack([transform(one) for one in part])))
        return features

    return {batch: lambda batch=batch: run(batch) for batch in PLAIN_BATCHES}  # type: ignore[misc]


def timed(work: Callable[[], object]) -> Timing:
    before = now()
    work()
    return since(before)


def now() -> Timing:
    return time.perf_counter(), processor_seconds()


def since(before: Timing) -> Timing:
    clock, used = now()
    return clock - before[0], used - before[1]


def serve_plain(args: argparse.Namespace) -> None:
    """The child: runs a plain loop whenever its parent writes a batch size."""
    loops = plain_loop(args.backbone, encoded_images(args.data, args.frame, PLAIN_IMAGES))
    for loop in loops.values():
        loop()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(loops[int(line)])), flush=True)


@contextmanager
def plain_turns(images: int) -> Iterator[dict[str, Turn]]:
    """The plain loops, each turn in the child; their times are for so many images."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.engine", *sys.argv[1:], "--serve-plain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    asked, answers = child.stdin, child.stdout
    answers.readline()

    def turn(batch: int) -> Timing:
        print(batch, file=asked, flush=True)
        clock, used = json.loads(answers.readline())
        return clock * images / PLAIN_IMAGES, used * images / PLAIN_IMAGES

    yield {f"plain loop, batch {b}": lambda b=b: turn(b) for b in PLAIN_BATCHES}  # type: ignore[misc]
    asked.close()
    child.wait()


def our_turns(
    engine: Engine, config: Config, images: Sequence[bytes], folder: Path
) -> dict[str, Turn]:
    """The engine on prepared images, with decoding, and all of `conclad score`."""
    from monitor.backbones.embed_images import embed_images
    from monitor.images.decode import Decoded, decode

    recipe = engine.backbone.preprocessing
    decoded = [decode(image, min_side=recipe.decode_side) for image in images]
    ready = recipe.apply_all([d.pixels for d in decoded if isinstance(d, Decoded)])
    feed = write_feed(folder / "feed.parquet", images, ["x"] * len(images))
    return {
        ENGINE: lambda: timed(lambda: engine.embed(ready)),
        IN_PROCESS: lambda: timed(lambda: embed_in_process(engine, images)),
        EMBEDDING: lambda: timed(lambda: list(embed_images(enumerate(images), engine))),
        SCORING: lambda: score_turn(config, feed, folder),
    }


def embed_in_process(engine: Engine, images: Sequence[bytes]) -> None:
    """As little as can be between encoded images and features, if every byte is trusted."""
    from monitor.images.decode import Decoded, decode

    recipe = engine.backbone.preprocessing
    for first in range(0, len(images), engine.batch):
        part = images[first : first + engine.batch]
        decoded = [decode(image, min_side=recipe.decode_side) for image in part]
        engine.embed(recipe.apply_all([d.pixels for d in decoded if isinstance(d, Decoded)]))


def score_turn(config: Config, feed: Path, folder: Path) -> Timing:
    """From the last step of planning to the last verdict; the backbone is loaded before."""
    from monitor.jobs.score_files import score

    marks: dict[str, Timing] = {}

    def watch(progress: JobProgress) -> None:
        marks[progress.stage] = now()

    with tempfile.TemporaryDirectory(dir=folder) as out:
        score(config, [feed], out, progress=watch)
    (clock, used), (began, spent) = marks["score"], marks["plan"]
    return clock - began, used - spent


def write_feed(path: Path, images: Sequence[bytes], labels: Sequence[str]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = [f"{number:06}" for number in range(len(images))]
    columns = {
        "image_id": ids,
        "captured_at": pa.array(range(len(images)), pa.timestamp("us", "UTC")),
        "source_id": ["camera"] * len(images),
        "image": list(images),
        "label": list(labels),
    }
    pq.write_table(pa.table(columns), path, row_group_size=256)
    return path


def fitted(args: argparse.Namespace, images: Sequence[bytes], folder: Path) -> Config:
    """A state that knows ten made-up classes of these images; how well does not matter here."""
    from monitor.config import load
    from monitor.jobs.fit_detector import fit

    settings = {
        "backbone.name": args.backbone,
        "backbone.engine": args.runtime,
        "backbone.precision": args.precision,
        "backbone.size": args.size,
        "state.dir": folder / "state",
    }
    (folder / "empty.yaml").touch()
    overrides = [f"{key}={value}" for key, value in settings.items()]
    config = load(folder / "empty.yaml", overrides=overrides, environ={}).config
    classes = [f"class-{number % 10}" for number in range(len(images))]
    fit(config, [write_feed(folder / "labelled.parquet", images, classes)])
    return config


def report(times: dict[str, list[Timing]], images: int) -> None:
    print(f"{'':26}{'images/s':>10}{'images per CPU second':>24}")
    for name, found in times.items():
        rate, cpu = (images / statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:26}{rate:10.1f}{cpu:24.1f}")

    def ratio(ours: str, other: str, column: int) -> float:
        """How many times the one is faster than the other, turn by turn."""
        pairs = zip(times[other], times[ours], strict=True)
        return statistics.median(theirs[column] / mine[column] for theirs, mine in pairs)

    for ours in (EMBEDDING, SCORING):
        for other in (ENGINE, IN_PROCESS, *(name for name in times if name.startswith("plain"))):
            clock, cpu = ratio(ours, other, 0), ratio(ours, other, 1)
            print(f"{ours} against {other}: {clock:.2f} by the clock, {cpu:.2f} by CPU time")


#: As many as ten classes need to be fitted and calibrated.
LEAST_IMAGES = 100


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="embedded")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--size", default="auto", help="pixels a side that the backbone sees")
    parser.add_argument("--data", type=Path, help="Parquet file with a column 'image'")
    parser.add_argument("--frame", type=int, help="make them JPEGs of so many pixels a side")
    parser.add_argument("--images", type=int, default=1024, help="images in each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve-plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.images < LEAST_IMAGES:
        parser.error(f"--images: at least {LEAST_IMAGES}, of which ten classes are made")
    return given


def warn_of_neighbours() -> None:
    from monitor.backbones.engine import available_threads

    load, threads = os.getloadavg()[0], available_threads()
    # Our own work accounts for as many as there are threads.
    if threads > 1 and load > threads + 1:
        print(
            f"NOT TO BE TRUSTED: load {load:.1f} with {threads} threads; see the top of this file"
        )


def main() -> None:
    args = arguments()
    if args.serve_plain:
        serve_plain(args)
        return
    from monitor.jobs.from_config import as_fitted, open_engine_of, open_existing_store

    images = encoded_images(args.data, args.frame, args.images)
    with tempfile.TemporaryDirectory() as temporary, plain_turns(len(images)) as turns:
        config = fitted(args, images[:256], Path(temporary))
        # As `score` will: with the precision and the size that fit has chosen.
        with open_existing_store(config) as store:
            config = as_fitted(config, store)
        with open_engine_of(config) as engine:
            ours = our_turns(engine, config, images, Path(temporary))
            for turn in ours.values():
                turn()
            turns = {**turns, **ours}
            times: dict[str, list[Timing]] = {name: [] for name in turns}
            for _ in range(args.rounds):
                for name, turn in turns.items():
                    times[name].append(turn())
            size = engine.backbone.preprocessing.size
            print(f"{args.backbone} on {engine.runtime}, {engine.fingerprint.precision}, ", end="")
            print(f"{size} px, ", end="")
            print(f"{engine.workers} workers, {len(images)} images a turn, {args.rounds} turns")
    warn_of_neighbours()
    report(times, len(images))


if __name__ == "__main__":
    main()
