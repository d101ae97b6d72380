"""Feature files and images: read whole, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from monitor.evaluation.embedded_images import load_images
from monitor.evaluation.errors import (
    DuplicateDatasetError,
    EmptyClassError,
    EvaluationError,
    FeatureFileError,
    FeatureShapeError,
    FeatureValueError,
    MissingLabelsError,
)
from monitor.evaluation.labelled_features import check_distinct, labelled_features, load_features

X = np.arange(12, dtype=np.float64).reshape(4, 3)
Y = np.array(["a", "a", "b", "b"])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "set.npz"
    np.savez(path, **arrays)
    return path


def test_features_and_labels_come_back(tmp_path: Path) -> None:
    data = load_features(saved(tmp_path, X=X, y=Y))
    assert (data.dataset, data.backbone) == ("set", "precomputed")
    assert data.labels == ("a", "a", "b", "b")
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(data.features, X)


def test_a_file_may_name_itself(tmp_path: Path) -> None:
    data = load_features(saved(tmp_path, X=X, y=Y, dataset="eurosat", backbone="lite0"))
    assert (data.dataset, data.backbone) == ("eurosat", "lite0")


def test_integer_labels_become_names(tmp_path: Path) -> None:
    assert load_features(saved(tmp_path, X=X, y=np.array([3, 3, 1, 1]))).labels == tuple("3311")


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    first = load_features(saved(tmp_path, X=X, y=Y)).digest
    assert load_features(saved(tmp_path, X=X, y=Y)).digest == first
    assert load_features(saved(tmp_path, X=X + 1, y=Y)).digest != first
    assert load_features(saved(tmp_path, X=X, y=Y[::-1])).digest != first


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ({"y": Y}, FeatureFileError, "no array 'X'"),
        ({"X": X}, MissingLabelsError, "no array 'y'"),
        ({"X": X, "y": Y[:3]}, MissingLabelsError, "4 samples but 3 labels"),
        ({"X": X, "y": np.array(["a", "", "b", "b"])}, MissingLabelsError, "first in row 1"),
        ({"X": X, "y": np.array([0, 1, np.nan, 1])}, MissingLabelsError, "first in row 2"),
        ({"X": X[:0], "y": Y[:0]}, MissingLabelsError, "no samples"),
        ({"X": X.ravel(), "y": Y}, FeatureShapeError, r"shape \(12,\)"),
        ({"X": X[:, :0], "y": Y}, FeatureShapeError, "shape"),
        ({"X": np.where(X == 5, np.nan, X), "y": Y}, FeatureValueError, "first in row 1"),
        ({"X": np.where(X == 11, np.inf, X), "y": Y}, FeatureValueError, "first in row 3"),
        ({"X": X.astype(str), "y": Y}, FeatureValueError, "not numbers"),
        ({"X": X, "y": Y, "classes": np.array(["a", "b", "c"])}, EmptyClassError, "class c"),
        ({"X": X, "y": Y.astype(object)}, FeatureFileError, "Python objects"),
    ],
)
def test_each_fault_has_its_own_error(
    tmp_path: Path, arrays: dict[str, Any], error: type[EvaluationError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        load_features(saved(tmp_path, **arrays))
    assert "set.npz" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 torn"])
def test_a_broken_file_is_no_traceback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(FeatureFileError, match=r"broken\.npz"):
        load_features(path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FeatureFileError, match="no such file"):
        load_features(tmp_path / "absent.npz")


def test_inputs_must_be_distinct_and_of_one_width_per_backbone() -> None:
    narrow = labelled_features("a", "net", X, Y.tolist())
    wide = labelled_features("b", "net", np.hstack([X, X]), Y.tolist())
    check_distinct([narrow, labelled_features("a", "other", X, Y.tolist())])
    with pytest.raises(DuplicateDatasetError):
        check_distinct([narrow, narrow])
    with pytest.raises(FeatureShapeError, match="6 features per sample"):
        check_distinct([narrow, wide])


def picture(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), colour).save(path)


def test_class_folders_are_embedded(tmp_path: Path) -> None:
    for number in range(3):
        picture(tmp_path / "set" / "red" / f"{number}.png", (250, number, 0))
        picture(tmp_path / "set" / "blue" / f"{number}.png", (0, number, 250))
    (tmp_path / "set" / "red" / "broken.png").write_bytes(b"nothing")
    rejected: list[Any] = []
    data = load_images(
        tmp_path / "set", backbone="tiny", cache=tmp_path / "cache", rejected=rejected.extend
    )
    assert sorted(data.labels) == ["blue"] * 3 + ["red"] * 3
    assert (data.dataset, data.backbone) == ("set", "tiny")
    assert [sample.image_id for sample in rejected] == ["red/broken.png"]


def test_an_empty_class_folder_is_not_overlooked(tmp_path: Path) -> None:
    picture(tmp_path / "set" / "red" / "0.png", (250, 0, 0))
    (tmp_path / "set" / "green").mkdir()
    with pytest.raises(EmptyClassError, match="class green"):
        load_images(tmp_path / "set", backbone="tiny", cache=tmp_path / "cache")
