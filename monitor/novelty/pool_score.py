"""How new a sample of a pool is: what the scores of both presets have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from monitor.novelty.arrays import Floats
from monitor.novelty.detector import Detector

# A floor under FRE, as a share of T_inner: a sample that a tiny class reproduces exactly must
# not score infinity.
_FLOOR = 1e-6


class PoolScore(Protocol):
    """Higher is newer; above ``threshold`` a sample is called new."""

    @property
    def threshold(self) -> float:
        """T_inner of this score."""

    def __call__(self, features: Floats) -> np.ndarray:
        """The score of every row."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownOnly:
    """S⁰, the least FRE over known classes: all there is while nothing new has been named."""

    detector: Detector

    @property
    def threshold(self) -> float:
        """T_inner of S⁰."""
        return self.detector.fre_calibration.t_inner

    def __call__(self, features: Floats) -> np.ndarray:
        """S⁰ of every row."""
        return self.detector.s0(features)


def log_ratio(detector: Detector, known: np.ndarray, new: np.ndarray) -> np.ndarray:
    """log of the FRE to what is known over the FRE to what is new, both floored.

    ``known`` is in the units of the settings, ``new`` is squared, as a bank computes it.
    """
    floor = _FLOOR * max(detector.fre_calibration.t_inner, 1e-30)
    new = new if detector.settings.squared else np.sqrt(new)
    ratio: np.ndarray = np.log(np.maximum(known, floor)) - np.log(np.maximum(new, floor))
    return ratio
