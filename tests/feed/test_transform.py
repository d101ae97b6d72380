"""Images are prepared as timm prepares them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from timm.data.transforms_factory import create_transform

from monitor.backbones.errors import UnsupportedPreprocessing
from monitor.backbones.transform import Preprocessing


def config(**changes: object) -> dict[str, object]:
    plain = {
        "input_size": (3, 64, 64),
        "interpolation": "bicubic",
        "mean": (0.0, 0.0, 0.0),
        "std": (1.0, 1.0, 1.0),
        "crop_pct": 0.875,
        "crop_mode": "center",
    }
    return plain | changes


def picture(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Coarse colours with some grain: like a photograph in what a resize filter meets."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    grain = rng.integers(-8, 9, smooth.shape)
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def timms(image: NDArray[np.uint8], recipe: dict[str, object]) -> NDArray[np.int64]:
    tensor = create_transform(**recipe)(Image.fromarray(image))  # type: ignore[arg-type]
    return np.asarray((tensor.permute(1, 2, 0) * 255).round().long())


@given(
    height=st.integers(8, 300),
    width=st.integers(8, 300),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
    mode=st.sampled_from(["center", "squash"]),
    crop=st.sampled_from([0.875, 0.9, 0.95, 1.0]),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_timm(
    height: int, width: int, interpolation: str, mode: str, crop: float, seed: int
) -> None:
    recipe = config(interpolation=interpolation, crop_mode=mode, crop_pct=crop)
    image = picture(height, width, seed)
    ours = Preprocessing.from_timm(recipe, name="any").apply(image)
    assert ours.shape == (64, 64, 3)
    assert ours.dtype == np.uint8
    apart = np.abs(ours.astype(int) - timms(image, recipe))
    # Pillow may take rows before columns, and rounds in between; else the two are as good as equal.
    assert apart.mean() < 0.35
    assert apart.max() <= 8


@given(height=st.integers(8, 300), width=st.integers(8, 300), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_is_pillows_filter_when_columns_come_first(height: int, width: int, seed: int) -> None:
    """In the order that our kernel always takes, hardly a value differs, even on pure noise."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    squashed = Preprocessing.from_timm(config(crop_mode="squash", crop_pct=1.0), name="any")
    first = Image.fromarray(image).resize((64, height), Image.Resampling.BICUBIC)
    pillow = np.asarray(first.resize((64, 64), Image.Resampling.BICUBIC)).astype(int)
    apart = np.abs(squashed.apply(image).astype(int) - pillow)
    assert apart.mean() < 0.02
    assert apart.max() <= 3


def test_a_shifted_crop_would_be_seen() -> None:
    """The tolerance above must be able to fail: one pixel aside is far outside it."""
    image = picture(100, 100, 0)
    recipe = config()
    aside = np.roll(Preprocessing.from_timm(recipe, name="any").apply(image), 1, axis=1)
    assert np.abs(aside.astype(int) - timms(image, recipe)).mean() > 1


def test_leaves_its_argument_alone() -> None:
    image = picture(90, 70, 0)
    before = image.copy()
    image.flags.writeable = False
    Preprocessing.from_timm(config(), name="any").apply(image)
    assert np.array_equal(image, before)


def test_takes_an_image_however_it_lies_in_memory() -> None:
    image = picture(90, 70, 0)
    recipe = Preprocessing.from_timm(config(), name="any")
    assert np.array_equal(recipe.apply(image[::-1]), recipe.apply(image[::-1].copy()))


def test_equal_recipes_have_one_text_and_others_another() -> None:
    one = Preprocessing.from_timm(config(), name="a")
    assert one.to_json() == Preprocessing.from_timm(config(mean=[0, 0, 0]), name="b").to_json()
    others = [config(crop_pct=0.9), config(interpolation="bilinear"), config(crop_mode="squash")]
    texts = {Preprocessing.from_timm(other, name="c").to_json() for other in others}
    assert len(texts | {one.to_json()}) == 4
    assert json.loads(one.to_json())["decode_side"] == one.decode_side == 2 * one.edge


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"input_size": (3, 64, 32)}, "square"),
        ({"input_size": (1, 64, 64)}, "RGB"),
        ({"crop_mode": "border"}, "border"),
        ({"interpolation": "lanczos"}, "lanczos"),
    ],
)
def test_refuses_what_it_cannot_do(change: dict[str, object], word: str) -> None:
    with pytest.raises(UnsupportedPreprocessing, match=word):
        Preprocessing.from_timm(config(**change), name="any")


@given(
    shapes=st.lists(st.sampled_from([(64, 64), (64, 80), (90, 70), (200, 200)]), max_size=11),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
)
@settings(max_examples=25, deadline=None)
def test_company_changes_no_pixel(shapes: list[tuple[int, int]], interpolation: str) -> None:
    """A feature must not depend on which images happened to be prepared together."""
    recipe = Preprocessing.from_timm(config(interpolation=interpolation), name="any")
    images = [picture(height, width, seed) for seed, (height, width) in enumerate(shapes)]
    for image in images:
        image.flags.writeable = False
    together = recipe.apply_all(images)
    assert together.shape == (len(images), 64, 64, 3)
    for image, found in zip(images, together, strict=True):
        assert np.array_equal(found, recipe.apply(image))
