"""One interface over everything that can run a backbone, and the choice among them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

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
    # Imported late: each runtime costs a second or more, and at most one is used.
    if chosen == "openvino":
        from monitor.backbones.engine_openvino import OpenVinoEngine

        return OpenVinoEngine(backbone, precision, decoding, workers, cache)
    from monitor.backbones.engine_torch import CpuEngine, CudaEngine

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
