"""A small picture of an image for people to judge: decoded and encoded again.

Whatever else the bytes carried (a position, a serial number, a comment, an embedded preview, or
something that only pretends to be an image) stays behind, because only pixels go through.
"""

from __future__ import annotations

import io

from PIL import Image

from monitor.images.decode import Decoding, decode
from monitor.images.reject_reasons import Rejected

SIDE = 320
"""Pixels of the longer side: twice what a card of the desk shows, so that zooming in pays and a
sharp screen stays sharp, at some 20 KB a picture."""

SMALLEST = 96
"""Backbones look at crops down to 32 pixels. Shown as they are, people could not see them, and a
browser that enlarges them smooths away what little there is, so they are enlarged here."""

QUALITY = 85
"""Where the eye stops seeing the difference and the file still halves against 95."""


def render_thumbnail(
    data: bytes, decoding: Decoding | None = None, side: int = SIDE
) -> bytes | Rejected:
    """A JPEG of the image, upright, no side longer than ``side``; or why there is none.

    The decoding is the feed's own, so people are shown what the backbone saw: the same bands,
    the same background behind what is transparent, and the same images refused.

    >>> buffer = io.BytesIO()
    >>> Image.new("RGB", (640, 480), "navy").save(buffer, "PNG")
    >>> small = render_thumbnail(buffer.getvalue())
    >>> Image.open(io.BytesIO(small)).size
    (320, 240)
    >>> str(render_thumbnail(b"no image").reason)
    'unknown_format'
    """
    found = decode(data, decoding, min_side=side)
    if isinstance(found, Rejected):
        return found
    picture = Image.fromarray(found.pixels)
    size = _size(picture.size, side)
    if size != picture.size:
        enlarges = size[0] > picture.size[0]
        picture = picture.resize(
            size, Image.Resampling.NEAREST if enlarges else Image.Resampling.LANCZOS
        )
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def _size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Fit into a square of ``side``; tiny images grow by a whole factor, so pixels stay square."""
    longest = max(size)
    if longest > side:
        return max(1, round(size[0] * side / longest)), max(1, round(size[1] * side / longest))
    factor = max(1, min(SMALLEST, side) // longest)
    return size[0] * factor, size[1] * factor
