"""The short way through plain JPEGs gives what the long way gives, or leaves them to it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from monitor.images.decode import MAX_ASPECT, MAX_PIXELS, Decoded, Decoding, _decode_with_pillow
from monitor.images.jpeg import decode_plain_jpeg


def jpeg(height: int, width: int, *, mode: str = "RGB", seed: int = 0, **options: object) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    image.convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def short_way(data: bytes, min_side: int | None = None) -> Decoded | None:
    found = decode_plain_jpeg(data, max_pixels=MAX_PIXELS, max_aspect=MAX_ASPECT, min_side=min_side)
    return None if found is None else Decoded(*found)


@given(
    height=st.integers(1, 700),
    width=st.integers(1, 700),
    mode=st.sampled_from(["RGB", "L"]),
    quality=st.sampled_from([20, 75, 95]),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
    min_side=st.sampled_from([None, 20, 64, 512]),
)
@settings(max_examples=60, deadline=None)
def test_the_same_pixels_as_pillow(
    height: int,
    width: int,
    mode: str,
    quality: int,
    subsampling: int,
    progressive: bool,
    min_side: int | None,
) -> None:
    data = jpeg(
        height, width, mode=mode, quality=quality, subsampling=subsampling, progressive=progressive
    )
    ours = short_way(data, min_side)
    theirs = _decode_with_pillow(data, "JPEG", Decoding(), min_side)
    if max(height, width) > MAX_ASPECT * min(height, width):
        assert ours is None
        return
    assert ours is not None
    assert isinstance(theirs, Decoded)
    assert ours.size == theirs.size == (width, height)
    assert np.array_equal(ours.pixels, theirs.pixels)


def exif(orientation: int) -> bytes:
    note = Image.Exif()
    note[0x0112] = orientation
    return note.tobytes()


@pytest.mark.parametrize(
    "data",
    [
        jpeg(40, 60, exif=exif(6)),
        jpeg(40, 60, exif=exif(1)),
        jpeg(40, 60, mode="CMYK"),
        jpeg(40, 60)[:-40],
        jpeg(40, 60)[:30],
        b"\xff\xd8\xff\xe0" + bytes(50),
        b"",
    ],
    ids=["turned", "noted", "cmyk", "cut short", "header only", "garbled", "nothing"],
)
def test_what_is_not_plain_is_left_to_the_long_way(data: bytes) -> None:
    assert short_way(data) is None


def test_what_is_too_large_is_left_to_the_long_way() -> None:
    data = jpeg(100, 100)
    assert decode_plain_jpeg(data, max_pixels=9_999, max_aspect=50, min_side=None) is None
    assert decode_plain_jpeg(data, max_pixels=10_000, max_aspect=50, min_side=None) is not None
