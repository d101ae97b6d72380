"""What a file is: an image, an archive, a table, a video or a scene.

Names decide where they can, because a million names are read in seconds; files without a suffix are
opened for their first bytes. An image's own bytes have the last word when it is read.
"""

from __future__ import annotations

import io
from enum import StrEnum

from PIL import Image

from monitor.images.image_formats import sniff


class FileKind(StrEnum):
    IMAGE = "image"
    TIFF = "tiff"
    """An image or a satellite scene: what is in it decides."""
    ZIP = "zip"
    TAR = "tar"
    TABLE = "table"
    VIDEO = "video"
    STAC = "stac"


_SUFFIXES: dict[str, FileKind] = {
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp"), FileKind.IMAGE),
    # Not read by the feed, and turned into PNG without loss.
    **dict.fromkeys((".bmp", ".gif", ".jp2", ".ppm", ".pgm", ".tga", ".avif"), FileKind.IMAGE),
    **dict.fromkeys((".tif", ".tiff", ".geotiff"), FileKind.TIFF),
    ".zip": FileKind.ZIP,
    **dict.fromkeys((".tar", ".tgz", ".tbz2", ".txz"), FileKind.TAR),
    **dict.fromkeys((".parquet", ".pq"), FileKind.TABLE),
    **dict.fromkeys((".mp4", ".m4v", ".mov", ".mkv", ".avi", ".webm"), FileKind.VIDEO),
    **dict.fromkeys((".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".wmv", ".flv"), FileKind.VIDEO),
    **dict.fromkeys((".mjpeg", ".mjpg", ".h264", ".hevc"), FileKind.VIDEO),
    ".json": FileKind.STAC,
    ".geojson": FileKind.STAC,
}
_TAR_DOUBLE = (".tar.gz", ".tar.bz2", ".tar.xz")
# As browsers, rsync, FTP servers and editors name a file that they have not finished.
_UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".swp", "~")


def kind_of(name: str) -> FileKind | None:
    """By the name alone; None if it says nothing.

    >>> kind_of("a/b.JPG"), kind_of("x.tar.gz"), kind_of("notes.txt"), kind_of("0001")
    (<FileKind.IMAGE: 'image'>, <FileKind.TAR: 'tar'>, None, None)
    """
    lower = name.lower()
    if lower.endswith(_TAR_DOUBLE):
        return FileKind.TAR
    dot = lower.rfind(".")
    return _SUFFIXES.get(lower[dot:]) if dot > lower.rfind("/") + 1 else None


def is_passed_over(name: str) -> bool:
    """Hidden names, and those of files that somebody has not finished.

    >>> [is_passed_over(name) for name in ("a.jpg", ".a.jpg", "_tmp", "a.jpg.part", "Thumbs.db")]
    [False, True, True, True, True]
    """
    return (
        name.startswith((".", "_"))
        or name.lower().endswith(_UNFINISHED)
        or name in ("Thumbs.db", "__MACOSX")
    )


def kind_by_bytes(head: bytes) -> FileKind | None:
    """By the first 512 bytes of a file whose name says nothing."""
    format = sniff(head)
    if format is not None:
        return FileKind.TIFF if format == "TIFF" else FileKind.IMAGE
    if head[:4] == b"PK\x03\x04":
        return FileKind.ZIP
    if head[:4] == b"PAR1":
        return FileKind.TABLE
    if head[257:262] == b"ustar":
        return FileKind.TAR
    if head[4:8] == b"ftyp" or head[:4] == b"\x1a\x45\xdf\xa3":
        return FileKind.VIDEO
    return None


def is_whole(data: bytes) -> bool:
    """Whether an image shows by its last bytes that nothing is missing.

    False also means "cannot tell": a TIFF has its end anywhere.

    >>> is_whole(b"\\xff\\xd8\\xff ... \\xff\\xd9"), is_whole(b"\\xff\\xd8\\xff ...")
    (True, False)
    """
    match sniff(data):
        case "JPEG":
            return data.rstrip(b"\0").endswith(b"\xff\xd9")
        case "PNG":
            return b"IEND" in data[-16:]
        case "WEBP":
            return int.from_bytes(data[4:8], "little") <= len(data) - 8
    return False


def as_feed_image(data: bytes) -> bytes | None:
    """The bytes as they are if the feed reads them, else as PNG; None if they are no image.

    >>> picture, out = Image.new("L", (2, 2), 7), io.BytesIO()
    >>> picture.save(out, "BMP")
    >>> sniff(as_feed_image(out.getvalue()))
    'PNG'
    """
    if sniff(data) is not None:
        return data
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.seek(0)
            known = image.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
            out = io.BytesIO()
            (image if known else image.convert("RGB")).save(out, "PNG")
    except Exception:  # noqa: BLE001 - decoders raise anything on bytes that are no image
        return None
    return out.getvalue()
