"""A stream of encoded images becomes features: in order, bounded, every image accounted for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec
from monitor.backbones.embed_images import embed_images
from monitor.backbones.engine import Engine, Features, open_engine
from monitor.images.decode import Decoded, decode
from monitor.images.reject_reasons import Reason
from tests.feed.make import encoded, picture

GOOD = [encoded(picture(40 + i, 50, seed=i), "JPEG") for i in range(6)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch", threads=1) as opened:
        yield opened


def expected(engine: Engine, data: bytes) -> Features:
    found = decode(data, engine.decoding)
    assert isinstance(found, Decoded)
    return engine.embed(engine.backbone.preprocessing.apply(found.pixels)[None])


@given(
    kinds=st.lists(st.integers(-1, len(GOOD) - 1), max_size=25),
    batch=st.integers(1, 9),
    workers=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_every_image_comes_out_once_and_in_order(
    kinds: list[int], batch: int, workers: int
) -> None:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch", threads=1) as engine:
        stream = [(i, b"broken" if kind < 0 else GOOD[kind]) for i, kind in enumerate(kinds)]
        found = list(embed_images(stream, engine, batch=batch, workers=workers))
        keys = [key for part in found for key in part.keys]
        assert keys == [i for i, kind in enumerate(kinds) if kind >= 0]
        bad = [key for part in found for key, _ in part.rejected]
        assert bad == [i for i, kind in enumerate(kinds) if kind < 0]
        rows = [row for part in found for row in part.features]
        for key, row in zip(keys, rows, strict=True):
            assert np.allclose(row, expected(engine, GOOD[kinds[key]])[0], rtol=1e-4, atol=1e-5)


def test_a_batch_of_bad_images_is_not_an_error(engine: Engine) -> None:
    [found] = embed_images([("a", b""), ("b", b"GIF89a")], engine)
    assert found.keys == ()
    assert found.features.shape == (0, 64)
    assert {why.reason for _, why in found.rejected} == {Reason.UNKNOWN_FORMAT}


def test_reads_no_further_than_it_has_room_for(engine: Engine) -> None:
    taken = 0

    def stream() -> Iterator[tuple[int, bytes]]:
        nonlocal taken
        while True:
            taken += 1
            yield taken, GOOD[0]

    found = embed_images(stream(), engine, batch=2, workers=2)
    for done in range(1, 20):
        next(found)
        # The batches handed out, those with workers, and the one that lies ready.
        assert taken <= 2 * (done + 3)
    found.close()  # type: ignore[attr-defined]


def test_closing_early_leaves_no_thread_behind(engine: Engine) -> None:
    before = threading.active_count()
    found = embed_images(((i, GOOD[0]) for i in range(100)), engine, batch=1, workers=3)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_stream_that_breaks_stops_with_its_own_error(engine: Engine) -> None:
    def stream() -> Iterator[tuple[int, bytes]]:
        yield 0, GOOD[0]
        raise ConnectionError("the bucket is gone")

    with pytest.raises(ConnectionError, match="bucket"):
        list(embed_images(stream(), engine, batch=1))
