"""What devices do to an engine: less at a time, another worker, or one row; never a lost batch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from PIL import Image

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.device_errors import device_problem
from monitor.backbones.embed_images import embed_part
from monitor.backbones.engine import Engine, Features, Images, open_engine
from monitor.backbones.errors import DeviceFailed, DeviceFull, EngineFailure
from monitor.images.reject_reasons import Reason
from tests.feed.checks import distance, random_images

FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB"),
    torch.cuda.OutOfMemoryError("CUDA out of memory."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]
FAILED = [
    torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: unspecified launch failure"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    RuntimeError("CUDA driver initialization failed, you might not have a CUDA gpu."),
    RuntimeError("CUDA error: uncorrectable ECC error encountered"),
]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch", threads=1) as opened:
        yield opened


def failing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Images], Exception | None]
) -> list[int]:
    """Let the engine fail as a device would; returns the sizes of the calls, as they come."""
    run, sizes = engine._run, []

    def injected(images: Images) -> Features:
        sizes.append(len(images))
        error = fail(images)
        if error is not None:
            raise error
        return run(images)

    monkeypatch.setattr(engine, "_run", injected)
    return sizes


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_short_memory_halves_the_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    images = random_images(engine, 13)
    expected = engine.embed(images)
    sizes = failing(engine, monkeypatch, lambda part: error if len(part) > 3 else None)
    assert distance(engine.embed(images), expected) < 1e-5
    assert sizes[:3] == [13, 6, 3]
    assert max(size for size in sizes if size <= 3) == 3


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_memory_for_nothing_at_all_is_an_outage(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing(engine, monkeypatch, lambda part: error)
    with pytest.raises(DeviceFull, match="no memory left for a single image"):
        engine.embed(random_images(engine, 5))


@pytest.mark.parametrize("error", FAILED, ids=repr)
def test_a_failed_device_is_said_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sizes = failing(engine, monkeypatch, lambda part: error)
    with pytest.raises(DeviceFailed):
        engine.embed(random_images(engine, 8))
    assert sizes == [8], "no second call into a broken context"


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), EngineFailure("unusable")])
def test_other_errors_stay_what_they_are(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing(engine, monkeypatch, lambda part: error)
    with pytest.raises(type(error), match=str(error)):
        engine.embed(random_images(engine, 8))
    assert device_problem(error) is None


def _png(value: int) -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (32, 32), (value, value, value)).save(sink, "PNG")
    return sink.getvalue()


def test_one_image_without_a_finite_feature_is_one_rejected_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = engine._run

    def overflow(images: Images) -> Features:
        features = run(images).copy()
        features[images[:, 0, 0, 0] == 200, 7] = np.inf
        return features

    monkeypatch.setattr(engine, "_run", overflow)
    values = [10, 200, 30, 40, 50]
    found = embed_part([(value, _png(value)) for value in values], engine)
    assert found.keys == (10, 30, 40, 50)
    assert found.features.shape[0] == found.stats.shape[0] == 4
    assert np.isfinite(found.features).all()
    [(key, why)] = found.rejected
    assert (key, why.reason) == (200, Reason.NOT_FINITE)
