"""From a decoded image of any size to the square that a backbone was trained on.

The recipe (size, crop, interpolation, mean, deviation) is timm's answer for the weights, and the
geometry is that of timm's evaluation transform: shorter edge to ``size / crop``, then the centre.
Resizing runs on torch's vectorised 8-bit kernel, which uses the same fixed-point filter as Pillow
in a third of the time. It always takes columns before rows, and then differs from Pillow in less
than one value of a hundred, by a step or two of 255. Newer Pillow takes rows first where that is
cheaper, as for upright images, and rounds in between: a few steps apart on pictures, up to 25 on
pure noise. Ours does not change with the version of Pillow.
Subtracting the mean and dividing by the deviation is left to the engine, so images travel as
bytes and not as four times their size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.backbones.errors import UnsupportedPreprocessing
from monitor.images.image_stats import alike

_DECODE_AT_LEAST = 2
"""JPEGs are decoded at a fraction of their size, but to no less than so many times `edge`. On
frames of 1,024 px the feature then moves by 5% of its length and decoding takes about 60% of the
time; at 1 it would move by 7 to 19%, at twice the saving."""

_TOGETHER = 4
"""Images of one size that are resized in one call. Alone, one of 64 px took 400 microseconds, of
four together each took 90; more gained nothing, and large ones then leave the processor's cache."""

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

    def at(self, size: int) -> Preprocessing:
        """The same recipe for a smaller or larger square, cut out of the same part of an image.

        >>> Preprocessing(224, 256, "bicubic", (0.5,) * 3, (0.5,) * 3).at(160).edge
        182
        """
        return replace(self, size=size, edge=math.floor(self.edge * size / self.size))

    @property
    def decode_side(self) -> int:
        """The smallest side that a decoder may reduce an image to."""
        return _DECODE_AT_LEAST * self.edge

    def to_json(self) -> str:
        """One text for equal recipes, whatever made them; goes into the fingerprint."""
        fixed = {"resizer": RESIZER, "decode_side": self.decode_side}
        return json.dumps(asdict(self) | fixed, sort_keys=True, separators=(",", ":"))

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize and crop one RGB image (height × width × 3); the argument is left as it is."""
        prepared: NDArray[np.uint8] = self.apply_all([image])[0]
        return prepared

    def apply_all(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """The same for several, as one array; to the bit what each would be by itself."""
        prepared = np.empty((len(images), self.size, self.size, 3), np.uint8)
        self.apply_into(prepared, images)
        return prepared

    def apply_into(self, prepared: NDArray[np.uint8], images: Sequence[NDArray[np.uint8]]) -> None:
        """The same, into an array that is there: one for each image."""
        for chosen in alike(images, _TOGETHER):
            some = [images[i][None] for i in chosen]
            # One by itself may be large: it is not copied, if torch takes it as it lies.
            is_fit = len(some) == 1 and some[0].flags.carray
            prepared[chosen] = self._prepare(some[0] if is_fit else np.concatenate(some))

    def _prepare(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Images of one size (n × height × width × 3)."""
        height, width = images.shape[1:3]
        square = (self.edge, self.edge)
        target = square if self.squash else _with_short_edge(height, width, self.edge)
        resized = images if target == (height, width) else self._resize(images, target)
        top, left = (round((have - self.size) / 2.0) for have in target)
        return resized[:, top : top + self.size, left : left + self.size]

    def _resize(self, images: NDArray[np.uint8], target: tuple[int, int]) -> NDArray[np.uint8]:
        planes = torch.from_numpy(images).permute(0, 3, 1, 2)
        resized = torch.nn.functional.interpolate(
            planes, size=target, mode=self.interpolation, antialias=True, align_corners=False
        )
        array: NDArray[np.uint8] = resized.permute(0, 2, 3, 1).numpy()
        return array


def _with_short_edge(height: int, width: int, edge: int) -> tuple[int, int]:
    """Both edges when the shorter is brought to ``edge``; the longer is cut off, as timm does."""
    if height <= width:
        return edge, int(edge * width / height)
    return int(edge * height / width), edge


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = (float(value) for value in values)
    return red, green, blue
