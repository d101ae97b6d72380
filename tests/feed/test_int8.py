"""The embedded backbone in 8-bit integers: near float32, repeatable, and refused elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from monitor.backbones import engine as engine_module
from monitor.backbones import int8_ranges, openvino_graph
from monitor.backbones.backbone import Backbone, load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.engine import Runtime, cheaper_precisions, has_fast_int8, open_engine
from monitor.backbones.errors import EngineUnavailable
from monitor.images.decode import decode
from monitor.images.reject_reasons import Rejected
from tests.feed.checks import check_engine, distance, random_images
from tests.jobs.feeds import COLOURS, picture

SIZE = 64
VNNI = {"avx512_vnni"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, for translating the network takes seconds."""
    return tmp_path_factory.mktemp("cache")


def embedded(text: str = "embedded") -> Backbone:
    spec = BackboneSpec.parse(text)
    return load_backbone(BackboneSpec(spec.name, layers=spec.layers, size=SIZE))


def need_integers() -> None:
    if not has_fast_int8("openvino", embedded()):
        pytest.skip("this processor does not compute in int8")


def test_int8_passes_the_suite_of_all_engines(cache: Path) -> None:
    need_integers()
    with open_engine(embedded(), precision="int8", threads=2, cache=cache) as engine:
        check_engine(engine)


@pytest.mark.parametrize("text", ["embedded", "embedded+depths"])
def test_int8_is_near_float32(text: str, cache: Path) -> None:
    need_integers()
    backbone = embedded(text)
    kinds = [decode(picture(kind, i, SIZE)) for i, kind in enumerate([*COLOURS] * 2)]
    images = np.stack([one.pixels for one in kinds if not isinstance(one, Rejected)])
    with (
        open_engine(backbone, precision="float32", threads=2, cache=cache) as exact,
        open_engine(backbone, precision="int8", threads=2, cache=cache) as rough,
    ):
        near, far = rough.embed(images), exact.embed(images)
        assert distance(near, far) < 0.35
        apart = np.linalg.norm(near[:, None] - far[None], axis=2)
        assert (apart.argmin(axis=1) % len(COLOURS)).tolist() == [*range(len(COLOURS))] * 2


def test_a_feature_is_the_same_to_the_bit_in_any_batch_and_process(cache: Path) -> None:
    need_integers()
    with open_engine(embedded(), precision="int8", threads=2, cache=cache) as engine:
        images = random_images(engine, 19)
        alone = np.concatenate([engine.embed(images[i : i + 1]) for i in range(len(images))])
        assert np.array_equal(engine.embed(images), alone)
    with open_engine(embedded(), precision="int8", threads=1, cache=cache) as again:
        assert np.array_equal(again.embed(images), alone)


def test_the_ranges_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = embedded()
    said = backbone.fingerprint("int8")
    assert said.precision == "int8"
    assert said.input_size == SIZE
    assert "int8" not in json.loads(backbone.fingerprint("float32").preprocessing)
    ranges = int8_ranges.RANGES[backbone.weights]
    monkeypatch.setitem(int8_ranges.RANGES, backbone.weights, (*ranges[:-1], ranges[-1] * 2))
    assert backbone.fingerprint("int8") != said


def test_the_shipped_ranges_do_not_change() -> None:
    assert int8_ranges.int8_mark(embedded().weights) == "0e7b7a6934447368"


@pytest.mark.parametrize(
    ("name", "runtime", "flags", "word"),
    [
        ("tiny", "openvino", VNNI, "'tiny' is not prepared for int8"),
        ("embedded", "torch", VNNI, "runs on engine 'openvino'"),
        ("embedded", "openvino", {"avx512f", "avx512_bf16"}, "AVX512-VNNI"),
    ],
)
def test_what_cannot_compute_in_int8_is_told_and_never_chosen(
    name: str, runtime: Runtime, flags: set[str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_processor_flags", lambda: flags)
    backbone = load_backbone(BackboneSpec(name))
    with pytest.raises(EngineUnavailable, match=word):
        open_engine(backbone, runtime=runtime, precision="int8")
    assert "int8" not in cheaper_precisions(runtime, backbone)


def test_a_graph_that_openvino_would_run_in_float32_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_integers()
    monkeypatch.setattr(openvino_graph, "computed_in_int8", lambda model: 3)
    with pytest.raises(EngineUnavailable, match="3 of 49 convolutions"):
        open_engine(embedded(), precision="int8", cache=cache)


def test_ranges_of_another_network_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_processor_flags", lambda: VNNI)
    backbone = load_backbone(BackboneSpec("tiny"))
    monkeypatch.setitem(int8_ranges.RANGES, backbone.weights, (1.0, 6.0))
    with pytest.raises(EngineUnavailable, match="2 convolutions, but this one has 3"):
        open_engine(backbone, runtime="openvino", precision="int8", cache=tmp_path)
