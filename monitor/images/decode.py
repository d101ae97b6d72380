"""From the bytes of an image to RGB pixels, safely, by rules that docs/feed.md lists.

Any bytes may come: one image that cannot be decoded gives a Rejected with its reason and never an
exception. Nothing global is touched, so that threads can decode side by side (Pillow works
outside the interpreter's lock).
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Importing the plugins registers them; otherwise the first threads to decode would race to do it.
from PIL import (
    Image,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    TiffImagePlugin,
    WebPImagePlugin,  # noqa: F401
)

from monitor.images.bands import MAX_PAGES, Bands, decode_bands, describe_tiff
from monitor.images.image_formats import check_on_sight, sniff, too_many_pixels
from monitor.images.jpeg import decode_plain_jpeg
from monitor.images.reject_reasons import Reason, Rejected

MAX_PIXELS = 8192 * 8192
"""200 MB once decoded: above any camera's frame, below what hurts a worker with many threads."""

PIXELS_CEILING = 2 * 89_478_485
"""Pillow refuses more by itself, so a higher setting would promise what cannot be kept."""

MAX_ASPECT = 50
"""A backbone scales the short side to some 256 pixels; a strip of 1 x 60,000 would become 15
million pixels wide."""

BACKGROUND = (128, 128, 128)
"""Mid-grey lies where normalisation has its zero, so that what is transparent says least."""

# What the decoders would print about an image is already in the reason of its row, and a bad
# camera would otherwise fill the log. Set once, here, because filters are not safe in threads.
for _decoder in ("PIL", "tifffile"):
    logging.getLogger(_decoder).addHandler(logging.NullHandler())
for _kind in (UserWarning, Image.DecompressionBombWarning):
    warnings.filterwarnings("ignore", category=_kind, module=r"PIL\.")

_ADDRESS = re.compile(r" <_io\.BytesIO object at 0x[0-9a-f]+>")
_ORIENTATION = 0x0112
_SUBFILE, _TILE_WIDTH, _TILE_LENGTH = 254, 322, 323
_REDUCED_OR_MASK = 0b101
# By EXIF's number for how a camera was held: whether rows and columns of the upright image are
# exchanged when it is stored, and which of the stored ones run backwards.
_SWAPS_SIDES = (5, 6, 7, 8)
_RUNS_BACKWARDS = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 6: (-1, 1), 7: (-1, -1), 8: (1, -1)}

STRIP_PIXELS = 1 << 20
"""A few megabytes at a time while pixels are converted."""

Room = Callable[[int, int], NDArray[np.uint8]]
"""Gives an array of height x width x 3."""


