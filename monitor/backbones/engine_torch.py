"""torch: on NVIDIA GPUs the engine of choice, on CPUs the one that is always there."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor, nn

from monitor.backbones.backbone import Backbone
from monitor.backbones.engine import Engine, Features, Images, available_threads
from monitor.images.decode import Decoding

_CPU_BATCH = 32
"""Above it torch gains nothing on a CPU, below it the cost of each call begins to show."""

_CUDA_BATCH = 128
"""Fills a data-centre GPU with a small backbone; a ViT-S takes about 1 GB of its memory."""

_CUDA_STREAMS = 2
"""One copies its images to the GPU while the other computes; a third has nothing left to do."""

_CUDA_WORKERS = 16
"""One core decodes some 300 camera frames a second, a GPU embeds thousands."""

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class _FromBytes(nn.Module):
    """The network behind its normalisation, so that images cross to a GPU as bytes."""

    mean: Tensor
    scale: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        recipe = backbone.preprocessing
        # A copy, because moving a network to another device or layout moves it for everybody.
        self.network = copy.deepcopy(backbone.network).to(memory_format=torch.channels_last)
        self.register_buffer("mean", 255 * torch.tensor(recipe.mean).view(1, 3, 1, 1))
        self.register_buffer("scale", 1 / (255 * torch.tensor(recipe.std).view(1, 3, 1, 1)))

    def forward(self, images: Tensor) -> Tensor:
        # n × height × width × 3 in memory already is what torch calls channels_last.
        pixels = images.permute(0, 3, 1, 2).float()
        features: Tensor = self.network((pixels - self.mean) * self.scale)
        return features.float()


class CpuEngine(Engine):
    """torch on the CPU, channels_last; sets torch's number of threads for the whole process."""

    runtime = "torch"
    batch = _CPU_BATCH

    def __init__(
        self, backbone: Backbone, precision: str, decoding: Decoding, threads: int
    ) -> None:
        # In half the digits each library rounds elsewhere: not what OpenVINO calls bfloat16.
        super().__init__(
            backbone, precision if precision == "float32" else f"{precision}-torch", decoding
        )
        torch.set_num_threads(threads)
        self.workers = threads + 1
        self._module = _FromBytes(backbone)
        self._precision = precision

    def _run(self, images: Images) -> Features:
        with torch.inference_mode(), _mixed("cpu", self._precision):
            parts = [
                self._module(_tensor(images[first : first + _CPU_BATCH])).numpy()
                for first in range(0, len(images), _CPU_BATCH)
            ]
        return np.concatenate(parts)


class CudaEngine(Engine):
    """torch on one GPU: mixed precision, channels_last, pinned memory, copies beside compute.

    Switches TF32 off for the whole process.

    Threads that call `embed` at the same time share the streams, so while one waits for its
    features another's images are on their way, and the rest decode.
    """

    runtime = "cuda"
    batch = _CUDA_BATCH

    def __init__(self, backbone: Backbone, precision: str, decoding: Decoding) -> None:
        super().__init__(backbone, precision, decoding)
        # TF32 has 10 bits of mantissa: without this a GPU would call it float32.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        self._module = _FromBytes(backbone).to(torch.device("cuda"))
        self.workers = min(available_threads(), _CUDA_WORKERS)
        self._precision = precision
        # The weights were copied on the default stream; the others must not start before that.
        torch.cuda.synchronize()
        self._streams: SimpleQueue[torch.cuda.Stream] = SimpleQueue()
        for _ in range(_CUDA_STREAMS):
            self._streams.put(torch.cuda.Stream())  # type: ignore[no-untyped-call]

    def _run(self, images: Images) -> Features:
        parts = [
            self._part(images[first : first + _CUDA_BATCH])
            for first in range(0, len(images), _CUDA_BATCH)
        ]
        return np.concatenate(parts)

    def _part(self, images: Images) -> Features:
        pinned = _tensor(images).pin_memory()
        stream = self._streams.get()
        try:
            mixed = _mixed("cuda", self._precision)
            with torch.cuda.stream(stream), torch.inference_mode(), mixed:
                features: Features = (
                    self._module(pinned.to("cuda", non_blocking=True)).cpu().numpy()
                )
            return features
        finally:
            self._streams.put(stream)


def _tensor(images: Images) -> Tensor:
    """A tensor over the same memory, or over a copy of what torch cannot take as it lies.

    It warns of read-only arrays and refuses those that run backwards.
    """
    return torch.from_numpy(np.require(images, requirements=("C", "W")))


def _mixed(device: str, precision: str) -> AbstractContextManager[object]:
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device, dtype=_TYPES[precision])
