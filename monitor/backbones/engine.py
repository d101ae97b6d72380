"""One interface over everything that can run a backbone, the choice among them, and torch.

torch is the engine of choice on NVIDIA GPUs, and on CPUs the one that is always there.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from monitor.backbones.backbone import Backbone
from monitor.backbones.device_errors import device_problem
from monitor.backbones.errors import (
    DeviceFailed,
    DeviceFull,
    EngineFailure,
    EngineInput,
    EngineUnavailable,
)
from monitor.backbones.int8_ranges import int8_ranges
from monitor.backbones.malloc import keep_freed_memory
from monitor.images.decode import Decoding

Runtime = Literal["auto", "cuda", "openvino", "torch"]
Precision = Literal["auto", "float32", "bfloat16", "int8", "float16"]

Images = NDArray[np.uint8]
Features = NDArray[np.float32]


#: Instructions that multiply bfloat16; others emulate it, and gain nothing.
_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})

#: Instructions that add products of 8-bit integers exactly; others round, and gain little.
_INT8 = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})

#: So many images without one finite feature are the engine's fault, not theirs.
ALL_BROKEN = 4

_CPU_BATCH = 32
"""Above it torch gains nothing on a CPU, below it the cost of each call begins to show."""

_CUDA_BATCH = 128
"""Fills a data-centre GPU with a small backbone; a ViT-S takes about 1 GB of its memory."""

_CUDA_STREAMS = 2
"""One copies its images to the GPU while the other computes; a third has nothing left to do."""

_CUDA_WORKERS = 16
"""One core decodes some 300 camera frames a second, a GPU embeds thousands."""

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Engine(ABC):
    """Runs a backbone over images that are already resized and cropped.

    `embed` may be called from several threads at once. The feature of an image does not depend
    on its neighbours in the batch (beyond the last bits of a float on the torch engines).

    >>> from monitor.backbones.backbone import load_backbone
    >>> from monitor.backbones.backbone_spec import BackboneSpec
    >>> with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch") as engine:
    ...     engine.embed(np.zeros((2, 32, 32, 3), np.uint8)).shape
    (2, 64)
    """

    runtime: str
    """What runs it: `cuda`, `openvino` or `torch`."""
    batch: int
    """Images in one call that suit it."""
    workers: int
    """Threads that should decode and call `embed`: while one waits for its features, others
    decode. On a CPU one more than cores, so that no core is ever without work."""

    def __init__(self, backbone: Backbone, precision: str, decoding: Decoding) -> None:
        self.backbone = backbone
        self.decoding = decoding
        self.fingerprint = backbone.fingerprint(precision, decoding)

    def embed(self, images: Images) -> Features:
        """Features (n × dimension) of RGB images (n × size × size × 3, uint8).

        An image for which the network gives no finite feature has a row of NaN.
        """
        size = self.backbone.preprocessing.size
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (size, size, 3):
            raise EngineInput(
                f"backbone {self.fingerprint.backbone!r} takes uint8 images of n × {size} × {size} "
                f"× 3, not {images.dtype} of {' × '.join(map(str, images.shape))}; prepare them "
                "with its preprocessing"
            )
        if not len(images):
            return np.empty((0, self.fingerprint.dimension), np.float32)
        features = self._run_or_halve(images)
        finite = np.isfinite(features).all(axis=1)
        if len(images) >= ALL_BROKEN and not finite.any():
            raise EngineFailure(
                f"backbone {self.fingerprint.backbone!r} gave no finite feature for any of "
                f"{len(images)} images in {self.fingerprint.precision}; choose precision float32"
            )
        features[~finite] = np.nan
        return features

    def _run_or_halve(self, images: Images) -> Features:
        """With less at a time where memory is short.

        Raises DeviceFull where not even one image fits, and DeviceFailed where this process
        can no longer use its device.
        """
        try:
            return self._run(images)
        except (RuntimeError, MemoryError, EngineFailure) as error:
            problem = device_problem(error.__cause__ or error)
            if problem is None:
                raise
            words = " ".join(str(error).split())[:300]
            if problem is DeviceFailed:
                raise DeviceFailed(f"the {self.runtime} device failed ({words})") from error
            if len(images) == 1:
                raise DeviceFull(
                    f"the {self.runtime} device has no memory left for a single image ({words}); "
                    "see who else uses it, or choose a smaller backbone"
                ) from error
        # Outside of the handler: the failed call's tensors are kept alive by its traceback.
        self._free_memory()
        half = len(images) // 2
        parts = [self._run_or_halve(part) for part in (images[:half], images[half:])]
        return np.concatenate(parts)

    def _free_memory(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @abstractmethod
    def _run(self, images: Images) -> Features:
        """What `embed` does, for at least one image of the right kind."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing that outlives them
        """Give back what the engine holds; it cannot be used afterwards."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def open_engine(
    backbone: Backbone,
    *,
    runtime: Runtime = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    decoding: Decoding | None = None,
    cache: Path | None = None,
) -> Engine:
    """The fastest engine that is right on this machine, or the one that was asked for.

    `auto` takes CUDA if there is a GPU, else OpenVINO if it is installed, else torch. Precision
    `auto` is float32 on a CPU, where only a look at labelled images can allow less (see
    `monitor.jobs.input_choice`); on a GPU it is float16, whose error is a tenth of bfloat16's.
    Features of different precision do not mix, which the fingerprint sees to. `threads` is for
    CPUs; by default as many as this process may use. `cache` is where translated networks are
    kept; see `cache_root`.
    """
    if runtime not in get_args(Runtime) or precision not in get_args(Precision):
        raise EngineUnavailable(
            f"no engine {runtime!r} with precision {precision!r}; engines are "
            f"{', '.join(get_args(Runtime))}, precisions {', '.join(get_args(Precision))}"
        )
    chosen = _runtime(runtime)
    if precision == "auto":
        precision = "float16" if chosen == "cuda" else "float32"
    if precision == "float16" and chosen != "cuda":
        raise EngineUnavailable(
            "float16 is emulated on CPUs and many times slower than float32; choose float32, or "
            "bfloat16 where the CPU has it"
        )
    if precision == "int8":
        _check_int8(backbone, chosen)
    workers = threads or available_threads()
    decoding = decoding or Decoding()
    if chosen == "openvino":
        # Imported late: it costs a second or more.
        from monitor.backbones.engine_openvino import OpenVinoEngine

        return OpenVinoEngine(backbone, precision, decoding, workers, cache)
    if chosen == "cuda":
        return CudaEngine(backbone, precision, decoding)
    # OpenVINO keeps its own memory and gains nothing from this; torch gains half.
    keep_freed_memory()
    return CpuEngine(backbone, precision, decoding, workers)


def is_on_gpu(runtime: Runtime) -> bool:
    """Whether this choice of engine means a GPU here."""
    return _runtime(runtime) == "cuda"


def has_fast_bfloat16(runtime: Runtime) -> bool:
    """Whether bfloat16 is worth a look: on OpenVINO, with a processor that computes in it."""
    return _runtime(runtime) == "openvino" and not _BFLOAT16.isdisjoint(_processor_flags())


def cheaper_precisions(runtime: Runtime, backbone: Backbone) -> list[Precision]:
    """Those that are cheaper than float32 on this processor, the cheapest first."""
    found: list[Precision] = []
    if has_fast_int8(runtime, backbone):
        found.append("int8")
    if has_fast_bfloat16(runtime):
        found.append("bfloat16")
    return found


def has_fast_int8(runtime: Runtime, backbone: Backbone) -> bool:
    """Whether int8 is worth a look: as for bfloat16, with a backbone of known ranges."""
    return (
        _runtime(runtime) == "openvino"
        and int8_ranges(backbone.weights) is not None
        and not _INT8.isdisjoint(_processor_flags())
    )


def _check_int8(backbone: Backbone, runtime: str) -> None:
    if int8_ranges(backbone.weights) is None:
        raise EngineUnavailable(
            f"backbone {str(backbone.spec)!r} is not prepared for int8, only 'embedded' with its "
            "own weights is; choose precision float32, or bfloat16 where the CPU has it"
        )
    if runtime != "openvino":
        raise EngineUnavailable(
            f"int8 runs on engine 'openvino', not on {runtime!r}; add it with: pip install "
            "'conclad-monitor[openvino]', or choose precision float32 and fit again"
        )
    if _INT8.isdisjoint(_processor_flags()):
        raise EngineUnavailable(
            "this processor does not compute in int8 (AVX512-VNNI, AVX-VNNI, AMX): features would "
            "not be what they are called; choose precision float32, and fit again"
        )


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def available_threads() -> int:
    """Cores this process may use: OMP_NUM_THREADS if set (Ray sets it), else its affinity."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _runtime(asked: Runtime) -> Literal["cuda", "openvino", "torch"]:
    if asked == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "openvino" if find_spec("openvino") else "torch"
    if asked == "cuda" and not torch.cuda.is_available():
        raise EngineUnavailable(
            "engine 'cuda' was asked for, but torch sees no GPU; install a CUDA build of torch and "
            "a driver, or choose engine 'auto'"
        )
    if asked == "openvino" and not find_spec("openvino"):
        raise EngineUnavailable(
            "engine 'openvino' is not installed; add it with: pip install "
            "'conclad-monitor[openvino]', or choose engine 'torch'"
        )
    return asked
