"""Multi-band TIFF: by the configured mapping, or refused with the sentence that says how."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from monitor.images.bands import Bands, stretch
from monitor.images.decode import Decoded, Decoding, decode
from monitor.images.reject_reasons import Reason, Rejected
from tests.feed.make import encoded, picture

SENTINEL = Bands(mapping=(4, 3, 2), stretch=(0, 3000))


def cube(bands: int = 13, dtype: str = "uint16") -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 4000, (64, 48, bands)).astype(dtype)


def tiff(values: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    tifffile.imwrite(out, values, photometric="minisblack", **options)
    return out.getvalue()


def pixels(data: bytes, bands: Bands) -> np.ndarray:
    found = decode(data, Decoding(bands=bands))
    assert isinstance(found, Decoded), str(found)
    return found.pixels


def refused(data: bytes, bands: Bands | None) -> Rejected:
    found = decode(data, Decoding(bands=bands))
    assert isinstance(found, Rejected)
    return found


def expected(values: np.ndarray) -> np.ndarray:
    shown = values[..., [3, 2, 1]].astype(np.float64)
    return np.rint(np.clip(shown / 3000, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint32", "float32", "float64"])
def test_bands_are_mapped_and_stretched(dtype: str) -> None:
    found = pixels(tiff(cube(dtype=dtype), planarconfig="contig"), SENTINEL)
    assert np.abs(found.astype(int) - expected(cube())).max() <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"planarconfig": "separate"},
        {"planarconfig": "contig", "tile": (32, 32)},
        {"planarconfig": "contig", "compression": "deflate"},
        {"planarconfig": "contig", "compression": "deflate", "predictor": True},
        {"planarconfig": "separate", "compression": "deflate", "tile": (16, 16)},
        {"planarconfig": "contig", "rowsperstrip": 5, "compression": "deflate"},
        {"planarconfig": "contig", "bigtiff": True},
        {"planarconfig": "contig", "byteorder": ">"},
    ],
    ids=str,
)
def test_every_way_to_lay_bands_out(options: dict[str, Any]) -> None:
    values = cube()
    if options["planarconfig"] == "separate":
        data = tiff(np.moveaxis(values, -1, 0), **options)
    else:
        data = tiff(values, **options)
    np.testing.assert_array_equal(pixels(data, SENTINEL), expected(values))


def test_one_band_can_be_all_three() -> None:
    thermal = np.linspace(7000, 8000, 64 * 64).reshape(64, 64).astype(np.uint16)
    found = pixels(tiff(thermal), Bands((1, 1, 1), (7000, 8000)))
    assert (found[0, 0, 0], found[-1, -1, 2]) == (0, 255)


def test_plain_images_of_the_same_feed_are_read_as_ever() -> None:
    np.testing.assert_array_equal(
        pixels(encoded(picture(), "PNG"), SENTINEL), np.asarray(picture())
    )


@pytest.mark.parametrize(
    "values", [cube(13), cube(5, "uint8"), cube(4), cube(3, "float32")[..., 0]]
)
def test_without_a_mapping_the_refusal_says_how(values: np.ndarray) -> None:
    options = {"planarconfig": "contig"} if values.ndim == 3 else {}
    found = refused(tiff(values, **options), None)
    assert found.reason is Reason.NEEDS_BANDS
    assert "counted from 1" in found.detail
    assert "feed.bands in ray_config.yaml" in found.detail


def test_a_mapping_beyond_the_bands_is_named() -> None:
    found = refused(tiff(cube(3), planarconfig="contig"), SENTINEL)
    assert found.reason is Reason.NEEDS_BANDS
    assert "of 3 bands, where feed.bands.mapping names band 4" in found.detail


def test_percentiles_follow_each_band_and_ignore_what_is_no_number() -> None:
    values = np.zeros((10, 10, 3), np.float32)
    values[..., 0] = np.arange(100).reshape(10, 10)
    values[..., 1] = 7
    values[..., 2] = np.nan
    values[0, 0, 2] = np.inf
    found = stretch(values, Bands((1, 2, 3), (0, 100), "percentile"))
    assert (found[0, 0, 0], found[-1, -1, 0]) == (0, 255)
    assert not found[..., 1].any()
    assert not found[1:, :, 2].any()


def test_values_outside_the_range_are_clipped() -> None:
    values = np.array([[[-np.inf, 1e30, np.nan]]], np.float32)
    assert stretch(values, SENTINEL).tolist() == [[[0, 255, 0]]]


def test_several_pages_and_overviews() -> None:
    out = io.BytesIO()
    with tifffile.TiffWriter(out) as writer:
        writer.write(cube(), photometric="minisblack", planarconfig="contig")
        writer.write(
            cube()[::2, ::2], photometric="minisblack", planarconfig="contig", subfiletype=1
        )
    np.testing.assert_array_equal(pixels(out.getvalue(), SENTINEL), expected(cube()))
    out = io.BytesIO()
    with tifffile.TiffWriter(out) as writer:
        for _ in range(2):
            writer.write(cube(), photometric="minisblack", planarconfig="contig")
    assert refused(out.getvalue(), SENTINEL).reason is Reason.SEVERAL_FRAMES


def test_truncated_strips_are_told() -> None:
    data = tiff(cube(), planarconfig="contig")
    assert refused(data[:-1000], SENTINEL).reason is Reason.TRUNCATED


def test_a_strip_that_inflates_beyond_its_share_is_refused() -> None:
    data = tiff(np.zeros((8, 8, 4), np.uint16), planarconfig="contig", compression="deflate")
    with tifffile.TiffFile(io.BytesIO(data)) as whole:
        page = whole.pages.first
        tags = {name: page.tags[name] for name in ("StripOffsets", "StripByteCounts")}
    bomb = zlib.compress(bytes(50_000_000))
    patched = bytearray(data) + bomb
    for tag, value in (("StripOffsets", len(data)), ("StripByteCounts", len(bomb))):
        size = 4 if tags[tag].dtype_name == "LONG" else 2
        patched[tags[tag].valueoffset : tags[tag].valueoffset + size] = value.to_bytes(
            size, "little"
        )
    assert refused(bytes(patched), Bands((1, 2, 3), (0, 1))).reason is Reason.TOO_LARGE


def test_too_many_pixels_and_unknown_compressions() -> None:
    data = tiff(cube(), planarconfig="contig")
    found = decode(data, Decoding(max_pixels=64 * 48 - 1, bands=SENTINEL))
    assert isinstance(found, Rejected)
    assert found.reason is Reason.TOO_LARGE
    jpeg_inside = encoded(picture(), "TIFF", compression="jpeg")
    assert refused(jpeg_inside, Bands((1, 2, 3), (0, 255))).reason is Reason.UNSUPPORTED_PIXELS


def test_lzw_is_read_where_the_extra_is_installed_and_else_says_so() -> None:
    data = encoded(Image.fromarray(cube()[..., 0]), "TIFF", compression="tiff_lzw")
    found = decode(data, Decoding(bands=Bands((1, 1, 1), (0, 3000))))
    if isinstance(found, Rejected):
        assert "conclad-monitor[satellite]" in found.detail
    else:
        assert found.pixels.shape == (64, 48, 3)
