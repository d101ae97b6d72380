"""Small labelled data that every test of this room can afford."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from monitor.evaluation.labelled_features import LabelledFeatures, labelled_features


@cache
def synthetic(classes: int = 6, each: int = 40, width: int = 12) -> LabelledFeatures:
    """Classes as blobs on low-dimensional sheets, far enough apart to be found."""
    rng = np.random.default_rng(7)
    blobs, names = [], []
    for number in range(classes):
        sheet = rng.normal(size=(2, width))
        centre = rng.normal(scale=3.0, size=width)
        blobs.append(
            centre + rng.normal(size=(each, 2)) @ sheet + rng.normal(0, 0.3, (each, width))
        )
        names += [f"class-{number}"] * each
    return labelled_features("synthetic", "none", _float32(np.concatenate(blobs)), names)


@cache
def digits(each: int = 24) -> LabelledFeatures:
    """Real handwriting, a few samples of every digit."""
    bunch = load_digits()
    chosen = np.sort(
        np.concatenate([np.flatnonzero(bunch.target == digit)[:each] for digit in range(10)])
    )
    return labelled_features(
        "digits", "pixels", _float32(bunch.data[chosen]), bunch.target[chosen].tolist()
    )


def _float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.astype(np.float32)
