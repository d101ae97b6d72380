"""Engines: every backbone through every engine passes one suite, and engines agree."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from monitor.backbones import engine as engine_module
from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import (
    Features,
    Images,
    Precision,
    Runtime,
    available_threads,
    has_fast_bfloat16,
    open_engine,
)
from monitor.backbones.errors import EngineFailure, EngineUnavailable
from monitor.backbones.malloc import keep_freed_memory
from tests.feed.checks import check_engine, distance, random_images

BACKBONES = ["tiny", "tiny+multi", "test_vit@random", "test_efficientnet+multi@random", "embedded"]


@pytest.mark.parametrize("runtime", ["torch", "openvino"])
@pytest.mark.parametrize("text", BACKBONES)
def test_every_backbone_on_every_engine(text: str, runtime: Runtime, tmp_path: Path) -> None:
    backbone = load_backbone(BackboneSpec.parse(text))
    with open_engine(backbone, runtime=runtime, threads=2, cache=tmp_path) as engine:
        assert engine.runtime == runtime
        check_engine(engine)


@pytest.mark.parametrize("text", BACKBONES)
def test_engines_agree_and_share_a_fingerprint(text: str, tmp_path: Path) -> None:
    backbone = load_backbone(BackboneSpec.parse(text))
    with (
        open_engine(backbone, runtime="torch", threads=1) as one,
        open_engine(backbone, runtime="openvino", threads=1, cache=tmp_path) as other,
    ):
        images = random_images(one, 4)
        assert distance(other.embed(images), one.embed(images)) < 1e-4
        assert one.fingerprint == other.fingerprint


def test_openvino_repeats_to_the_bit_whatever_the_batch(tmp_path: Path) -> None:
    backbone = load_backbone(BackboneSpec("embedded"))
    with open_engine(backbone, runtime="openvino", threads=2, cache=tmp_path) as engine:
        images = random_images(engine, 5)
        alone = np.concatenate([engine.embed(images[i : i + 1]) for i in range(5)])
        assert np.array_equal(engine.embed(images), alone)


def test_the_engine_computes_what_the_network_does() -> None:
    backbone = load_backbone(BackboneSpec("embedded"))
    with open_engine(backbone, runtime="torch", threads=1) as engine:
        images = random_images(engine, 2)
        recipe = backbone.preprocessing
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (recipe.mean, recipe.std))
        with torch.inference_mode():
            expected = backbone.network((pixels - mean) / std).numpy()
        assert distance(engine.embed(images), expected) < 1e-5


def test_a_translated_graph_is_kept_and_gives_the_same_features(tmp_path: Path) -> None:
    backbone = load_backbone(BackboneSpec("tiny"))
    with open_engine(backbone, runtime="openvino", threads=1, cache=tmp_path) as engine:
        images = random_images(engine, 3)
        fresh = engine.embed(images)
    [kept] = (tmp_path / "openvino").iterdir()
    assert sorted(file.name for file in kept.iterdir()) == ["graph.bin", "graph.xml"]
    with open_engine(backbone, runtime="openvino", threads=1, cache=tmp_path) as engine:
        assert np.array_equal(engine.embed(images), fresh)


def test_openvino_meets_numpy_first_in_the_thread_that_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first calls at once can wait for each other for ever, too rarely to be provoked."""
    from monitor.backbones.engine_openvino import OpenVinoEngine

    threads: list[threading.Thread] = []
    request = OpenVinoEngine._request

    def watched(self: OpenVinoEngine, part: Images) -> Features:
        threads.append(threading.current_thread())
        return request(self, part)

    monkeypatch.setattr(OpenVinoEngine, "_request", watched)
    backbone = load_backbone(BackboneSpec("tiny"))
    open_engine(backbone, runtime="openvino", threads=2, cache=tmp_path).close()
    assert threads == [threading.current_thread()]


