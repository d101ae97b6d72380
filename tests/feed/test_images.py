"""Decoding: each kind of image by its rule, and never an exception."""

from __future__ import annotations

import io
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageSequence

from monitor.images.bands import Bands
from monitor.images.decode import Decoded, Decoding, decode
from monitor.images.reject_reasons import Reason, Rejected
from tests.feed.make import encoded, picture


def pixels(data: bytes, settings: Decoding | None = None) -> np.ndarray:
    found = decode(data, settings)
    assert isinstance(found, Decoded), str(found)
    assert found.pixels.dtype == np.uint8
    assert found.pixels.ndim == 3
    return found.pixels


def reason(data: bytes, settings: Decoding | None = None) -> Reason:
    found = decode(data, settings)
    assert isinstance(found, Rejected)
    assert found.detail
    return found.reason


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_lossless_formats_come_back_exactly(kind: str) -> None:
    image = picture()
    data = encoded(image, kind, lossless=True) if kind == "WEBP" else encoded(image, kind)
    np.testing.assert_array_equal(pixels(data), np.asarray(image))


def test_jpeg_comes_back_nearly() -> None:
    image = picture(64, 48)
    difference = pixels(encoded(image, quality=95)).astype(int) - np.asarray(image).astype(int)
    assert np.abs(difference).mean() < 6


@pytest.mark.parametrize("kind", ["GIF", "BMP", "ICO", "PPM", "JPEG2000", "AVIF"])
def test_other_formats_are_refused_by_their_first_bytes(kind: str) -> None:
    assert reason(encoded(picture(), kind)) is Reason.UNKNOWN_FORMAT


@pytest.mark.parametrize("data", [b"", b"\xff", b"<svg/>", b"%PDF-1.7", b"%!PS-Adobe"])
def test_things_that_are_no_images(data: bytes) -> None:
    assert reason(data) is Reason.UNKNOWN_FORMAT


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_truncated_images_are_rejected(kind: str, share: float) -> None:
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8))
    data = encoded(noise, kind)
    assert reason(data[: int(len(data) * share)]) in (Reason.TRUNCATED, Reason.CORRUPT)


def test_the_size_is_checked_before_a_pixel_is_decoded() -> None:
    """A PNG of four gigapixels in a few bytes is refused without work."""
    header = struct.pack(">IIBBBBB", 65_000, 65_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    assert reason(bomb) is Reason.TOO_LARGE


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_the_limit_of_pixels_is_the_setting(kind: str) -> None:
    data = encoded(picture(40, 30), kind)
    assert reason(data, Decoding(max_pixels=1199)) is Reason.TOO_LARGE
    assert pixels(data, Decoding(max_pixels=1200)).shape == (30, 40, 3)


def test_a_webp_canvas_is_refused_before_memory_is_taken_for_it() -> None:
    body = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (16_382).to_bytes(3, "little") * 2
    data = b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body
    assert reason(data) is Reason.TOO_LARGE


def test_a_jpeg_of_a_thousand_scans_is_refused_at_once() -> None:
    data = encoded(picture(256, 256), progressive=True)
    start = data.rindex(b"\xff\xda")
    trap = data[:start] + data[start:-2] * 1000 + data[-2:]
    began = time.process_time()
    assert reason(trap) is Reason.TOO_LARGE
    assert time.process_time() - began < 0.5
    assert pixels(data).shape == (256, 256, 3)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_animations_and_pages_are_rejected(kind: str) -> None:
    frames = [picture(seed=1), picture(seed=2)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert len(list(ImageSequence.Iterator(Image.open(io.BytesIO(data))))) == 2
    assert reason(data) is Reason.SEVERAL_FRAMES


def test_overviews_in_a_tiff_are_not_pages() -> None:
    whole = np.asarray(picture(64, 64))
    out = io.BytesIO()
    with tifffile.TiffWriter(out) as writer:
        writer.write(whole, photometric="rgb")
        writer.write(whole[::2, ::2], photometric="rgb", subfiletype=1)
    np.testing.assert_array_equal(pixels(out.getvalue()), whole)


def test_cmyk_becomes_rgb() -> None:
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert np.abs(pixels(encoded(red)).astype(int) - [255, 0, 0]).max() < 6
    np.testing.assert_array_equal(pixels(encoded(red, "TIFF"))[0, 0], [255, 0, 0])


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_high_byte(kind: str) -> None:
    grey = np.array([[0, 255, 256, 0x7FFF, 0xFFFF]] * 5, np.uint16)
    expected = np.repeat((grey >> 8)[..., None], 3, axis=2)
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(grey), kind)), expected)


