"""What precision and input size cost: python -m bench.precision_and_size [--data FILE.parquet]

Images per second of processor time, that of the decoders included, in each way that `conclad fit`
may choose, turn by turn in one run; the medians are compared with float32 at the size the backbone
was trained with. Without --data, drawn scenes of 64 px. What each way is worth says
`conclad evaluate` with --precision and --input-size.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq

from bench.drawn import write_scenes
from bench.process_tree import processor_seconds
from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.embed_images import embed_part
from monitor.backbones.engine import Engine, Precision, cheaper_precisions, open_engine

SIZES = (224, 192, 160)


def seconds_an_image(engine: Engine, images: list[bytes]) -> float:
    before = processor_seconds()
    for first in range(0, len(images), engine.batch):
        embed_part(list(enumerate(images[first : first + engine.batch])), engine)
    return (processor_seconds() - before) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="Parquet file with a column 'image'")
    parser.add_argument("--images", type=int, default=256, help="in each turn")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = given.data or write_scenes(Path(temporary) / "scenes.parquet", given.images)
        batch = next(pq.ParquetFile(data).iter_batches(given.images, columns=["image"]))
        images: list[bytes] = batch.column(0).to_pylist()
    own = load_backbone(BackboneSpec("embedded"))
    precisions: list[Precision] = ["float32", *reversed(cheaper_precisions("auto", own))]
    engines = {
        (precision, size): open_engine(
            load_backbone(BackboneSpec("embedded", size=size)), precision=precision, threads=1
        )
        for precision, size in product(precisions, SIZES)
    }
    times: dict[tuple[str, int], list[float]] = {way: [] for way in engines}
    for turn in range(given.rounds + 1):
        for way, engine in engines.items():
            used = seconds_an_image(engine, images)
            if turn:  # the first warms up
                times[way].append(used)
    full = times["float32", SIZES[0]]
    for (precision, size), mine in times.items():
        ratio = statistics.median(other / one for other, one in zip(full, mine, strict=True))
        rate = 1 / statistics.median(mine)
        print(f"{precision} at {size} px: {rate:.0f} images a core-second, {ratio:.2f} times")


if __name__ == "__main__":
    main()
