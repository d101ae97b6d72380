"""What dirt, dusk and a tired sensor do to an image: seven corruptions at five severities.

They follow the idea of the common-corruption benchmarks: severity 1 is hardly seen, 3 is plain,
5 is as bad as an operator would let a camera run. Strengths are relative to the image's size
where they have a length, so that 3 means the same for a thumbnail and for a full frame.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from monitor.evaluation.errors import ShiftError

Pixels = NDArray[np.uint8]
SEVERITIES = (1, 2, 3, 4, 5)

# The standard deviation of sensor noise, as a share of the full range.
_NOISE = (0.05, 0.08, 0.12, 0.18, 0.26)
# The standard deviation of the blur, as a share of the shorter side: 4.7 pixels of 224 at 3.
_BLUR = (0.008, 0.014, 0.021, 0.029, 0.040)
# What is left of the light.
_BRIGHTNESS = (0.80, 0.65, 0.50, 0.37, 0.25)
# What is left of the differences to the image's mean.
_CONTRAST = (0.75, 0.55, 0.40, 0.30, 0.20)
# The encoder's quality.
_JPEG = (60, 40, 25, 15, 8)
# How much of a pixel is fog, on average.
_FOG = (0.20, 0.30, 0.40, 0.50, 0.60)
# How much blue is lost and, by half, how much red is won.
_COLOUR = (0.10, 0.20, 0.30, 0.40, 0.50)
# The colour of fog: nearly white.
_FOG_LEVEL = 0.9
# Size of a bank of fog as a share of the shorter side, and how much its thickness varies.
_FOG_BANKS, _FOG_SPREAD = 0.15, 0.25


def _noise(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    return image + rng.normal(scale=strength, size=image.shape)


def _blur(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    width = strength * min(image.shape[:2])
    return ndimage.gaussian_filter(image, (width, width, 0), mode="nearest")


def _brightness(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    return image * strength


def _contrast(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    return (image - image.mean()) * strength + image.mean()


def _jpeg(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    file = io.BytesIO()
    Image.fromarray(_bytes(image)).save(file, "JPEG", quality=int(strength))
    return np.asarray(Image.open(file), dtype=np.float32) / 255


def _fog(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    noise = rng.normal(size=image.shape[:2])
    banks = ndimage.gaussian_filter(noise, _FOG_BANKS * min(image.shape[:2]), mode="reflect")
    banks = (banks - banks.mean()) / (banks.std() or 1.0)
    thickness = np.clip(strength * (1 + _FOG_SPREAD * banks), 0, 1)[..., None]
    return image * (1 - thickness) + _FOG_LEVEL * thickness


def _colour(image: NDArray[np.float32], strength: float, rng: np.random.Generator) -> Any:
    return image * np.array([1 + strength / 2, 1.0, 1 - strength])


_Corruption = Callable[[NDArray[np.float32], float, np.random.Generator], Any]
CORRUPTIONS: Mapping[str, tuple[_Corruption, tuple[float, ...]]] = {
    "noise": (_noise, _NOISE),
    "blur": (_blur, _BLUR),
    "brightness": (_brightness, _BRIGHTNESS),
    "contrast": (_contrast, _CONTRAST),
    "jpeg": (_jpeg, _JPEG),
    "fog": (_fog, _FOG),
    "colour": (_colour, _COLOUR),
}


def corrupted(image: Pixels, name: str, severity: int, rng: np.random.Generator) -> Pixels:
    """The same scene through a worse camera; severity 0 leaves it as it is.

    >>> grey = np.full((8, 8, 3), 100, np.uint8)
    >>> int(corrupted(grey, "brightness", 3, np.random.default_rng(0))[0, 0, 0])
    50
    """
    if name not in CORRUPTIONS:
        raise ShiftError(f"no corruption {name!r}; there are {', '.join(CORRUPTIONS)}")
    if severity == 0:
        return image
    if severity not in SEVERITIES:
        raise ShiftError(f"severity {severity} of {name} is none of 0 to {SEVERITIES[-1]}")
    change, strengths = CORRUPTIONS[name]
    scene = image.astype(np.float32) / np.float32(255)
    return _bytes(change(scene, strengths[severity - 1], rng))


def _bytes(image: Any) -> Pixels:
    return np.clip(np.round(np.asarray(image) * 255), 0, 255).astype(np.uint8)
