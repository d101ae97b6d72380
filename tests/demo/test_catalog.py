"""The scenes are the same for the same seed, differ otherwise, and no pixel gives a class away."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PIL import Image
from sklearn.tree import DecisionTreeClassifier

from monitor.demo.scenes import dirty_lens as lens
from monitor.demo.scenes import texture
from monitor.demo.scenes.catalog import SCENES, jpeg, render
from monitor.demo.scenes.viewpoint import SIZE


@pytest.mark.parametrize("name", SCENES)
def test_a_seed_gives_the_same_image_and_another_seed_another(name: str) -> None:
    first, again, other = render(name, (0, 1)), render(name, (0, 1)), render(name, (0, 2))
    assert first.shape == (SIZE, SIZE, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", SCENES)
def test_every_size_can_be_drawn(name: str) -> None:
    assert render(name, (3, 3), 64).shape == (64, 64, 3)


def test_no_scene_is_empty_or_washed_out() -> None:
    for name in SCENES:
        spread = [render(name, (1, i)).std() for i in range(12)]
        # Calm water is nearly one colour; everything else has something in it.
        assert np.median(spread) > (3 if name == "water" else 12), name


def test_no_single_statistic_of_the_pixels_tells_the_classes_apart() -> None:
    """Otherwise the demo would show what a threshold on brightness can do, not a backbone."""
    names, count = list(SCENES), 24
    images = np.stack([render(name, (2, i)) for name in names for i in range(count)])
    labels = np.repeat(np.arange(len(names)), count)
    values = images.astype(np.float32)
    statistics = np.concatenate(
        [
            values.mean(axis=(1, 2)),
            values.std(axis=(1, 2)),
            np.abs(np.diff(values, axis=1)).mean(axis=(1, 2)),
        ],
        axis=1,
    )
    test = np.arange(len(labels)) % 2 == 0
    for column in statistics.T:
        tree = DecisionTreeClassifier(max_leaf_nodes=2 * len(names), random_state=0)
        tree.fit(column[~test, None], labels[~test])
        assert tree.score(column[test, None], labels[test]) < 0.4


def test_drawing_costs_no_more_than_embedding() -> None:
    """A core embeds some fifty images in a second; drawing must not be what one waits for."""
    for name in SCENES:
        render(name, (0, 0))
    began = time.process_time()
    for i in range(3):
        for name in SCENES:
            jpeg(render(name, (4, i)))
    assert (time.process_time() - began) / (3 * len(SCENES)) < 0.03


def test_noise_of_any_zoom_stays_within_its_bank() -> None:
    rng = np.random.default_rng(0)
    for zoom in (0.01, 0.3, 1.0, 20.0):
        piece = texture.noise(rng, 64, "rough", zoom=zoom, stretch=4.0)
        # What lies beyond the bank comes out as exact zeros.
        assert (piece == 0).mean() < 0.01


def test_a_dirty_lens_blurs_dims_and_keeps_its_spots() -> None:
    clean = [render("town", (5, i)) for i in range(8)]
    dirty = [lens.soiled(image, 1) for image in clean]

    def sharpness(image: np.ndarray) -> float:
        return float(np.abs(np.diff(image.astype(float), axis=0)).mean())

    for before, after in zip(clean, dirty, strict=True):
        assert after.mean() < 0.85 * before.mean()
        assert sharpness(after) < 0.7 * sharpness(before)
    ratios = np.mean([a.mean(2) / (b.mean(2) + 1) for a, b in zip(dirty, clean, strict=True)], 0)
    spots = np.asarray(Image.fromarray(lens._dirt(1)).resize((SIZE, SIZE)))
    assert ratios[spots > 0.4].mean() < ratios[spots < 0.1].mean() - 0.1


def test_another_lens_has_other_dirt() -> None:
    image = render("fields", (6, 0))
    assert not np.array_equal(lens.soiled(image, 1), lens.soiled(image, 2))
