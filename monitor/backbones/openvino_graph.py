"""A backbone as an OpenVINO graph, translated once and kept in the cache.

Translating a network takes several seconds, reading the result back a tenth of one; every process
that embeds would pay it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from monitor.backbones.backbone import Backbone
from monitor.backbones.backbone_spec import cache_root
from monitor.backbones.errors import EngineUnavailable
from monitor.backbones.int8_ranges import Ranges, int8_ranges

# The translator reports each use to its makers over the network. A monitor must not; without
# this module it falls back to a stub of its own that keeps silent.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov  # noqa: E402

from monitor.backbones.openvino_int8 import computed_in_int8, quantise  # noqa: E402

# What int8 leaves is computed in float32, on every processor.
_HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


def compiled(
    backbone: Backbone, images: int, precision: str, threads: int, cache: Path | None
) -> Any:
    """Ready to run on so many cores, each by itself, for requests of so many images."""
    options = {
        "INFERENCE_PRECISION_HINT": _HINTS[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": threads,
    }
    model = ov.Core().compile_model(from_bytes(backbone, images, precision, cache), "CPU", options)
    used = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if used != _HINTS[precision]:
        raise EngineUnavailable(
            f"OpenVINO computes in {used} on this processor, not in {precision}: its features "
            "would not be what they are called; choose precision float32, and fit again"
        )
    if precision == "int8":
        _check_integers(model, backbone)
    return model


def _check_integers(model: Any, backbone: Backbone) -> None:
    """OpenVINO goes back to float32 without a word where it has no kernel."""
    wanted = sum(end != 0 for end in int8_ranges(backbone.weights) or ())
    found = computed_in_int8(model)
    if found != wanted:
        raise EngineUnavailable(
            f"OpenVINO computes {found} of {wanted} convolutions in int8 on this processor: "
            "features would not be what they are called; choose precision float32, and fit again"
        )


def from_bytes(backbone: Backbone, images: int, precision: str, cache: Path | None) -> Any:
    """The model for RGB images as bytes; the normalisation is part of it."""
    model = _network(backbone, cache_root(cache) / "openvino", precision)
    recipe = backbone.preprocessing
    model.reshape([images, 3, recipe.size, recipe.size])
    steps = ov.preprocess.PrePostProcessor(model)
    steps.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
    steps.input().model().set_layout(ov.Layout("NCHW"))
    prepare = steps.input().preprocess().convert_element_type(ov.Type.f32)
    prepare.mean([255 * value for value in recipe.mean])
    prepare.scale([255 * value for value in recipe.std])
    return steps.build()


def _network(backbone: Backbone, folder: Path, precision: str) -> Any:
    ranges = int8_ranges(backbone.weights) if precision == "int8" else None
    kept = folder / _key(backbone, ranges)
    if kept.is_dir():
        return ov.Core().read_model(kept / "graph.xml", kept / "graph.bin")
    if ranges is None:
        model = _translated(backbone)
    else:
        model = _network(backbone, folder, "float32")
        quantise(model, ranges)
    _keep(model, kept)
    return model


def _translated(backbone: Backbone) -> Any:
    size = backbone.preprocessing.size
    with warnings.catch_warnings():
        # Tracing warns of every shape that becomes a constant; here they all are constant.
        warnings.simplefilter("ignore")
        return ov.convert_model(
            backbone.network, example_input=torch.zeros(2, 3, size, size), input=[-1, 3, size, size]
        )


def _keep(model: Any, folder: Path) -> None:
    """Both files appear together or not at all; whoever comes second finds them there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as part:
        whole = Path(part) / "whole"
        whole.mkdir()
        # Half precision would be OpenVINO's default here, and other features.
        ov.save_model(model, whole / "graph.xml", compress_to_fp16=False)
        for file in whole.iterdir():
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        with suppress(OSError):
            whole.rename(folder)


def _key(backbone: Backbone, ranges: Ranges | None) -> str:
    """Whatever could change the graph: the network, its weights, and who translates."""
    facts = [
        backbone.spec.label,
        backbone.weights,
        backbone.blocks,
        backbone.preprocessing.size,
        version("timm"),
        torch.__version__,
        ov.get_version(),
        *([] if ranges is None else [ranges]),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
