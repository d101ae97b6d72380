"""Labelled features to measure on: images of the user's, or scikit-learn's digits as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from monitor.evaluation.embedded_images import load_images
from monitor.novelty.array_types import Floats


def labelled(data: Path | None, label_column: str) -> tuple[Floats, np.ndarray]:
    """Features and class names; without ``data``, of the digits."""
    if data is None:
        digits = load_digits()
        return digits.data.astype("f"), digits.target.astype(str)
    loaded = load_images(data, label_column=label_column)
    return loaded.features, np.asarray(loaded.labels)
