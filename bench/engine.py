"""How fast images become features: the plain loop, the engine alone, and decoding beside it.

    python bench/engine.py [--backbone embedded] [--data FILE.parquet] [--frame 1024]

All four ways take turns in one run, and the medians are compared, so that whatever else the
machine does falls on each alike. The plain loops run in a process of their own, with the
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
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

PLAIN_BATCHES = (1, 32)


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
    from timm.data.transforms_factory import create_transform

    from monitor.feed.backbone import load_backbone
    from monitor.feed.spec import BackboneSpec

    loaded = load_backbone(BackboneSpec.parse(backbone))
    recipe = loaded.preprocessing
    transform = create_transform(
        input_size=(3, recipe.size, recipe.size),
        interpolation=recipe.interpolation,
        mean=recipe.mean,
        std=recipe.std,
        crop_pct=recipe.size / recipe.edge,
    )

    def run(batch: int) -> object:
        features = []
        with torch.inference_mode():
            for first in range(0, len(images), batch):
                part = images[first : first + batch]
                pixels = [transform(Image.open(io.BytesIO(i)).convert("RGB")) for i in part]
                features.append(loaded.network(torch.stack(pixels)))
        return features

    return {batch: lambda batch=batch: run(batch) for batch in PLAIN_BATCHES}  # type: ignore[misc]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and seconds of processor time in all threads."""
    clock, used = time.perf_counter(), _cpu()
    work()
    return time.perf_counter() - clock, _cpu() - used


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def serve_plain(args: argparse.Namespace) -> None:
    """The child: runs a plain loop whenever its parent writes a batch size."""
    loops = plain_loop(args.backbone, encoded_images(args.data, args.frame, args.images))
    for loop in loops.values():
        loop()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(loops[int(line)])), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="embedded")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--data", type=Path, help="Parquet file with a column 'image'")
    parser.add_argument("--frame", type=int, help="make them JPEGs of so many pixels a side")
    parser.add_argument("--images", type=int, default=128, help="images in each turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve-plain", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_plain:
        serve_plain(args)
        return

    from monitor.feed.backbone import load_backbone
    from monitor.feed.embedding import embed_images
    from monitor.feed.engine import available_threads, open_engine
    from monitor.feed.images import Decoded, decode
    from monitor.feed.spec import BackboneSpec

    images = encoded_images(args.data, args.frame, args.images)
    engine = open_engine(
        load_backbone(BackboneSpec.parse(args.backbone)),
        runtime=args.runtime,
        precision=args.precision,
    )
    recipe = engine.backbone.preprocessing
    decoded = [decode(image, min_side=recipe.decode_side) for image in images]
    ready = np.stack([recipe.apply(d.pixels) for d in decoded if isinstance(d, Decoded)])

    child = subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "--serve-plain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    asked, answers = child.stdin, child.stdout

    def plain(batch: int) -> tuple[float, float]:
        print(batch, file=asked, flush=True)
        clock, used = json.loads(answers.readline())
        return clock, used

    turns: dict[str, Callable[[], tuple[float, float]]] = {
        **{f"plain loop, batch {b}": lambda b=b: plain(b) for b in PLAIN_BATCHES},  # type: ignore[misc]
        "engine, decoded before": lambda: timed(lambda: engine.embed(ready)),
        "decode and engine": lambda: timed(lambda: list(embed_images(enumerate(images), engine))),
    }
    for name in list(turns)[len(PLAIN_BATCHES) :]:
        turns[name]()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(args.rounds):
        for name, turn in turns.items():
            times[name].append(turn())
    child.stdin.close()
    child.wait()
    engine.close()

    print(f"{args.backbone} on {engine.runtime}, {engine.fingerprint.precision}, ", end="")
    print(f"{engine.workers} workers, {len(images)} images a turn, {args.rounds} turns each")
    load, threads = os.getloadavg()[0], available_threads()
    # Our own work accounts for as many as there are threads.
    if threads > 1 and load > threads + 1:
        print(
            f"NOT TO BE TRUSTED: load {load:.1f} with {threads} threads; see the top of this file"
        )
    print(f"{'':26}{'images/s':>10}{'images per CPU second':>24}")
    for name, found in times.items():
        rate, cpu = (len(images) / statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:26}{rate:10.1f}{cpu:24.1f}")

    def ratio(slow: str, column: int) -> float:
        """How many times the last way is faster than another, turn by turn."""
        pairs = zip(times[slow], times["decode and engine"], strict=True)
        return statistics.median(other[column] / ours[column] for other, ours in pairs)

    for name in list(times)[:-1]:
        print(f"decode and engine against {name}: {ratio(name, 0):.2f} by the clock, ", end="")
        print(f"{ratio(name, 1):.2f} by CPU time")


if __name__ == "__main__":
    main()
