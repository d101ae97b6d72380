"""A dirty lens: what was sharp and bright becomes blurred, dim and spotted."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from monitor.demo.scenes.texture import Field

_BLUR = 0.016
"""Radius as a share of the side: details go, shapes stay, as with a film of grease."""
_DIM = 0.72
_SPOTS = 14


def soiled(pixels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """The image as a dirty lens shows it.

    The dirt belongs to the lens: with the same seed it lies on the same places of every image.

    >>> clean = np.full((64, 64, 3), 200, np.uint8)
    >>> bool(soiled(clean, 1).mean() < 160)
    True
    """
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(_BLUR * min(height, width)))
    dirt = Image.fromarray(_dirt(seed)).resize((width, height), Image.Resampling.BILINEAR)
    share = np.asarray(dirt, dtype=np.float32)[..., None]
    brown = np.array([58, 50, 40], np.float32)
    seen = np.asarray(image, dtype=np.float32) * np.float32(_DIM)
    return np.clip(seen + (brown - seen) * share, 0, 255).astype(np.uint8)


@functools.lru_cache(maxsize=8)
def _dirt(seed: int) -> Field:
    """How much of the light each place of the lens keeps back."""
    rng = np.random.default_rng([seed, 9])
    y, x = np.mgrid[0:1:64j, 0:1:64j]
    dirt = 0.12 * np.hypot(x - 0.5, y - 0.5)
    for _ in range(_SPOTS):
        far = np.hypot(x - rng.random(), y - rng.random())
        edge = rng.uniform(0.02, 0.08)
        dirt = np.maximum(dirt, rng.uniform(0.35, 0.85) * np.clip((edge - far) / 0.03 + 0.5, 0, 1))
    field: Field = dirt.astype(np.float32)
    return field
