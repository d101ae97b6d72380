"""Drift against novelty is measured from images to a report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

import monitor.novelty
from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import open_engine
from monitor.cli.evaluate import evaluate
from monitor.evaluation.errors import ShiftError
from monitor.evaluation.shift import ShiftPlan
from monitor.evaluation.shift_baselines import mmd_p_value
from monitor.evaluation.shift_corruptions import CORRUPTIONS, SEVERITIES, corrupted
from monitor.evaluation.shift_data import Lottery, ShiftedFeatures, seen_through
from monitor.evaluation.shift_run import _digest
from monitor.feed.labelled_dataset import LabelledImage
from monitor.novelty.drift.source_drift import DriftSettings

_BRIEFLY = {**(ShiftPlan.__init__.__kwdefaults__ or {}), "feeds": 1, "days": 5.0}


def png(seed: int, tint: int) -> bytes:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, size=(4, 4, 3)) + 30 * np.array([tint, 3 - tint, tint % 2])
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).resize((32, 32)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shift") / "toy.parquet"
    rows = [(f"class-{c}", png(1000 * c + i, c)) for c in range(4) for i in range(140)]
    table = pa.table(
        {
            "image_id": [str(i) for i in range(len(rows))],
            "label": [label for label, _ in rows],
            "image": [image for _, image in rows],
        }
    )
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_severity_takes_an_image_further_from_itself(name: str) -> None:
    image = np.asarray(Image.open(io.BytesIO(png(1, 2))).resize((64, 64)))
    away = [
        float(
            np.abs(corrupted(image, name, s, np.random.default_rng(0)) - image.astype(float)).mean()
        )
        for s in (0, *SEVERITIES)
    ]
    assert away[0] == 0
    assert np.all(np.diff(away) > 0), away


def test_what_does_not_exist_is_named() -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ShiftError, match="no corruption 'rain'; there are noise, blur"):
        corrupted(image, "rain", 1, np.random.default_rng(0))
    with pytest.raises(ShiftError, match="severity 6"):
        corrupted(image, "noise", 6, np.random.default_rng(0))


def test_images_are_drawn_evenly_from_a_stream() -> None:
    """Late images have the chance of early ones: the mean place is near the middle."""
    places = []
    for seed in range(30):
        lottery = Lottery(5, seed=seed)
        for i in range(100):
            lottery(LabelledImage(str(i), "a", "", b""))
        places += [drawn.row for drawn in lottery.drawn]
    assert 40 < np.mean(places) < 60


def test_features_of_a_worse_camera_are_cached_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path))
    lottery = Lottery(4, seed=0)
    for i in range(4):
        lottery(LabelledImage(str(i), "a", "", png(i, 1)))
    lottery(LabelledImage("broken", "b", "", b"no image"))
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch") as engine:
        noisy, again, dark = (
            seen_through(lottery.drawn, engine, name, 3)
            for name in ("noise", "noise", "brightness")
        )
    assert noisy.labels.tolist() == ["a"] * 4
    np.testing.assert_array_equal(noisy.features, again.features)
    assert np.abs(noisy.features - dark.features).max() > 0


def test_mmd_tells_two_clouds_apart_and_one_cloud_not() -> None:
    rng = np.random.default_rng(0)

    def cloud(mean: float = 0.0) -> NDArray[np.float32]:
        return rng.normal(mean, size=(60, 4)).astype(np.float32)

    same = [mmd_p_value(cloud(), cloud(), rng) for _ in range(10)]
    assert np.mean(np.array(same) < 0.05) <= 0.3
    assert mmd_p_value(cloud(), cloud(0.8), rng) < 0.02


def test_the_command_measures_a_corruption(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    arguments = ["--shift", "--data", str(labelled), "--backbone", "tiny", "--out", str(tmp_path)]
    arguments += ["--initial", "3", "--increment", "1", "--seeds", "0", "--budget", "0.05"]
    arguments += ["--corruption", "brightness", "--severity", "4"]
    # A clean year and a hundred feeds say nothing about the command.
    monkeypatch.setattr(ShiftPlan.__init__, "__kwdefaults__", _BRIEFLY)
    result = CliRunner().invoke(evaluate, arguments)
    assert result.exit_code == 0, result.output
    assert "measuring brightness at severity 4 (2 of 2), seed 0" in result.output
    again = CliRunner().invoke(evaluate, arguments)
    assert again.exit_code == 0, again.output
    assert "measuring" not in again.output, "nothing is measured twice"
    assert again.output.count("new class only: not called drift") == 1
    records = json.loads((tmp_path / "toy" / "shift.json").read_text())
    assert {(r["kind"], r["corruption"]) for r in records} == {
        ("pool", "none"),
        ("watch", "none"),
        ("year", "none"),
        ("pool", "brightness"),
        ("watch", "brightness"),
        ("adapt", "brightness"),
    }
    assert {r["feed"] for r in records if r["kind"] == "watch"} == {"clean", "new", "shifted"}
    assert "MMD per pool" in (tmp_path / "toy" / "shift.md").read_text()
    assert "brightness, 4" in result.output
    shifted = next(r for r in records if r["kind"] == "watch" and r["feed"] == "shifted")
    assert shifted["false_classes"] == 0
    assert 0 < shifted["labels"] <= DriftSettings().confirm_labels
    assert "shifted like the rest" in (tmp_path / "toy" / "shift.md").read_text()
    pool = next(r for r in records if r["kind"] == "pool" and r["corruption"] == "brightness")
    assert pool["new_shifted_every_label"] > 0.9, "four colours, told apart in the dark"
    clean = CliRunner().invoke(evaluate, [*arguments, "--clean-new", "--feeds", "0"])
    assert clean.exit_code == 0, clean.output
    assert "these figures leave out" in (tmp_path / "toy" / "shift.md").read_text()
    records = json.loads((tmp_path / "toy" / "shift.json").read_text())
    assert {r["kind"] for r in records if r["corruption"] == "none"} == {"pool"}


def test_results_of_other_mathematics_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a part of it changes that lies in a folder of its own."""
    clean = ShiftedFeatures(np.zeros((2, 3), np.float32), np.array(["a", "b"]))
    monkeypatch.setattr(monitor.novelty, "__path__", [str(tmp_path)])
    part = tmp_path / "robust" / "graph.py"
    part.parent.mkdir()
    digests = []
    for text in ("k = 1", "k = 2"):
        part.write_text(text)
        digests.append(_digest(ShiftPlan(), clean))
    assert digests[0] != digests[1]


def test_shift_needs_images(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        evaluate, ["--shift", "--features", "x.npz", "--out", str(tmp_path)]
    )
    assert result.exit_code == 2
    assert "--shift needs images" in result.output
