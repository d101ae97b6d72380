"""The graph of a backbone with its convolutions in 8-bit integers.

Weights have a scale for each output channel, what a convolution sees has one in all. Sums between
blocks and the pooled feature stay in float32. OpenVINO runs a convolution in integers where both of
its inputs pass a node that rounds them to 256 values; such nodes are all that is added here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from openvino import opset13 as ops
from openvino import passes

from monitor.backbones.errors import EngineUnavailable
from monitor.backbones.int8_ranges import Ranges

_CONVOLUTIONS = ("Convolution", "GroupConvolution")


def convolutions(model: Any) -> list[Any]:
    """In the order in which an image passes them."""
    return [node for node in model.get_ordered_ops() if node.get_type_name() in _CONVOLUTIONS]


def seen_by(convolution: Any) -> Any:
    """The input through which an image comes, before any padding: zeros stay zeros."""
    port = convolution.input(0)
    while port.get_source_output().get_node().get_type_name() == "Pad":
        port = port.get_source_output().get_node().input(0)
    return port


def quantise(model: Any, ranges: Ranges) -> None:
    """Round what the convolutions see and their weights to 8 bits, where a range is given."""
    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    manager.run_passes(model)
    found = convolutions(model)
    if len(found) != len(ranges):
        raise EngineUnavailable(
            f"int8 was prepared for a network of {len(ranges)} convolutions, but this one has "
            f"{len(found)}; choose precision float32"
        )
    for convolution, range_ in zip(found, ranges, strict=True):
        if range_:
            _round_weights(convolution)
            _round_seen(convolution, range_)
    model.validate_nodes_and_infer_types()


def _round_weights(convolution: Any) -> None:
    source = convolution.input(1).get_source_output()
    weights: NDArray[np.float32] = source.get_node().data
    # Of GroupConvolution: groups, outputs of a group, inputs, height, width.
    outputs = weights.ndim - 3
    within = tuple(range(outputs, weights.ndim))
    ends = np.maximum(np.abs(weights).max(axis=within, keepdims=True), 1e-8)
    _replace(convolution.input(1), source, -ends, ends, levels=255)


def _round_seen(convolution: Any, range_: float) -> None:
    port = seen_by(convolution)
    end = np.full((1, 1, 1, 1), abs(range_), np.float32)
    # Of the 256 signed values one more is negative, so that zero is one of them.
    start = -end * np.float32(128 / 127) if range_ < 0 else 0 * end
    _replace(port, port.get_source_output(), start, end, levels=256)


def _replace(port: Any, source: Any, start: Any, end: Any, levels: int) -> None:
    low, high = ops.constant(start), ops.constant(end)
    rounded = ops.fake_quantize(source, low, high, low, high, levels)
    port.replace_source_output(rounded.output(0))


def computed_in_int8(compiled: Any) -> int:
    """Convolutions of a compiled model that take 8-bit integers."""
    kinds = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        told = node.get_rt_info()
        if told["layerType"].astype(str) == "Convolution":
            kinds.append(told["runtimePrecision"].astype(str))
    return sum(kind in ("u8", "i8") for kind in kinds)
