"""What torch and OpenVINO raise when a device fails, told apart by what helps.

torch says most of it by type (`OutOfMemoryError`, and `AcceleratorError` since 2.8), and some only
in words: libraries below it (cuDNN, cuBLAS) and the allocator of a CPU raise plain RuntimeErrors.
"""

from __future__ import annotations

import torch

from monitor.backbones.errors import BackboneError, DeviceFailed, DeviceFull

#: No memory: fewer images at a time may do.
_FULL = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "CL_OUT_OF_RESOURCES",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
)
#: The device or its context is broken: every further call of this process would fail as well.
_FAILED = (
    "CUDA error",
    "CUDA driver",
    "cuDNN error",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "CUSOLVER_STATUS",
    "device-side assert",
    "NVML",
    "CL_DEVICE_NOT_AVAILABLE",
    "device lost",
)


def device_problem(error: BaseException) -> type[BackboneError] | None:
    """DeviceFull, DeviceFailed, or None for what is not the device's.

    >>> device_problem(torch.OutOfMemoryError("CUDA out of memory.")).__name__
    'DeviceFull'
    >>> device_problem(RuntimeError("CUDA error: an illegal memory access")).__name__
    'DeviceFailed'
    >>> device_problem(ValueError("a shape")) is None
    True
    """
    if isinstance(error, DeviceFull | DeviceFailed):
        return type(error)
    words = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return DeviceFull
    if not isinstance(error, RuntimeError):
        return None
    if any(word in words for word in _FULL):
        return DeviceFull
    if isinstance(error, torch.AcceleratorError) or any(word in words for word in _FAILED):
        return DeviceFailed
    return None
