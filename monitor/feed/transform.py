"""From a decoded image of any size to the square that a backbone was trained on.

The recipe (size, crop, interpolation, mean, deviation) is timm's answer for the weights, and the
geometry is that of timm's evaluation transform: shorter edge to ``size / crop``, then the centre.
Resizing runs on torch's vectorised 8-bit kernel, which uses the same fixed-point filter as Pillow
in a third of the time; the two differ in at most one pixel value of a thousand, by one or two
steps of 255. Subtracting the mean and dividing by the deviation is left to the engine, so images
travel as bytes and not as four times their size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.feed.backbone_errors import UnsupportedPreprocessing

RESIZER = "torch-uint8-antialias"
"""Part of every fingerprint: another kernel would make slightly other features."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How images must be prepared for one set of weights.

    >>> square = Preprocessing(size=4, edge=8, interpolation="bicubic", mean=(0.5,) * 3,
    ...                        std=(0.5,) * 3)
    >>> square.apply(np.zeros((20, 30, 3), np.uint8)).shape
    (4, 4, 3)
    """

    size: int
    """Height and width of what the backbone sees."""
    edge: int
    """The shorter edge before the centre is cut out."""
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    squash: bool = False
    """Bring both edges to `edge`, whatever that does to the proportions (CLIP's family)."""

    @classmethod
    def from_timm(cls, config: Mapping[str, Any], *, name: str) -> Preprocessing:
        """Read the answer of ``timm.data.resolve_model_data_config``."""
        channels, height, width = config["input_size"]
        mode, interpolation = config.get("crop_mode", "center"), config["interpolation"]
        if channels != 3 or height != width:
            raise UnsupportedPreprocessing(
                f"{name}: takes images of {channels} × {height} × {width}, but only square RGB is "
                "supported; choose another backbone"
            )
        if mode not in ("center", "squash"):
            raise UnsupportedPreprocessing(
                f"{name}: wants crop mode {mode!r}, but only 'center' and 'squash' are supported; "
                "choose another backbone"
            )
        if interpolation not in ("bicubic", "bilinear"):
            raise UnsupportedPreprocessing(
                f"{name}: wants {interpolation!r} interpolation, but only 'bicubic' and "
                "'bilinear' are supported; choose another backbone"
            )
        return cls(
            size=height,
            edge=math.floor(height / config["crop_pct"]),
            interpolation=interpolation,
            mean=_three(config["mean"]),
            std=_three(config["std"]),
            squash=mode == "squash",
        )

    def to_json(self) -> str:
        """One text for equal recipes, whatever made them; goes into the fingerprint."""
        return json.dumps(
            asdict(self) | {"resizer": RESIZER}, sort_keys=True, separators=(",", ":")
        )

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize and crop one RGB image (height × width × 3); the argument is left as it is."""
        height, width = image.shape[:2]
        square = (self.edge, self.edge)
        target = square if self.squash else _with_short_edge(height, width, self.edge)
        resized = image if target == (height, width) else self._resize(image, target)
        top, left = (round((have - self.size) / 2.0) for have in target)
        return resized[top : top + self.size, left : left + self.size]

    def _resize(self, image: NDArray[np.uint8], target: tuple[int, int]) -> NDArray[np.uint8]:
        # Read-only arrays (Pillow's, Ray's) would make torch warn; it never writes to its input.
        pixels = torch.from_numpy(image if image.flags.writeable else image.copy())
        planes = pixels.permute(2, 0, 1).unsqueeze(0)
        resized = torch.nn.functional.interpolate(
            planes, size=target, mode=self.interpolation, antialias=True, align_corners=False
        )
        array: NDArray[np.uint8] = resized[0].permute(1, 2, 0).numpy()
        return array


def _with_short_edge(height: int, width: int, edge: int) -> tuple[int, int]:
    """Both edges when the shorter is brought to ``edge``; the longer is cut off, as timm does."""
    if height <= width:
        return edge, int(edge * width / height)
    return int(edge * height / width), edge


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = (float(value) for value in values)
    return red, green, blue
