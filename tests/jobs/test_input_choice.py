"""A first fit takes the cheapest precision and size that cost nothing, and the state keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import Engine, Features, Images, Precision
from monitor.config import Config
from monitor.feed.labelled_dataset import LabelledImage, sample_dataset
from monitor.images.decode import Decoding
from monitor.jobs.fit_detector import fit
from monitor.jobs.from_config import as_fitted, open_existing_store, with_input
from monitor.jobs.input_choice import EngineChoice, choose_input
from monitor.jobs.score_files import score
from monitor.store.errors import BackboneMismatch
from tests.jobs.feeds import COLOURS, config_for, picture, write_feed

BACKBONE = load_backbone(BackboneSpec("test_resnet", "random"))


class NoisyEngine(Engine):
    """Sees the mean colour of an image, with noise that grows as told."""

    runtime, batch, workers = "torch", 32, 1

    def __init__(self, precision: str, size: int, noise: float) -> None:
        backbone = load_backbone(BackboneSpec("test_resnet", "random", size=size))
        super().__init__(backbone, precision, Decoding())
        self._noise = noise
        self._rng = np.random.default_rng(0)

    def _run(self, images: Images) -> Features:
        colour = images.reshape(len(images), -1, 3).mean(axis=1) / 25
        features = np.zeros((len(images), self.fingerprint.dimension), np.float32)
        features[:, :3] = colour
        features[:, :9] += self._rng.normal(0, self._noise, (len(images), 9))
        return features


def choose(noise: dict[tuple[str, int], float], edge: int = 32, each: int = 40) -> EngineChoice:
    samples = [
        LabelledImage(f"{kind}-{i}", kind, "", picture(kind, i, edge))
        for kind in COLOURS
        for i in range(each)
    ]

    def open_at(precision: Precision, size: int) -> Engine:
        return NoisyEngine(precision, size, noise.get((precision, size), 0.1))

    return choose_input(samples, BACKBONE, open_at, cheaper=("int8", "bfloat16"), sizes=True)


OWN = BACKBONE.preprocessing.size


def test_what_costs_nothing_is_taken() -> None:
    found = choose({})
    assert (found.precision, found.native) == ("int8", 32)
    assert found.size == min(tried.size for tried in found.tried) < OWN


def test_a_precision_that_blurs_the_classes_is_not_taken() -> None:
    blurred = {("int8", size): 5.0 for size in range(32, 300, 32)}
    assert choose(blurred).precision == "bfloat16"
    found = choose(blurred | {("bfloat16", size): 5.0 for size in range(32, 300, 32)})
    assert found.precision == "float32"
    assert [t.precision for t in found.tried[:3]] == ["float32", "int8", "bfloat16"]
    assert {t.precision for t in found.tried[3:]} == {"float32"}


def test_sizes_that_blur_the_classes_are_passed_over() -> None:
    smallest, *larger = sorted({tried.size for tried in choose({}).tried})
    found = choose({("int8", smallest): 5.0})
    assert found.size == larger[0]


def test_images_of_the_backbones_size_are_not_shrunk() -> None:
    assert choose({}, edge=OWN).size == OWN


def test_too_few_images_leave_the_backbone_as_it_was_trained() -> None:
    found = choose({}, each=5)
    assert (found.precision, found.size, found.tried) == ("float32", OWN, ())


def test_a_fitted_state_goes_on_as_it_was_fitted(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    labelled = write_feed(tmp_path / "labelled.parquet", ["water", "forest"] * 60)
    first = fit(with_input(config, "float32", None), [labelled])
    assert first.precision == "float32"
    with open_existing_store(config) as store:
        resolved = as_fitted(config, store)
    assert (resolved.backbone.precision, resolved.backbone.size) == ("float32", 32)
    again = fit(config, [labelled])
    assert (again.version, again.is_new, again.choice) == (1, False, None)


def test_another_precision_than_fitted_is_refused(tmp_path: Path, fitted: Config) -> None:
    other = with_input(fitted, "bfloat16-torch", None)
    with pytest.raises(BackboneMismatch, match="precision"):
        score(other, [write_feed(tmp_path / "a.parquet", ["water"] * 4)], tmp_path / "out")


def test_a_sample_is_spread_over_files_sorted_by_class(tmp_path: Path) -> None:
    file = write_feed(tmp_path / "a.parquet", ["water"] * 100 + ["snow"] * 100, row_group_size=50)
    labels = [sample.label for sample in sample_dataset([file], 64)]
    assert len(labels) == 64
    assert labels.count("water") == labels.count("snow")
