"""What every backbone on every engine must do: one suite, called for each combination."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from monitor.backbones.engine import Engine, Features, Images
from monitor.backbones.errors import EngineInput

NOISE = 1e-5
"""Relative; float32 sums in another order differ by less, another image by a thousand times."""


def random_images(engine: Engine, count: int, seed: int = 0) -> Images:
    size = engine.backbone.preprocessing.size
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), np.uint8)


def distance(one: Features, other: Features) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def check_engine(engine: Engine) -> None:
    check_shape_and_type(engine)
    check_batches_do_not_matter(engine)
    check_repeats(engine)
    check_images_matter(engine)
    check_argument_is_left_alone(engine)
    check_threads(engine)
    check_refuses_wrong_input(engine)
    check_fingerprint(engine)


def check_shape_and_type(engine: Engine) -> None:
    features = engine.embed(random_images(engine, 3))
    assert features.shape == (3, engine.backbone.dimension)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert engine.embed(random_images(engine, 0)).shape == (0, engine.backbone.dimension)


def check_batches_do_not_matter(engine: Engine) -> None:
    images = random_images(engine, 5)
    whole = engine.embed(images)
    for size in (1, 2, 4):
        parts = [engine.embed(images[i : i + size]) for i in range(0, len(images), size)]
        assert distance(np.concatenate(parts), whole) < NOISE
    assert distance(engine.embed(images[::-1])[::-1], whole) < NOISE


def check_repeats(engine: Engine) -> None:
    images = random_images(engine, 3)
    assert np.array_equal(engine.embed(images), engine.embed(images))


def check_images_matter(engine: Engine) -> None:
    first, second = engine.embed(random_images(engine, 2))
    assert distance(first, second) > 100 * NOISE


def check_argument_is_left_alone(engine: Engine) -> None:
    images = random_images(engine, 2)
    before = images.copy()
    from_writeable = engine.embed(images)
    assert np.array_equal(images, before)
    images.flags.writeable = False
    assert np.array_equal(engine.embed(images), from_writeable)


def check_threads(engine: Engine) -> None:
    batches = [random_images(engine, 2, seed) for seed in range(6)]
    alone = [engine.embed(batch) for batch in batches]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(engine.embed, batches))
    for one, other in zip(together, alone, strict=True):
        assert distance(one, other) < NOISE


def check_refuses_wrong_input(engine: Engine) -> None:
    size = engine.backbone.preprocessing.size
    for wrong in (
        np.zeros((1, size, size + 1, 3), np.uint8),
        np.zeros((1, 3, size, size), np.uint8),
        np.zeros((size, size, 3), np.uint8),
        np.zeros((1, size, size, 3), np.float32),
    ):
        with pytest.raises(EngineInput, match=f"{size} × {size}"):
            engine.embed(wrong)  # type: ignore[arg-type]


def check_fingerprint(engine: Engine) -> None:
    mark = engine.fingerprint
    assert mark.dimension == engine.backbone.dimension
    assert mark == engine.backbone.fingerprint(mark.precision, engine.decoding)
