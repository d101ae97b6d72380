"""What hostile images and Parquet files do to an embedder: outcome, time and memory of each.

    python -m bench.bombs [--backbone tiny] [--seconds 5] [--gigabytes 1] [--only "png"]

Each image of `tests.feed.bombs` is put among 31 sound ones; these must all be embedded, the
one must be embedded or rejected with a reason in the time given. Files are read batch by batch, all
of their rows in the time given. The embedder with all its decoders runs in 2 GB, which the kernel
enforces where a control group can be made, and must stay within so many gigabytes above what it
takes when idle.

Times of the clock are what counts; on a machine that others use too they are too long, and the
second column, processor time of the embedder and its decoders, says what they would be.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from bench.memory_limit import is_limited, peak, run_limited, used
from bench.process_tree import processor_seconds
from monitor.images.decoder_process import FAULTS

os.environ[FAULTS] = "1"

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.embed_images import embed_part
from monitor.backbones.engine import Engine, open_engine
from monitor.feed.batch_plan import plan_batches
from monitor.feed.feed_storage import FeedStorage
from monitor.feed.input_contract import Columns
from monitor.pipeline.worker_tasks import BatchEmbedder
from tests.feed import bombs
from tests.feed.make import encoded, picture

LIMIT = 2 << 30
"""What the whole embedder may take."""

GOOD = [encoded(picture(64, 64, seed=seed)) for seed in range(31)]
FILES: dict[str, Callable[[Path], None]] = {
    "parquet dictionary": bombs.dictionary_bomb,
    "parquet dictionaries": lambda path: bombs.dictionary_bomb(path, megabytes=4, groups=32),
    "parquet pages": lambda path: bombs.page_bomb(path, megabytes=32, rows=12),
    "parquet row groups": bombs.many_groups,
}


def embed_image(engine: Engine, data: bytes) -> tuple[str, bool]:
    """What became of an image among sound ones, and whether those passed."""
    part = [*enumerate(GOOD[:16]), (99, data), *enumerate(GOOD[16:], 16)]
    found = embed_part(part, engine)
    passed = set(range(31)) <= set(found.keys)
    said = [str(why) for key, why in found.rejected if key == 99]
    return (said or ["embedded"])[0], passed


def embed_folder(engine: Engine, folder: str) -> tuple[str, bool]:
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
    if not is_limited():
        return run_limited("bench.bombs", sys.argv[1:], LIMIT)
    failures = 0
    with open_engine(load_backbone(BackboneSpec.parse(args.backbone))) as engine:
        embed_image(engine, GOOD[0])
        idle = used()
        print(f"{args.backbone}: idle with {idle / 1e6:.0f} MB")
        print(f"{'':28}{'clock':>8}{'CPU':>8}{'above idle':>13}")
        for name in [*bombs.IMAGES, *FILES]:
            if args.only not in name:
                continue
            data = bombs.IMAGES[name]() if name in bombs.IMAGES else b""
            with tempfile.TemporaryDirectory() as folder:
                if not data:
                    FILES[name](Path(folder, "a.parquet"))
                    pa.default_memory_pool().release_unused()
                with peak() as memory:
                    began, worked = time.monotonic(), processor_seconds()
                    outcome, passed = (
                        embed_image(engine, data) if data else embed_folder(engine, folder)
                    )
                    seconds, worked = time.monotonic() - began, processor_seconds() - worked
            above = max(0.0, (memory.most - idle) / 1e9)
            missed = [] if passed else ["neighbours"]
            missed += ["time"] if seconds > args.seconds else []
            missed += ["memory"] if above > args.gigabytes else []
            failures += bool(missed)
            mark = f" <-- NOT MET: {', '.join(missed)}" if missed else ""
            figures = f"{seconds:6.1f} s{worked:6.1f} s{above:10.2f} GB"
            print(f"{name:28}{figures}  {outcome[:90]}{mark}", flush=True)
    print(f"{failures} not met")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