def test_the_translator_does_not_phone_home(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from monitor.backbones.backbone import load_backbone\n"
        "from monitor.backbones.engine import open_engine\n"
        "from monitor.backbones.backbone_spec import BackboneSpec\n"
        "open_engine(load_backbone(BackboneSpec('tiny')), runtime='openvino', "
        "cache=Path(sys.argv[1])).close()\n"
        "print(sys.modules.get('openvino_telemetry'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize("runtime", ["torch", "openvino"])
def test_bfloat16_is_near_and_has_its_own_fingerprint(runtime: Runtime, tmp_path: Path) -> None:
    if runtime == "openvino" and not has_fast_bfloat16(runtime):
        pytest.skip("this processor has no bfloat16")
    backbone = load_backbone(BackboneSpec("tiny"))
    with (
        open_engine(backbone, runtime=runtime, precision="float32", cache=tmp_path) as exact,
        open_engine(backbone, runtime=runtime, precision="bfloat16", cache=tmp_path) as rough,
    ):
        images = random_images(exact, 8)
        assert distance(rough.embed(images), exact.embed(images)) < 0.02
        # Each library rounds in its own places: their features are not interchangeable.
        said = {"torch": "bfloat16-torch", "openvino": "bfloat16"}[runtime]
        assert rough.fingerprint.precision == said
        assert rough.fingerprint.digest() != exact.fingerprint.digest()


def test_a_cpu_computes_in_float32_unless_told_otherwise() -> None:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch") as engine:
        assert engine.fingerprint.precision == "float32"


def test_opening_an_engine_leaves_the_backbone_as_it_was() -> None:
    backbone = load_backbone(BackboneSpec("test_resnet", "random"))
    layouts = [value.stride() for value in backbone.network.state_dict().values()]
    open_engine(backbone, runtime="torch").close()
    assert [value.stride() for value in backbone.network.state_dict().values()] == layouts


@pytest.mark.parametrize(
    ("runtime", "precision", "word"),
    [
        ("torch", "float16", "slower"),
        ("openvino", "float16", "slower"),
        ("tpu", "auto", "openvino"),
        ("torch", "int3", "bfloat16"),
    ],
)
def test_what_cannot_run_is_refused(runtime: Runtime, precision: Precision, word: str) -> None:
    with pytest.raises(EngineUnavailable, match=word):
        open_engine(load_backbone(BackboneSpec("tiny")), runtime=runtime, precision=precision)


def test_a_missing_gpu_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineUnavailable, match="no GPU"):
        open_engine(load_backbone(BackboneSpec("tiny")), runtime="cuda")


def test_without_openvino_torch_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    without = lambda name: None if name == "openvino" else find(name)  # noqa: E731
    monkeypatch.setattr(engine_module, "find_spec", without)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    backbone = load_backbone(BackboneSpec("tiny"))
    with open_engine(backbone) as engine:
        assert engine.runtime == "torch"
    with pytest.raises(EngineUnavailable, match="pip install"):
        open_engine(backbone, runtime="openvino")


def test_an_engine_without_any_finite_feature_is_an_error() -> None:
    backbone = load_backbone(BackboneSpec("tiny"))
    next(backbone.network.parameters()).data.fill_(float("inf"))
    with (
        open_engine(backbone, runtime="torch") as engine,
        pytest.raises(EngineFailure, match="no finite feature for any of 4 images"),
    ):
        engine.embed(random_images(engine, 4))


def test_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert available_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert available_threads() >= 1


def test_the_allocator_takes_its_settings_on_glibc() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


_OPENS_AT_ONCE = """
import sys, threading
import numpy as np
from pathlib import Path
from monitor.backbones.backbone import load_backbone
from monitor.backbones.engine import open_engine
from monitor.backbones.backbone_spec import BackboneSpec
backbone = load_backbone(BackboneSpec("tiny"))
images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
gate, found = threading.Barrier(2), []
def opens():
    gate.wait()
    with open_engine(backbone, runtime="openvino", threads=1, cache=Path(sys.argv[1])) as engine:
        found.append(engine.embed(images).tobytes().hex())
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=opens) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*found, flush=True)
"""


def test_processes_and_threads_may_open_the_same_backbone_at_once(tmp_path: Path) -> None:
    """The actors of one machine start together, and on a new machine the cache is empty."""
    command = [sys.executable, "-c", _OPENS_AT_ONCE, str(tmp_path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    told = [child.communicate(timeout=240)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert [len(features) for features in told] == [2, 2]
    assert len({features for both in told for features in both}) == 1
    # One translated network, and nothing half done beside it.
    assert len(list((tmp_path / "openvino").iterdir())) == 1
