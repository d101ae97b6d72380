"""Weights are brought once, proven, and never asked of the network again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import safetensors.torch

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.cli.root import run

NAME = "mobilenetv3_small_050"


@pytest.fixture(autouse=True)
def _no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    # A port that nobody listens on: the hub is out of reach.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_file_from_elsewhere_serves_from_then_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = load_backbone(BackboneSpec(NAME, "random"))
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(made.network.state_dict(), file)
    assert run(["backbone", "fetch", NAME, "--from", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sha256"] == made.weights
    assert found["dimension"] == made.dimension
    file.unlink()
    assert load_backbone(BackboneSpec(NAME, sha256=made.weights)).weights == made.weights


def test_other_weights_than_the_pinned_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = load_backbone(BackboneSpec(NAME, "random"))
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(made.network.state_dict(), file)
    assert run(["backbone", "fetch", NAME, "--from", str(file), "--sha256", "0" * 64]) == 2
    assert "was asked for" in capsys.readouterr().err
    assert not (tmp_path / "cache/weights").exists()


def test_a_hub_out_of_reach_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert run(["backbone", "fetch", NAME]) == 2
    assert time.monotonic() - began < 60  # its client would try for minutes
    [line] = capsys.readouterr().err.splitlines()
    assert f"conclad backbone fetch {NAME} --from FILE" in line
    assert "'embedded', which needs no network" in line


def test_the_list_needs_no_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backbone", "list", "--json", "-q"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["embedded"]["dimension"] == 1280
    assert (found["embedded"]["here"], found["dino-vits16"]["here"]) == (True, False)
    assert found["tiny"]["images_per_second"] is None
