"""What hostile images and Parquet files do to an embedder: outcome, time and memory of each.

    python -m bench.bombs [--backbone tiny] [--seconds 5] [--gigabytes 1] [--only "png"]

Each image of `tests.feed.bombs` is put among 31 sound ones; these must all be embedded, the
one must be embedded or rejected with a reason in the time given, and the embedder with all its
decoders must stay within so many gigabytes above what it takes when idle. Times are of the clock:
on a machine that others use too they are too long.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from monitor.images.decoder_process import FAULTS

os.environ[FAULTS] = "1"

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.embed_images import embed_part
from monitor.backbones.engine import Engine, open_engine
from monitor.feed.batch_plan import plan_batches
from monitor.feed.contract import Columns
from monitor.feed.feed_storage import FeedStorage
from monitor.pipeline.embed_batch import BatchEmbedder
from tests.feed import bombs
from tests.feed.make import encoded, picture

GOOD = [encoded(picture(64, 64, seed=seed)) for seed in range(31)]
FILES = {"parquet dictionary": bombs.dictionary_bomb, "parquet pages": bombs.page_bomb}


def memory() -> int:
    """Bytes of this process and of all below it; what they share counts once."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().split(")")[1].split()[1]
                )
            except OSError:
                continue
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(map(_proportional, ours))


def _proportional(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


@contextmanager
def peak() -> Iterator[list[int]]:
    """The most memory while the block runs."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def embed_image(engine: Engine, data: bytes) -> tuple[str, bool]:
    """What became of an image among sound ones, and whether those passed."""
    part = [*enumerate(GOOD[:16]), (99, data), *enumerate(GOOD[16:], 16)]
    found = embed_part(part, engine)
    passed = set(range(31)) <= set(found.keys)
    said = [str(why) for key, why in found.rejected if key == 99]
    return (said or ["embedded"])[0], passed


def embed_file(engine: Engine, write: Callable[[Path], None]) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "a.parquet"))
        return _embed_folder(engine, folder)


def _embed_folder(engine: Engine, folder: str) -> tuple[str, bool]:
    source = FeedStorage.at(folder)
    [file] = source.list()
    outcomes: Counter[str] = Counter()
    rows = 0
    with closing(BatchEmbedder(source, Columns(), engine)) as embedder:
        for planned in plan_batches(source, file, rows_per_batch=32):
            batch = embedder.embed(planned)
            rows += planned.rows
            outcomes.update(str(row.reason) for row in batch.rejected)
            outcomes.update(["embedded"] * len(batch.rows))
    said = ", ".join(f"{number} {what}" for what, number in outcomes.items())
    return f"{file.size} bytes on disk: {said}", sum(outcomes.values()) == rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backbone", default="tiny")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    failures = 0
    with open_engine(load_backbone(BackboneSpec.parse(args.backbone))) as engine:
        embed_image(engine, GOOD[0])
        idle = memory()
        print(f"{args.backbone}: idle with {idle / 1e6:.0f} MB")
        for name in [*bombs.IMAGES, *FILES]:
            if args.only not in name:
                continue
            data = bombs.IMAGES[name]() if name in bombs.IMAGES else b""
            with peak() as most:
                began = time.monotonic()
                outcome, passed = (
                    embed_image(engine, data) if data else embed_file(engine, FILES[name])
                )
                seconds = time.monotonic() - began
            above = (most[0] - idle) / 1e9
            good = passed and above <= args.gigabytes
            in_time = seconds <= args.seconds or name in FILES
            failures += not (good and in_time)
            mark = "" if good and in_time else " <-- NOT MET"
            print(f"{name:28}{seconds:6.1f} s {above:6.2f} GB  {outcome[:90]}{mark}", flush=True)
    print(f"{failures} not met")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
