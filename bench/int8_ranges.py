"""The table of int8 ranges: python -m bench.int8_ranges [--data FILE.parquet ...]

Runs images through the embedded backbone in float32, at 224 and at 160 px, and prints for each
convolution the end below which all but one in 2,000 of the values lie that it sees in a request:
the largest over all requests. A minus says that there are values on both sides of zero. Scenes of
our own are always among the images. The result belongs into `monitor/backbones/int8_ranges.py`,
under the hash that is printed; a table in use is never changed, for fingerprints hold its hash.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pyarrow.parquet as pq
from openvino import opset13 as ops

from bench.drawn import write_scenes
from monitor.backbones.backbone import Backbone, load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.openvino_graph import from_bytes
from monitor.backbones.openvino_int8 import convolutions, seen_by
from monitor.images.decode import Decoded, decode

SIZES = (224, 160)
SHARE = 0.9995
#: Of the values of a request, one in so many: they are millions.
EVERY = 7
IN_REQUEST = 2


def seen(backbone: Backbone, images: list[bytes]) -> np.ndarray[Any, Any]:
    """For each request and convolution the lower and the upper end."""
    model = from_bytes(backbone, IN_REQUEST, "float32", None)
    outputs = [seen_by(one).get_source_output() for one in convolutions(model)]
    watched = ov.Model([ops.result(output) for output in outputs], model.get_parameters())
    request = (
        ov.Core()
        .compile_model(watched, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        .create_infer_request()
    )
    recipe = backbone.preprocessing
    decoded = [decode(image, min_side=recipe.decode_side) for image in images]
    ready = recipe.apply_all([one.pixels for one in decoded if isinstance(one, Decoded)])
    found = []
    for first in range(0, len(ready) - IN_REQUEST + 1, IN_REQUEST):
        request.infer({0: ready[first : first + IN_REQUEST]})
        found.append(
            [
                np.quantile(tensor.data.ravel()[::EVERY], (1 - SHARE, SHARE))
                for tensor in request.output_tensors
            ]
        )
    return np.asarray(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="Parquet of images")
    parser.add_argument("--images", type=int, default=96, help="of each file")
    given = parser.parse_args()
    images: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        scenes = write_scenes(Path(folder) / "scenes.parquet", given.images)
        for file in (scenes, *given.data):
            batch = next(pq.ParquetFile(file).iter_batches(given.images, columns=["image"]))
            images += batch.column(0).to_pylist()
    backbones = [load_backbone(BackboneSpec("embedded", size=size)) for size in SIZES]
    ends = np.concatenate([seen(backbone, images) for backbone in backbones])
    lowest, highest = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
    table = [
        round(float(-max(-low, high) if low < 0 else high), 1)
        for low, high in zip(lowest, highest, strict=True)
    ]
    print(backbones[0].weights)
    print(", ".join(map(str, table)))


if __name__ == "__main__":
    main()