def new_array(height: int, width: int) -> NDArray[np.uint8]:
    return np.empty((height, width, 3), np.uint8)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How images are decoded; part of what makes a feature, so part of the preprocessing.

    >>> Decoding(max_pixels=1_000_000).background
    (128, 128, 128)
    """

    max_pixels: int = MAX_PIXELS
    background: tuple[int, int, int] = BACKGROUND
    bands: Bands | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_pixels <= PIXELS_CEILING:
            raise ValueError(f"max_pixels must lie between 1 and {PIXELS_CEILING}")
        if not all(0 <= part <= 255 for part in self.background):
            raise ValueError("background must be three numbers from 0 to 255")


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """An image ready for a backbone."""

    pixels: NDArray[np.uint8]
    """(height, width, 3), RGB, upright; reduced in size if a smallest side was asked for."""
    size: tuple[int, int]
    """Width and height as they were stored."""


def decode(
    data: bytes,
    settings: Decoding | None = None,
    *,
    min_side: int | None = None,
    room: Room = new_array,
) -> Decoded | Rejected:
    """Decode one image, or say why not.

    With `min_side` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, which costs a fraction
    of the time, as long as neither side becomes smaller than that. The caller still resizes.
    ``room`` is asked for the array into which a large image is decoded.

    >>> str(decode(b"GIF89a"))
    'unknown_format: begins with 474946383961; JPEG, PNG, WebP and TIFF are read'
    """
    settings = settings or Decoding()
    kind = sniff(data)
    if kind is None:
        start = data[:8].hex() or "nothing"
        return Rejected(
            Reason.UNKNOWN_FORMAT, f"begins with {start}; JPEG, PNG, WebP and TIFF are read"
        )
    try:
        if refused := check_on_sight(data, kind, settings.max_pixels):
            return refused
        if kind == "TIFF" and settings.bands is not None:
            found = decode_bands(data, settings.bands, settings.max_pixels)
            return found if isinstance(found, Rejected) else _checked(found)
        if kind == "JPEG":
            plain = decode_plain_jpeg(
                data,
                max_pixels=settings.max_pixels,
                max_aspect=MAX_ASPECT,
                min_side=min_side,
                room=room,
            )
            if plain is not None:
                return Decoded(*plain)
        return _decode_with_pillow(data, kind, settings, min_side, room)
    # Decoders of hostile bytes raise anything, down to AttributeError; each costs one row.
    except Exception as error:  # noqa: BLE001
        return _rejected(error, data, kind)


def _decode_with_pillow(
    data: bytes,
    kind: str,
    settings: Decoding,
    min_side: int | None,
    room: Room = new_array,
) -> Decoded | Rejected:
    with Image.open(io.BytesIO(data), formats=[kind]) as image:
        if refused := _check_header(image, settings.max_pixels):
            return refused
        size = image.size
        if min_side is not None:
            image.draft(None, (min_side, min_side))
        image.load()
        pixels = _upright_rgb(image, _orientation(image), settings.background, room)
        return pixels if isinstance(pixels, Rejected) else Decoded(pixels, size)


def _upright_rgb(
    image: Image.Image, orientation: int, background: tuple[int, int, int], room: Room
) -> NDArray[np.uint8] | Rejected:
    """Converted strip by strip, so that one copy of a large image is enough."""
    width, height = image.size
    turned = orientation in _SWAPS_SIDES
    upright = room(width, height) if turned else room(height, width)
    # The same memory with its axes as the image is stored.
    stored = _as_stored(upright, orientation)
    rows = max(1, STRIP_PIXELS // width)
    for top in range(0, height, rows):
        below = min(top + rows, height)
        strip = image if rows >= height else image.crop((0, top, width, below))
        rgb = _to_rgb(strip, background, of=image.format)
        if isinstance(rgb, Rejected):
            return rgb
        stored[top:below] = np.asarray(rgb)
    return upright


def _as_stored(upright: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """A view of an upright image, turned as a camera that was held like this stored it."""
    axes = upright.swapaxes(0, 1) if orientation in _SWAPS_SIDES else upright
    rows, columns = _RUNS_BACKWARDS.get(orientation, (1, 1))
    return axes[::rows, ::columns]


def _check_header(image: Image.Image, max_pixels: int) -> Rejected | None:
    """All that can be known before a pixel is decoded."""
    width, height = image.size
    if refused := _check_shape(width, height):
        return refused
    if width * height > max_pixels:
        return too_many_pixels(width, height, max_pixels)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _check_tiff(image, max_pixels)
    # A JPEG that carries further pictures (format MPO) is still one picture: its first.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        return Rejected(Reason.SEVERAL_FRAMES, "animated; a feed is of still images")
    return None


def _check_shape(width: int, height: int) -> Rejected | None:
    if min(width, height) < 1 or max(width, height) > MAX_ASPECT * min(width, height):
        return Rejected(
            Reason.BAD_SHAPE,
            f"{width} x {height} pixels; one side may be {MAX_ASPECT} times the other",
        )
    return None


def _check_tiff(image: TiffImagePlugin.TiffImageFile, max_pixels: int) -> Rejected | None:
    """A tile may claim to be larger than its image; further pages must be overviews or masks."""
    tile = [image.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_LENGTH)]
    if tile[0] * tile[1] > max_pixels:
        return too_many_pixels(tile[0], tile[1], max_pixels)
    for page in range(1, MAX_PAGES + 1):
        try:
            image.seek(page)
        except EOFError:
            image.seek(0)
            return None
        if not image.tag_v2.get(_SUBFILE, 0) & _REDUCED_OR_MASK:
            return Rejected(Reason.SEVERAL_FRAMES, "a TIFF of several pages; split it into files")
    return Rejected(Reason.SEVERAL_FRAMES, f"a TIFF of more than {MAX_PAGES} pages")


def _orientation(image: Image.Image) -> int:
    """How the camera was held; a garbled note of it is no reason to lose the image."""
    if image.format == "TIFF":
        return 1  # Pillow turns these itself.
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - the EXIF parser meets hostile bytes too
        return 1


def _to_rgb(
    image: Image.Image, background: tuple[int, int, int], *, of: str | None
) -> Image.Image | Rejected:
    """Pixels of an image of format ``of``, or of a part of it."""
    mode = image.mode
    if image.has_transparency_data:
        whole = image.convert("RGBA")
        canvas = Image.new("RGB", whole.size, background)
        canvas.paste(whole, mask=whole.getchannel("A"))
        return canvas
    if mode == "RGB":
        return image
    if mode in ("1", "L", "P", "CMYK", "YCbCr", "RGBX"):
        return image.convert("RGB")
    # 16-bit PNG is mode "I" in older Pillow; 32-bit integers occur in TIFF only.
    if mode.startswith("I;16") or (mode == "I" and of == "PNG"):
        high_byte = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return Image.fromarray(high_byte).convert("RGB")
    if of == "TIFF" and mode in ("I", "F"):
        return needs_bands("one band of 32 bits")
    return Rejected(Reason.UNSUPPORTED_PIXELS, f"pixels of mode {mode}; convert them to RGB")


def _checked(pixels: NDArray[np.uint8]) -> Decoded | Rejected:
    height, width = pixels.shape[:2]
    return _check_shape(width, height) or Decoded(pixels, (width, height))


def needs_bands(what: str) -> Rejected:
    return Rejected(
        Reason.NEEDS_BANDS,
        f"a TIFF with {what}: say which bands are red, green and blue, counted from 1, and how "
        "to stretch them, under feed.bands in ray_config.yaml, for example "
        "{mapping: [4, 3, 2], stretch: [0, 3000], unit: value}",
    )


def _rejected(error: Exception, data: bytes, kind: str) -> Rejected:
    # Pillow names the object that it read from, which is another one each time.
    words = _ADDRESS.sub("", " ".join(str(error).split()))
    text = words[:200] or type(error).__name__
    if isinstance(error, MemoryError):
        return Rejected(Reason.TOO_LARGE, f"{kind}: takes more memory than one image is given")
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return Rejected(Reason.TOO_LARGE, text)
    if isinstance(error, EOFError) or "truncated" in text.lower():
        return Rejected(Reason.TRUNCATED, f"{kind}: {text}")
    # Pillow says only "cannot identify" of a TIFF whose bands it has no mode for.
    if kind == "TIFF" and (what := describe_tiff(data)):
        return needs_bands(what)
    return Rejected(Reason.CORRUPT, f"{kind}: {text}")
