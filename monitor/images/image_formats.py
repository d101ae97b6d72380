"""Which of the four formats some bytes begin like, and what can be refused on sight."""

from __future__ import annotations

from typing import Literal

from monitor.images.reject_reasons import Reason, Rejected

MAX_SCANS = 100
"""A progressive JPEG has about ten. Each scan walks all pixels again, so thousands are a trap."""

COMMON_SCANS = 3
"""One for each colour at most, unless it is progressive."""

SCANS_OF_MOST_PIXELS = 4
"""So many walks over an image of the most pixels: an ordinary progressive photograph of 24
megapixels passes, a hundred scans of 67 do not."""

MOST_FILL_BYTES = 1024
"""Before the markers of a JPEG; writers that align them take a few."""

MOST_PARTS = 1 << 17
"""Strips or tiles of a TIFF: a row each of thirteen bands of 8192 pixels. Readers make a list of
them before anything else, which of millions takes longer than any image."""

MOST_TAGS = 4096
"""Of one page of a TIFF; cameras and satellites write a hundred."""

_PARTS = (273, 279, 324, 325)
_PAGES_LOOKED_AT = 33
"""One more than may follow each other; see :data:`monitor.images.bands.MAX_PAGES`."""

_TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def sniff(data: bytes) -> str | None:
    """The format by its first bytes, in Pillow's name for it; a file's name is never asked.

    >>> sniff(b"\\xff\\xd8\\xff\\xe0"), sniff(b"GIF89a")
    ('JPEG', None)
    """
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[:4] in _TIFF:
        return "TIFF"
    return None


def check_on_sight(data: bytes, kind: str, max_pixels: int) -> Rejected | None:
    """Refuse what would already cost memory or time when a decoder merely opens it."""
    if kind == "JPEG":
        return _check_jpeg(data, max_pixels)
    if kind == "WEBP":
        return _check_webp(data, max_pixels)
    return _check_tiff(data) if kind == "TIFF" else None


def stated_work(data: bytes, kind: str | None) -> int | None:
    """Pixels to walk over by what the header states; None where a look does not tell.

    >>> stated_work(bytes(16) + bytes([0, 0, 1, 0, 0, 0, 2, 0]), "PNG")
    131072
    """
    if kind == "PNG":
        return int.from_bytes(data[16:20], "big") * int.from_bytes(data[20:24], "big")
    if kind == "JPEG":
        width, height = _jpeg_size(data)
        return width * height * max(1, data.count(b"\xff\xda")) or None
    if kind == "WEBP":
        width, height = _webp_size(data)
        return width * height or None
    return None


def too_many_pixels(width: int, height: int, max_pixels: int) -> Rejected:
    return Rejected(
        Reason.TOO_LARGE,
        f"{width} x {height} pixels; the limit feed.max_pixels is {max_pixels}",
    )


def _check_jpeg(data: bytes, max_pixels: int) -> Rejected | None:
    # Within the coded data 0xFF is always followed by 0x00, so this counts markers only.
    scans = data.count(b"\xff\xda")
    if scans > MAX_SCANS:
        return Rejected(Reason.TOO_LARGE, f"a JPEG of {scans} scans; the limit is {MAX_SCANS}")
    width, height = _jpeg_size(data) if scans > COMMON_SCANS else (0, 0)
    if scans * width * height > SCANS_OF_MOST_PIXELS * max_pixels:
        return Rejected(
            Reason.TOO_LARGE,
            f"a JPEG of {scans} scans of {width} x {height} pixels; write it with fewer",
        )
    return None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height by the first frame header; (0, 0) if there is none before the data."""
    at, filled = 2, 0
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        if kind == 0xFF:  # fill bytes may stand before a marker, but not for ever
            filled += 1
            if filled > MOST_FILL_BYTES:
                break
        at += 1 if kind == 0xFF else 2 + length
    return 0, 0


def _check_tiff(data: bytes) -> Rejected | None:
    """How many tags its pages have, and how many strips or tiles they say there are."""
    order: Literal["little", "big"] = "little" if data[:1] == b"I" else "big"
    is_big = 43 in data[2:4]
    # Of a page's number of tags, of a number or place within a tag, and of a whole tag.
    head, word, tag = (8, 8, 20) if is_big else (2, 4, 12)

    def number(at: int, length: int) -> int:
        return int.from_bytes(data[at : at + length], order)

    page = number(8, 8) if is_big else number(4, 4)
    for _ in range(_PAGES_LOOKED_AT):
        tags, first = number(page, head), page + head
        if tags > MOST_TAGS:
            return Rejected(Reason.TOO_LARGE, f"a TIFF page of {tags} tags")
        for at in range(first, min(first + tags * tag, len(data)), tag):
            parts = number(at + 4, word)
            if parts > MOST_PARTS and number(at, 2) in _PARTS:
                return Rejected(Reason.TOO_LARGE, f"a TIFF page of {parts} strips or tiles")
        page = number(first + tags * tag, word)
        if not page:
            break
    return None


def _check_webp(data: bytes, max_pixels: int) -> Rejected | None:
    """Read the header by hand: the library takes memory for the whole canvas when it opens one."""
    if len(data) < 30 or int.from_bytes(data[4:8], "little") > len(data) - 8:
        return Rejected(Reason.TRUNCATED, f"a WebP image that ends after {len(data)} bytes")
    if data[12:16] == b"VP8X" and data[20] & 0b10:
        return Rejected(Reason.SEVERAL_FRAMES, "an animated WebP; a feed is of still images")
    width, height = _webp_size(data)
    if width * height == 0:
        return Rejected(Reason.CORRUPT, "a WebP without an image in it")
    if width * height > max_pixels:
        return too_many_pixels(width, height, max_pixels)
    return None


def _webp_size(data: bytes) -> tuple[int, int]:
    """Width and height by the first chunk; (0, 0) if it is none of an image."""
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if chunk == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        width, height = data[26:28], data[28:30]
        return (
            int.from_bytes(width, "little") & 0x3FFF,
            int.from_bytes(height, "little") & 0x3FFF,
        )
    return 0, 0
