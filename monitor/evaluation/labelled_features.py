"""Labelled features to evaluate on: from a feature file, a Parquet file, or class folders."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.evaluation.errors import (
    DuplicateDatasetError,
    EmptyClassError,
    FeatureFileError,
    FeatureShapeError,
    FeatureValueError,
    MissingLabelsError,
)

# What features are reported under when their file does not say what made them.
PRECOMPUTED = "precomputed"


@dataclass(frozen=True, slots=True)
class LabelledFeatures:
    """One dataset seen through one backbone, checked and ready to be split.

    >>> data = labelled_features("toy", "any", [[0.0], [1.0]], ["a", "b"])
    >>> data.features.shape, data.labels
    ((2, 1), ('a', 'b'))
    """

    dataset: str
    backbone: str
    features: NDArray[np.float32]
    labels: tuple[str, ...]
    digest: str


def labelled_features(
    dataset: str,
    backbone: str,
    features: Any,
    labels: Sequence[Any],
    *,
    classes: Sequence[str] | None = None,
    where: str | None = None,
) -> LabelledFeatures:
    """Check features and labels; ``where`` says in an error where they came from."""
    place = where or dataset
    matrix = _matrix(features, place)
    names = _names(labels, place)
    if len(names) != len(matrix):
        raise MissingLabelsError(
            f"{place}: {len(matrix)} samples but {len(names)} labels; every sample needs one"
        )
    if not len(names):
        raise MissingLabelsError(f"{place}: no samples at all; give a file that holds some")
    empty = sorted(set(classes or ()) - set(names))
    if empty:
        raise EmptyClassError(
            f"{place}: no samples of class {', '.join(empty)}; add some or remove the name"
        )
    digest = hashlib.sha256(matrix.tobytes())
    digest.update("\0".join(names).encode())
    return LabelledFeatures(dataset, backbone, matrix, names, digest.hexdigest())


def load_features(path: Path) -> LabelledFeatures:
    """An ``.npz`` with ``X`` (n × d) and ``y``.

    It may also hold ``classes`` (every class that should be there), and ``dataset`` and
    ``backbone`` (the names to report under).
    """
    try:
        # Opened here, because numpy does not close what it cannot read.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise FeatureFileError(f"{path}: a single array; save X and y with numpy.savez")
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise FeatureFileError(f"{path}: no such file; check the path after --features") from None
    except ValueError as error:
        if "pickle" not in str(error):
            raise FeatureFileError(f"{path}: cannot be read ({error})") from None
        raise FeatureFileError(
            f"{path}: holds Python objects or is no .npz file; save X as numbers and y as strings "
            f"or integers with numpy.savez"
        ) from None
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise FeatureFileError(f"{path}: is no readable .npz file ({error})") from None
    if "X" not in arrays:
        raise FeatureFileError(
            f"{path}: has no array 'X' (found: {', '.join(arrays) or 'nothing'}); save the "
            f"features under that name"
        )
    if "y" not in arrays:
        raise MissingLabelsError(
            f"{path}: has no array 'y' (found: {', '.join(arrays)}); save the labels there"
        )
    return labelled_features(
        str(arrays.get("dataset", path.stem)),
        str(arrays.get("backbone", PRECOMPUTED)),
        arrays["X"],
        arrays["y"].tolist() if arrays["y"].ndim == 1 else [],
        classes=[str(name) for name in np.ravel(arrays["classes"])]
        if "classes" in arrays
        else None,
        where=str(path),
    )


def check_distinct(datasets: Sequence[LabelledFeatures]) -> None:
    """Refuse inputs that could not be told apart, or not be compared, in the results."""
    seen: dict[tuple[str, str], LabelledFeatures] = {}
    for data in datasets:
        key = (data.dataset, data.backbone)
        if key in seen:
            raise DuplicateDatasetError(
                f"two inputs are called {data.dataset!r} with backbone {data.backbone!r}; rename "
                f"a file, or store 'dataset' and 'backbone' in it"
            )
        seen[key] = data
    widths: dict[str, int] = {}
    for data in datasets:
        width = widths.setdefault(data.backbone, data.features.shape[1])
        if data.backbone != PRECOMPUTED and data.features.shape[1] != width:
            raise FeatureShapeError(
                f"{data.dataset}: {data.features.shape[1]} features per sample, but other data of "
                f"backbone {data.backbone!r} has {width}; embed all of it with the same weights"
            )


def _matrix(features: Any, place: str) -> NDArray[np.float32]:
    values = np.asarray(features)
    if values.ndim != 2 or not values.shape[1]:
        raise FeatureShapeError(
            f"{place}: X has shape {values.shape}, but one row per sample and one column per "
            f"feature are needed"
        )
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise FeatureValueError(f"{place}: X holds {values.dtype}, not numbers")
    matrix = np.ascontiguousarray(values, dtype=np.float32)
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(broken):
        raise FeatureValueError(
            f"{place}: {len(broken)} samples have NaN or infinite features, the first in row "
            f"{broken[0]}; embed them again or leave them out"
        )
    return matrix


def _names(labels: Sequence[Any], place: str) -> tuple[str, ...]:
    missing = [i for i, label in enumerate(labels) if _is_missing(label)]
    if missing:
        raise MissingLabelsError(
            f"{place}: {len(missing)} samples have no label, the first in row {missing[0]}; label "
            f"them or leave them out"
        )
    return tuple(str(label) for label in labels)


def _is_missing(label: Any) -> bool:
    return label is None or label != label or (isinstance(label, str) and not label.strip())