def test_grey_bilevel_and_palette_become_rgb() -> None:
    grey = picture().convert("L")
    np.testing.assert_array_equal(pixels(encoded(grey, "PNG"))[..., 1], np.asarray(grey))
    black_and_white = Image.new("1", (8, 8), 1)
    assert pixels(encoded(black_and_white, "PNG")).min() == 255
    palette = picture().quantize(16)
    np.testing.assert_array_equal(
        pixels(encoded(palette, "PNG")), np.asarray(palette.convert("RGB"))
    )


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_what_is_transparent_shows_the_background(kind: str) -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 4, 8))
    data = encoded(image, kind, lossless=True) if kind == "WEBP" else encoded(image, kind)
    found = pixels(data)
    np.testing.assert_array_equal(found[0, 0], [0, 0, 255])
    np.testing.assert_array_equal(found[0, 7], [128, 128, 128])
    np.testing.assert_array_equal(pixels(data, Decoding(background=(1, 2, 3)))[0, 7], [1, 2, 3])


@pytest.mark.parametrize("mode", ["LA", "P", "L", "RGB"])
def test_transparency_of_other_kinds(mode: str) -> None:
    if mode == "LA":
        data = encoded(Image.new("LA", (4, 4), (200, 0)), "PNG")
    else:
        data = encoded(
            Image.new(mode, (4, 4)), "PNG", transparency=(0, 0, 0) if mode == "RGB" else 0
        )
    np.testing.assert_array_equal(pixels(data)[0, 0], [128, 128, 128])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_cameras_held_sideways_are_turned_upright(kind: str, orientation: int) -> None:
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    upright = Image.new("RGB", (64, 32), (0, 0, 255))
    upright.paste((255, 0, 0), (0, 0, 32, 16))
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = pixels(encoded(stored, kind, exif=exif))
    assert found.shape == (32, 64, 3)
    assert np.abs(found[4, 4].astype(int) - [255, 0, 0]).max() < 10
    assert np.abs(found[-4, -4].astype(int) - [0, 0, 255]).max() < 10


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_garbled_exif_does_not_lose_the_image() -> None:
    data = encoded(picture(), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff garbled")
    assert pixels(data).shape == (24, 32, 3)


@pytest.mark.parametrize(("width", "height"), [(1, 60), (600, 2)])
def test_strips_are_rejected(width: int, height: int) -> None:
    assert reason(encoded(Image.new("RGB", (width, height)), "PNG")) is Reason.BAD_SHAPE


def test_a_single_pixel_is_an_image() -> None:
    assert pixels(encoded(Image.new("RGB", (1, 1)), "PNG")).shape == (1, 1, 3)


def test_modes_without_a_rule_are_refused() -> None:
    assert reason(encoded(Image.new("LAB", (8, 8)), "TIFF")) is Reason.UNSUPPORTED_PIXELS


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1024, 1024), (256, 256)), ((1920, 1080), (480, 270)), ((300, 700), (300, 700))],
)
def test_jpeg_is_decoded_small_but_never_below_the_smallest_side(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    found = decode(encoded(picture(*size)), min_side=256)
    assert isinstance(found, Decoded)
    assert found.pixels.shape == (expected[1], expected[0], 3)
    assert found.size == size


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 300))
def test_scaled_decoding_covers_what_was_asked(width: int, height: int, side: int) -> None:
    found = decode(encoded(Image.new("RGB", (width, height))), min_side=side)
    if max(width, height) > 50 * min(width, height):
        assert isinstance(found, Rejected)
        return
    assert isinstance(found, Decoded)
    assert min(found.pixels.shape[:2]) >= min(side, width, height)


def test_scaled_decoding_is_several_times_faster_than_whole() -> None:
    data = encoded(picture(1024, 1024), quality=90)

    def seconds(min_side: int | None) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.process_time()
            decode(data, min_side=min_side)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(256) < 0.6 * seconds(None)


def test_threads_decode_side_by_side_and_agree() -> None:
    images = [encoded(picture(seed=seed), kind) for seed in range(20) for kind in ("JPEG", "PNG")]
    alone = [pixels(data) for data in images]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(pixels, images))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="max_pixels"):
        Decoding(max_pixels=10**12)
    with pytest.raises(ValueError, match="background"):
        Decoding(background=(0, 0, 256))
    with pytest.raises(ValueError, match="counted from 1"):
        Bands((0, 1, 2), (0, 1))
    with pytest.raises(ValueError, match="lower one first"):
        Bands((1, 2, 3), (5, 5))
    with pytest.raises(ValueError, match="between 0 and 100"):
        Bands((1, 2, 3), (2, 200), "percentile")
