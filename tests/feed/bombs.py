"""Images and Parquet files that are small on disk and large, slow or deadly to open."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tifffile
from PIL import Image

from tests.feed.make import encoded, picture

SIDE = 8192


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, bits: int = 8, colours: int = 2, extra: bytes = b"") -> bytes:
    """A PNG of zeros, deflated in pieces, so that making it takes no memory either."""
    channels = {0: 1, 2: 3, 6: 4}[colours]
    row = bytes(1 + width * channels * bits // 8)
    pack = zlib.compressobj(9)
    data = b"".join([*(pack.compress(row) for _ in range(height)), pack.flush()])
    head = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0)
    parts = _chunk(b"IHDR", head) + extra + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _png_header_only() -> bytes:
    return png(64, 64).replace(struct.pack(">II", 64, 64), struct.pack(">II", 60_000, 60_000))


def _png_interlaced() -> bytes:
    """Seven images in one, each of some of the pixels."""
    steps = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2)]
    steps += [(1, 2, 0, 1)]
    pack = zlib.compressobj(9)
    data = b""
    for top, down, left, right in steps:
        row = bytes(1 + 3 * len(range(left, SIDE, right)))
        data += b"".join(pack.compress(row) for _ in range(top, SIDE, down))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 1)
    parts = _chunk(b"IHDR", head) + _chunk(b"IDAT", data + pack.flush()) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _png_text() -> bytes:
    text = zlib.compress(bytes(200 << 20), 9)
    return png(64, 64, extra=_chunk(b"zTXt", b"note\0\0" + text))


def _webp() -> bytes:
    return encoded(Image.new("RGB", (SIDE, SIDE)), "WEBP", lossless=True, method=0)


def _tiff(**options: Any) -> bytes:
    out = io.BytesIO()
    zeros = np.broadcast_to(np.zeros(3, np.uint8), (SIDE, SIDE, 3))
    tifffile.imwrite(out, zeros, compression="zlib", photometric="rgb", **options)
    return out.getvalue()


def tiff_of_strips(count: int, *, big: bool = False, page: int = 0) -> bytes:
    """A TIFF of so many strips, all of them the same eight bytes; on the first page, or further."""
    small, places, sizes = (
        [(256, 1, 8), (257, 1, 8), (258, 1, 8), (262, 1, 1), (277, 1, 1)],
        273,
        279,
    )
    word = "Q" if big else "I"
    head, entry = ("<Q", "<HHQQ") if big else ("<H", "<HHII")
    out = (b"II+\0" + struct.pack("<HHQ", 8, 0, 16)) if big else (b"II*\0" + struct.pack("<I", 8))
    for number in range(page + 1):
        here = number == page
        tags = [*small, (254, 1, 1)] if number else list(small)
        strips = count if here else 1
        if here:
            tags[1] = (257, 1, count)
        size = len(struct.pack(head, 0)) + (len(tags) + 3) * struct.calcsize(entry)
        rest = len(out) + size + struct.calcsize(f"<{word}")
        listed = strips > 1
        kind, width = (16, 8) if big else (4, 4)
        tags += [(places, strips, rest if listed else 8), (278, 1, 1)]
        tags += [(sizes, strips, rest + strips * width if listed else 8)]
        out += struct.pack(head, len(tags))
        out += b"".join(struct.pack(entry, tag, kind, of, to) for tag, of, to in sorted(tags))
        lists = struct.pack(f"<{word}", 8) * (2 * strips) if listed else b""
        out += struct.pack(f"<{word}", 0 if here else rest + len(lists)) + lists
    return out


def _tiff_of_many_bands() -> bytes:
    out = io.BytesIO()
    zeros = np.broadcast_to(np.zeros(1, np.uint16), (16, 4096, 4096))
    tifffile.imwrite(
        out, zeros, compression="zlib", photometric="minisblack", planarconfig="separate"
    )
    return out.getvalue()


def progressive_jpeg(side: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    data = encoded(Image.new("RGB", (side, side)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    again = scans - data.count(b"\xff\xda")
    return data[:-2] + data[last:-2] * again + b"\xff\xd9"


def misbehaving(how: str, seed: int = 0) -> bytes:
    """A sound JPEG at which a decoder of the tests does something; see `_misbehave`."""
    return encoded(picture(seed=seed)) + b"conclad: " + how.encode()


def large_header(how: str) -> bytes:
    """The same, in an image that states the most pixels and so has the most time."""
    small = misbehaving(how)
    frame = small.index(b"\xff\xc0") + 5
    return small[:frame] + struct.pack(">HH", SIDE, SIDE) + small[frame + 4 :]


IMAGES: dict[str, Callable[[], bytes]] = {
    "png 8192": lambda: png(SIDE, SIDE),
    "png 8192 rgba": lambda: png(SIDE, SIDE, colours=6),
    "png 8192 of 16 bits": lambda: png(SIDE, SIDE, bits=16),
    "png 8192 interlaced": _png_interlaced,
    "png that claims 60000": _png_header_only,
    "png of 1 bit, 60000": lambda: png(60_000, 60_000, bits=1, colours=0),
    "png with a text of 200 MB": _png_text,
    "webp 8192": _webp,
    "webp 8192, lossy": lambda: encoded(Image.new("RGB", (SIDE, SIDE)), "WEBP", method=0),
    "tiff 8192": _tiff,
    "tiff 8192 in one strip": lambda: _tiff(rowsperstrip=SIDE),
    "tiff 8192 in tiles": lambda: _tiff(tile=(2048, 2048)),
    "tiff of 16 bands": _tiff_of_many_bands,
    "tiff of a million strips": lambda: tiff_of_strips(1 << 20),
    "jpeg of 99 scans": lambda: progressive_jpeg(SIDE, 99),
    "jpeg of 99 small scans": lambda: progressive_jpeg(256, 99),
    "jpeg of 5000 scans": lambda: progressive_jpeg(256, 5000),
    "crash": lambda: misbehaving("crash"),
    "hang": lambda: misbehaving("hang"),
    "spin": lambda: misbehaving("spin"),
    "spin, stated as 8192": lambda: large_header("spin"),
    "hoard": lambda: misbehaving("hoard"),
    "open a file": lambda: misbehaving("open"),
}


def dictionary_bomb(path: Path, *, megabytes: int = 48, rows: int = 128, groups: int = 1) -> None:
    """A hundred rows that share one large image: a few kilobytes on disk."""
    image = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([bytes(megabytes << 20)], pa.binary())
    )
    ids = [str(row) for row in range(rows)]
    pq.write_table(
        pa.table({"image_id": ids, "image": image}),
        path,
        compression="zstd",
        row_group_size=rows // groups,
    )


def page_bomb(path: Path, *, megabytes: int = 64, rows: int = 24, groups: int = 1) -> None:
    """Rows of zeros, each in full: large pages that compress to nothing."""
    schema = pa.schema([("image_id", pa.string()), ("image", pa.binary())])
    zeros = pa.array([bytes(megabytes << 20)] * (rows // groups), pa.binary())
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for group in range(groups):
            ids = pa.array([f"{group}-{row}" for row in range(rows // groups)])
            writer.write_table(pa.Table.from_arrays([ids, zeros], schema=schema))


def many_groups(path: Path) -> None:
    """None of its row groups is large by itself."""
    page_bomb(path, groups=24)
