"""The figures by which two ways of computing features are compared."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from monitor.novelty.array_types import Floats
from monitor.novelty.class_separation import auroc, separation
from monitor.novelty.errors import MissingLabels
from tests.novelty.worlds import BackboneWorld


def sample(seed: int = 0, classes: int = 4, each: int = 40) -> tuple[Floats, list[str]]:
    return BackboneWorld(classes, seed=seed).labelled(range(classes), each)


def blurred(features: Floats, amount: float, seed: int = 0) -> Floats:
    """The same images, computed less exactly."""
    noise = np.random.default_rng(seed).normal(size=features.shape) * features.std()
    worse: Floats = (features + amount * noise).astype(np.float32)
    return worse


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_is_that_of_scikit_learn(ties: bool) -> None:
    rng = np.random.default_rng(0)
    new, old = rng.normal(1, 1, 80), rng.normal(0, 1, 120)
    if ties:
        new, old = new.round(), old.round()
    truth = roc_auc_score([1] * 80 + [0] * 120, np.concatenate([new, old]))
    assert auroc(new, old) == pytest.approx(truth)


def test_worse_features_tell_classes_apart_less_well() -> None:
    features, labels = sample()
    found = [separation(blurred(features, amount), labels) for amount in (0.0, 0.7, 3.0)]
    assert found[0].apart > found[1].apart > found[2].apart
    assert found[0].left_out > found[2].left_out


def test_features_that_say_nothing_are_no_better_than_chance() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(120, 30)).astype("f")
    found = separation(features, ["a", "b", "c"] * 40)
    assert found.apart == pytest.approx(0.5, abs=0.08)
    assert found.left_out == pytest.approx(0.5, abs=0.08)


def test_no_image_helps_itself() -> None:
    """With as many features as images a fit that saw an image would reconstruct it."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(90, 200)).astype("f")
    assert separation(features, ["a", "b", "c"] * 30).apart < 0.62


def test_left_out_does_not_look_at_lengths() -> None:
    """Lengths of features change from image to image, and the verdict forgets them."""
    features, labels = sample()
    longer = features * np.exp(np.random.default_rng(3).normal(0, 1, size=(len(features), 1)))
    one, other = separation(features, labels), separation(longer.astype("f"), labels)
    assert other.left_out == pytest.approx(one.left_out, abs=1e-4)


def test_agreement_is_one_with_itself_and_falls_with_the_difference() -> None:
    features, labels = sample()
    first = separation(features, labels)
    near = separation(blurred(features, 0.1), labels)
    far = separation(blurred(features, 2.0), labels)
    assert first.agreement(first) == pytest.approx(1.0)
    assert 1 > near.agreement(first) > far.agreement(first)


def test_the_same_seed_gives_the_same_figures_and_the_input_stays_as_it_was() -> None:
    features, labels = sample()
    before = features.copy()
    one, other = separation(features, labels, seed=5), separation(features, labels, seed=5)
    np.testing.assert_array_equal(features, before)
    assert (one.apart, one.left_out) == (other.apart, other.left_out)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_images_without_a_label_are_refused() -> None:
    features, labels = sample(each=5)
    with pytest.raises(MissingLabels):
        separation(features, ["", *labels[1:]])
