"""Frames that show nothing new share features; anything else is embedded."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from monitor.backbones import embed_images as under_test
from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.embed_images import Embedded, Reuse, embed_frames
from monitor.backbones.engine import Engine, open_engine
from monitor.images.decode import Decoded, Decoding
from monitor.images.isolated_decoding import decoders_for
from monitor.images.unchanged_frames import CELLS, Unchanged, find_unchanged, frame_signature

WIDTH, HEIGHT = 320, 240


def scene(seed: int = 0) -> np.ndarray:
    """A picture with coarse structure, like a view."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(30, 220, (8, 10, 3), dtype=np.uint8))
    return np.asarray(small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(float)


def frame(view: np.ndarray, seed: int, noise: float = 3.0) -> bytes:
    pixels = view + np.random.default_rng([7, seed]).normal(0, noise, view.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def with_object(view: np.ndarray, side: int = 12, at: tuple[int, int] = (0, 0)) -> np.ndarray:
    changed = view.copy()
    changed[at[0] : at[0] + side, at[1] : at[1] + side] = (240, 20, 20)
    return changed


def signatures(frames: list[bytes]) -> list[Decoded | None]:
    return decoders_for(Decoding()).signatures(frames)


def found(frames: list[bytes]) -> Unchanged:
    return find_unchanged(signatures(frames))


def test_quiet_frames_are_the_first_one_but_for_the_one_that_differs_most() -> None:
    unchanged = found([frame(scene(), seed) for seed in range(24)])
    assert unchanged.checked is not None
    assert unchanged.copies == 22
    assert set(unchanged.same_as) == {None, 0}
    assert unchanged.same_as[unchanged.checked[0]] is None
    assert unchanged.bound is not None
    assert 2 <= unchanged.bound <= 12


@pytest.mark.parametrize("at", [(0, 0), (HEIGHT - 12, WIDTH - 12), (50, 70)])
def test_something_small_anywhere_is_a_change(at: tuple[int, int]) -> None:
    view = scene()
    changed = with_object(view, at=at)
    frames = [frame(changed if seed == 10 else view, seed) for seed in range(24)]
    same_as = found(frames).same_as
    assert same_as[10] is None
    assert {same_as[i] for i in range(11, 24)} <= {None, 0}, "what was there before is there again"


def test_a_slow_change_adds_up() -> None:
    frames = [frame(scene() + step, step, noise=1.0) for step in range(40)]
    unchanged = found(frames)
    assert unchanged.bound is not None
    embedded = [i for i, other in enumerate(unchanged.same_as) if other is None]
    assert len(embedded) >= 40 / (unchanged.bound + 2), "each step alone is below the bound"
    for index, other in enumerate(unchanged.same_as):
        assert other is None or abs(index - other) <= unchanged.bound + 3


def test_a_moving_picture_shares_nothing() -> None:
    unchanged = found([frame(scene(seed), seed) for seed in range(12)])
    assert (unchanged.copies, unchanged.bound) == (0, None)


def test_too_few_frames_share_nothing() -> None:
    assert found([frame(scene(), seed) for seed in range(6)]).copies == 0


def test_another_size_is_another_picture() -> None:
    frames = [frame(scene(), seed) for seed in range(16)]
    frames[8] = frame(scene()[: HEIGHT // 2], 8)
    assert found(frames).same_as[8] is None


def test_what_cannot_be_decoded_has_no_signature() -> None:
    frames = [frame(scene(), 0), b"no image", frame(scene(), 0)[:900]]
    first, second, third = signatures(frames)
    assert first is not None
    assert first.pixels.shape == (CELLS, CELLS, 3)
    assert first.size == (WIDTH, HEIGHT)
    assert second is third is None


def test_a_signature_is_the_mean_of_its_cells() -> None:
    pixels = np.zeros((2 * CELLS, 4 * CELLS, 3), np.uint8)
    pixels[:2, :4] = 200
    assert frame_signature(pixels)[0, 0].tolist() == [200] * 3
    assert frame_signature(pixels)[0, 1].tolist() == [0] * 3


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch") as opened:
        yield opened


def embedded(
    frames: list[bytes], engine: Engine, reuse: Reuse = "auto", sources: int = 1
) -> Embedded[int]:
    part = list(enumerate(frames))
    return embed_frames(part, engine, reuse, lambda key: key % sources)


def test_every_frame_is_embedded_a_copy_or_rejected(engine: Engine) -> None:
    view = scene()
    frames = [frame(with_object(view, 40) if i == 9 else view, i) for i in range(32)]
    frames[4] = b"no image"
    one = embedded(frames, engine)
    copies = {key for key, _ in one.copies}
    assert sorted([*one.keys, *copies, *(key for key, _ in one.rejected)]) == list(range(32))
    assert [key for key, _ in one.rejected] == [4]
    assert {0, 9} <= set(one.keys)
    assert len(one.keys) == len(one.features) == len(one.stats) == 3
    ((checked, other),) = one.checked
    assert one.keys[other] == 0
    assert one.keys[checked] not in (0, 9)


def test_whoever_does_it_again_comes_to_the_same(engine: Engine) -> None:
    frames = [frame(with_object(scene()) if i % 9 == 5 else scene(), i) for i in range(32)]
    first, second = embedded(frames, engine), embedded(frames, engine)
    assert (first.keys, first.copies, first.checked) == (second.keys, second.copies, second.checked)
    assert np.array_equal(first.features, second.features)
    every = embedded(frames, engine, "never")
    assert np.allclose(first.features, every.features[list(first.keys)], atol=1e-5)


def test_never_embeds_all(engine: Engine) -> None:
    one = embedded([frame(scene(), i) for i in range(16)], engine, "never")
    assert (one.keys, one.copies) == (tuple(range(16)), ())


def test_sources_are_compared_by_themselves(engine: Engine) -> None:
    frames = [frame(scene(i % 2), i) for i in range(32)]
    one = embedded(frames, engine, sources=2)
    assert one.keys[:2] == (0, 1)
    assert all(key % 2 == one.keys[other] % 2 for key, other in one.copies)
    assert len(one.copies) == 28


def test_auto_looks_no_further_where_frames_differ(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(frames: object) -> Unchanged:
        raise AssertionError("all frames were looked at")

    monkeypatch.setattr(under_test, "find_unchanged", refused)
    assert len(embedded([frame(scene(i), i) for i in range(16)], engine).keys) == 16
    with pytest.raises(AssertionError, match="all frames"):
        embedded([frame(scene(i), i) for i in range(16)], engine, "always")


def test_where_features_differ_nothing_is_shared(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "OTHER_FEATURES", 0.0)
    one = embedded([frame(scene(), i) for i in range(16)], engine)
    assert (one.keys, one.copies, one.checked) == (tuple(range(16)), (), ())
    assert len(one.stats) == 16
