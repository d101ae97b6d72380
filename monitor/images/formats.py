"""Which of the four formats some bytes begin like, and what can be refused on sight."""

from __future__ import annotations

from monitor.images.reject_reasons import Reason, Rejected

MAX_SCANS = 100
"""A progressive JPEG has about ten. Each scan walks all pixels again, so thousands are a trap."""

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
        return _check_jpeg(data)
    if kind == "WEBP":
        return _check_webp(data, max_pixels)
    return None


def too_many_pixels(width: int, height: int, max_pixels: int) -> Rejected:
    return Rejected(
        Reason.TOO_LARGE,
        f"{width} x {height} pixels; the limit feed.max_pixels is {max_pixels}",
    )


def _check_jpeg(data: bytes) -> Rejected | None:
    # Within the coded data 0xFF is always followed by 0x00, so this counts markers only.
    scans = data.count(b"\xff\xda")
    if scans > MAX_SCANS:
        return Rejected(Reason.TOO_LARGE, f"a JPEG of {scans} scans; the limit is {MAX_SCANS}")
    return None


def _check_webp(data: bytes, max_pixels: int) -> Rejected | None:
    """Read the header by hand: the library takes memory for the whole canvas when it opens one."""
    if len(data) < 30 or int.from_bytes(data[4:8], "little") > len(data) - 8:
        return Rejected(Reason.TRUNCATED, f"a WebP image that ends after {len(data)} bytes")
    chunk = data[12:16]
    if chunk == b"VP8X":
        if data[20] & 0b10:
            return Rejected(Reason.SEVERAL_FRAMES, "an animated WebP; a feed is of still images")
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
    elif chunk == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk == b"VP8 ":
        width = int.from_bytes(data[26:28], "little") & 0x3FFF
        height = int.from_bytes(data[28:30], "little") & 0x3FFF
    else:
        return Rejected(Reason.CORRUPT, "a WebP without an image in it")
    if width * height > max_pixels:
        return too_many_pixels(width, height, max_pixels)
    return None
