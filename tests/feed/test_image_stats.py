"""What the numbers about an image's look react to, and what they cost."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.evaluation.shift_corruptions import corrupted
from monitor.images.image_stats import STATS, ImageStats, image_stats


def scene(side: int = 96, seed: int = 0) -> np.ndarray:
    """Smooth patches with edges and some texture: what a photograph is made of."""
    rng = np.random.default_rng(seed)
    patches = np.kron(rng.integers(40, 215, size=(8, 8, 3)), np.ones((side // 8, side // 8, 1)))
    return np.clip(patches + rng.normal(scale=2, size=patches.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("corruption", "name", "sign"),
    [
        ("noise", "noise", 1),
        ("blur", "sharpness", -1),
        ("brightness", "brightness", -1),
        ("contrast", "contrast", -1),
        ("fog", "black", 1),
        ("colour", "blue", -1),
    ],
)
def test_each_change_of_the_camera_moves_its_number(corruption: str, name: str, sign: int) -> None:
    values = [
        getattr(ImageStats.of(corrupted(scene(), corruption, s, np.random.default_rng(s))), name)
        for s in (0, 1, 3, 5)
    ]
    assert np.all(sign * np.diff(values) > 0), values


def test_compression_shows_where_blocks_meet() -> None:
    smooth = np.tile(np.linspace(40, 215, 128).astype(np.uint8)[:, None, None], (1, 128, 3))
    noisy = corrupted(smooth, "noise", 1, np.random.default_rng(0))
    coarse = corrupted(noisy, "jpeg", 5, np.random.default_rng(0))
    assert ImageStats.of(coarse).blocks > ImageStats.of(noisy).blocks + 0.2


def test_the_scene_itself_hardly_matters() -> None:
    """Noise must not be read into edges: patches of any colours give the same figure."""
    found = [ImageStats.of(scene(seed=i)).noise for i in range(5)]
    assert max(found) < 0.02


@given(height=st.integers(1, 40), width=st.integers(1, 40), value=st.integers(0, 255))
@settings(max_examples=40, deadline=None)
def test_every_image_has_finite_numbers(height: int, width: int, value: int) -> None:
    row = image_stats([np.full((height, width, 3), value, np.uint8)])
    assert row.shape == (1, len(STATS))
    assert np.isfinite(row).all()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    images = [scene(side, seed) for seed, side in enumerate([96, 64, 96, 160, 64] * 5)]
    together = image_stats(images)
    for row, image in zip(together, images, strict=True):
        np.testing.assert_allclose(row, image_stats([image])[0], rtol=1e-5, atol=1e-6)


def test_the_cost_does_not_grow_with_the_frame() -> None:
    """A frame of 2,048 pixels a side takes no longer than twice one of 256."""

    def seconds(side: int) -> float:
        image = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
        runs = []
        for _ in range(20):
            began = time.process_time()
            image_stats([image])
            runs.append(time.process_time() - began)
        return min(runs)

    assert seconds(2048) < 2 * seconds(256)
