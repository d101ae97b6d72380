"""Multi-band TIFF, as satellites deliver it: which bands to show, and how to stretch them.

Pillow knows no more than four channels of eight bits, so these files are read with tifffile, and
their segments are measured first: a deflated strip may otherwise claim any amount of memory.
"""

from __future__ import annotations

import importlib.util
import io
import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tifffile
from numpy.typing import NDArray

from monitor.images.image_formats import too_many_pixels
from monitor.images.reject_reasons import Reason, Rejected

RAW_BYTES_PER_PIXEL = 64
"""Sixteen bands of float32: beyond the multispectral satellites, short of hyperspectral cubes."""

MAX_PAGES = 32
"""Overviews halve the size, so 32 of them would suffice for any image; more is a trap."""

_PLAIN, _LZW, _DEFLATE, _PACKBITS, _OLD_DEFLATE = 1, 5, 8, 32773, 32946
_KNOWN = (_PLAIN, _LZW, _DEFLATE, _PACKBITS, _OLD_DEFLATE)
_REDUCED_OR_MASK = 0b101


@dataclass(frozen=True, slots=True)
class Bands:
    """Which bands become red, green and blue, and which of their values black and white.

    Bands count from 1, as GDAL and the satellites' manuals do. With `unit="value"` the stretch is
    a fixed range, which keeps brightness comparable from image to image and is what a monitor
    should have; with "percentile" each image and band is stretched by its own values.

    >>> Bands(mapping=(4, 3, 2), stretch=(0, 3000)).unit
    'value'
    """

    mapping: tuple[int, int, int]
    stretch: tuple[float, float]
    unit: Literal["value", "percentile"] = "value"

    def __post_init__(self) -> None:
        if min(self.mapping) < 1:
            raise ValueError("feed.bands.mapping must be three band numbers, counted from 1")
        low, high = self.stretch
        if not low < high:
            raise ValueError("feed.bands.stretch must be two numbers, the lower one first")
        if self.unit == "percentile" and not 0 <= low < high <= 100:
            raise ValueError("feed.bands.stretch in percentiles must lie between 0 and 100")


def decode_bands(data: bytes, bands: Bands, max_pixels: int) -> NDArray[np.uint8] | Rejected:
    """Three bands of a TIFF as RGB pixels; may raise anything on hostile bytes."""
    with tifffile.TiffFile(io.BytesIO(data)) as tiff:
        page = tiff.pages.first
        refused = _check(tiff, data, max_pixels) or _check_bands(page, bands)
        if refused:
            return refused
        values = page.asarray(maxworkers=1)
    if page.planarconfig == tifffile.PLANARCONFIG.SEPARATE and page.samplesperpixel > 1:
        values = np.moveaxis(values, 0, -1)
    values = values.reshape(page.imagelength, page.imagewidth, page.samplesperpixel)
    chosen = values[..., [band - 1 for band in bands.mapping]].astype(np.float32)
    return stretch(chosen, bands)


def stretch(values: NDArray[np.float32], bands: Bands) -> NDArray[np.uint8]:
    """Map a range of values to 0-255, clipping what lies outside; what is not a number is black.

    >>> stretch(np.float32([[[0, 1500, 9000]]]), Bands((1, 2, 3), (0, 3000))).tolist()
    [[[0, 128, 255]]]
    """
    low, high = np.repeat(np.asarray(bands.stretch, np.float32)[:, None], 3, axis=1)
    if bands.unit == "percentile":
        low, high = _cuts(values, bands.stretch)
    # A band of one value has no contrast to stretch; it becomes black rather than noise.
    span = np.where(high > low, high - low, np.float32(np.inf))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.nan_to_num((values - low) / span, nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.rint(np.clip(scaled, 0, 1) * 255), np.uint8)


