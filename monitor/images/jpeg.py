"""The short way for what most feeds are made of: a plain, upright, unharmed JPEG.

libjpeg-turbo does the work here and in Pillow, and gives the same pixels to the bit; what is saved
is Pillow's way there, which for a small image takes four times as long as the decoding. Whatever
is not plain (turned by its EXIF note, in CMYK, cut short, too large, or just odd) is left to the
long way, which knows what to say about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simplejpeg
from numpy.typing import NDArray

#: Where a JPEG can say that it must be turned: in EXIF, or in XMP.
_TURNED = (b"Exif\x00\x00", b"tiff:Orientation")

#: Three colours or grey, as cameras write them; others have rules of their own.
_PLAIN = ("YCbCr", "Gray")

#: By how much libjpeg can reduce an image while it decodes it, as Pillow's `draft` uses it.
_REDUCTIONS = (8, 4, 2)


def decode_plain_jpeg(
    data: bytes,
    *,
    max_pixels: int,
    max_aspect: int,
    min_side: int | None,
    room: Callable[[int, int], NDArray[np.uint8]] | None = None,
) -> tuple[NDArray[np.uint8], tuple[int, int]] | None:
    """Pixels and stored (width, height), or None where the long way must look.

    >>> decode_plain_jpeg(b"no JPEG", max_pixels=100, max_aspect=2, min_side=None) is None
    True
    """
    if any(note in data for note in _TURNED):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in _PLAIN or height * width > max_pixels:
            return None
        if max(height, width) > max_aspect * min(height, width):
            return None
        wanted = _reduced(height, width, min_side)
        pixels = simplejpeg.decode_jpeg(
            data, "RGB", min_height=wanted[0], min_width=wanted[1], buffer=room and room(*wanted)
        )
    except ValueError:
        return None
    # Reduced by eighths other than these, an image would not be what Pillow makes of it.
    return (pixels, (width, height)) if pixels.shape == (*wanted, 3) else None


def _reduced(height: int, width: int, min_side: int | None) -> tuple[int, int]:
    """The size after the largest reduction that leaves no side below ``min_side``."""
    possible = 1 if min_side is None else min(height, width) // min_side
    by = next((step for step in _REDUCTIONS if step <= possible), 1)
    return -(-height // by), -(-width // by)