def _cuts(
    values: NDArray[np.float32], percentiles: tuple[float, float]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The values at two percentiles of each band, counting only what is a number."""
    cuts = np.zeros((2, 3), np.float32)
    for band in range(3):
        finite = values[..., band][np.isfinite(values[..., band])]
        if finite.size:
            cuts[:, band] = np.percentile(finite, percentiles)
    return cuts[0], cuts[1]


def describe_tiff(data: bytes) -> str | None:
    """In words, the bands of a TIFF, if they are more than Pillow reads; None if it is broken."""
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as tiff:
            page = tiff.pages.first
            bands, bits = int(page.samplesperpixel), int(page.bitspersample)
    except Exception:  # noqa: BLE001 - only asked about bytes that already failed once
        return None
    if bands > 4 or bits > 8 or bands == 2 or page.photometric == tifffile.PHOTOMETRIC.MINISBLACK:
        return f"{bands} band{'s' if bands > 1 else ''} of {bits} bits"
    return None


def _check(tiff: tifffile.TiffFile, data: bytes, max_pixels: int) -> Rejected | None:
    page = tiff.pages.first
    width, height = int(page.imagewidth), int(page.imagelength)
    if width * height > max_pixels or page.imagedepth > 1:
        return too_many_pixels(width, height, max_pixels)
    if page.tilewidth * page.tilelength > max_pixels:
        return too_many_pixels(page.tilewidth, page.tilelength, max_pixels)
    if page.nbytes > RAW_BYTES_PER_PIXEL * max_pixels:
        return Rejected(Reason.TOO_LARGE, f"{page.nbytes} bytes once decoded")
    return _check_pages(tiff) or _check_compression(page) or _check_segments(page, data)


def _check_pages(tiff: tifffile.TiffFile) -> Rejected | None:
    """Further pages must be overviews or masks of the first, and few."""
    for index in range(1, MAX_PAGES + 1):
        try:
            page = tiff.pages[index]
        except IndexError:
            return None
        if not isinstance(page, tifffile.TiffPage) or not page.subfiletype & _REDUCED_OR_MASK:
            return Rejected(Reason.SEVERAL_FRAMES, "a TIFF of several pages; split it into files")
    return Rejected(Reason.SEVERAL_FRAMES, f"a TIFF of more than {MAX_PAGES} pages")


def _check_compression(page: tifffile.TiffPage) -> Rejected | None:
    kind = int(page.compression)
    if kind not in _KNOWN:
        return Rejected(
            Reason.UNSUPPORTED_PIXELS,
            f"a TIFF compressed by method {kind}; write it plain, deflated, or with LZW",
        )
    if kind == _LZW and not _has_imagecodecs():
        return Rejected(
            Reason.UNSUPPORTED_PIXELS,
            "a TIFF compressed with LZW, which needs `pip install conclad-monitor[satellite]`",
        )
    return None


def _check_segments(page: tifffile.TiffPage, data: bytes) -> Rejected | None:
    """Each strip or tile must lie within the file and inflate to no more than its share."""
    width, length = page.tilewidth or page.imagewidth, page.tilelength or page.rowsperstrip
    item = page.dtype.itemsize if page.dtype is not None else 1
    share = width * min(length, max(page.imagelength, page.tilelength)) * item
    if page.planarconfig == tifffile.PLANARCONFIG.CONTIG:
        share *= page.samplesperpixel
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        if offset + count > len(data):
            return Rejected(Reason.TRUNCATED, f"a TIFF that ends after {len(data)} bytes")
        if int(page.compression) in (_DEFLATE, _OLD_DEFLATE):
            inflate = zlib.decompressobj()
            inflate.decompress(data[offset : offset + count], share)
            if inflate.unconsumed_tail and inflate.decompress(inflate.unconsumed_tail, 1):
                return Rejected(Reason.TOO_LARGE, "a TIFF whose parts inflate beyond their size")
    return None


def _check_bands(page: tifffile.TiffPage, bands: Bands) -> Rejected | None:
    if max(bands.mapping) > page.samplesperpixel:
        return Rejected(
            Reason.NEEDS_BANDS,
            f"a TIFF of {page.samplesperpixel} bands, where feed.bands.mapping names band "
            f"{max(bands.mapping)}; correct the mapping in ray_config.yaml",
        )
    if page.dtype is None or page.dtype.kind not in "uif":
        return Rejected(Reason.UNSUPPORTED_PIXELS, f"a TIFF whose values are {page.dtype}")
    return None


def _has_imagecodecs() -> bool:
    return importlib.util.find_spec("imagecodecs") is not None
