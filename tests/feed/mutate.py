"""A seeded mutator and the files it starts from: the same seed is always the same case."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tifffile
from PIL import Image

from tests.feed.make import encoded, picture

EXTREMES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to eight changes of the kinds that storage, networks and enemies make.

    Half of them fall on the last quarter, where Parquet and many TIFFs keep what steers the reader.
    """
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        if not found:
            break
        low = len(found) * 3 // 4 if rng.random() < 0.5 else 0
        at = rng.randrange(low, len(found)) if low < len(found) else 0
        length = rng.choice((1, 1, 2, 4, 16, 256))
        match rng.randrange(8):
            case 0 | 1:
                found[at] ^= 1 << rng.randrange(8)
            case 2:
                found[at : at + length] = rng.randbytes(length)
            case 3:
                extreme = rng.choice(EXTREMES)
                found[at : at + len(extreme)] = extreme
            case 4:
                del found[at : at + length]
            case 5:
                found[at:at] = rng.randbytes(length)
            case 6:
                start = rng.randrange(len(found))
                found[at : at + length] = found[start : start + length]
            case 7:
                del found[rng.randrange(len(found)) :]
    return bytes(found)


def images() -> list[bytes]:
    """One of each kind that decoding has a rule for."""
    plain, grey = picture(48, 40), picture(48, 40).convert("L")
    deep = Image.fromarray(np.arange(48 * 40, dtype=np.uint16).reshape(40, 48))
    clear = plain.convert("RGBA")
    clear.putalpha(grey)
    exif = Image.Exif()
    exif[0x0112] = 6
    frames: dict[str, Any] = {"save_all": True, "append_images": [picture(48, 40, 1)]}
    return [
        encoded(plain, exif=exif),
        encoded(plain, progressive=True),
        encoded(plain.convert("CMYK")),
        encoded(grey),
        *(encoded(each, "PNG") for each in (plain, grey, deep, clear, plain.quantize(8))),
        encoded(plain, "PNG", **frames),
        encoded(plain, "WEBP"),
        encoded(clear, "WEBP", lossless=True, exif=exif),
        encoded(plain, "WEBP", **frames),
        *(
            encoded(plain, "TIFF", compression=by)
            for by in (None, "tiff_lzw", "tiff_deflate", "jpeg")
        ),
        encoded(deep, "TIFF"),
        encoded(plain, "TIFF", **frames),
        *(cube(compression=by, tile=tile) for by in (None, "deflate") for tile in (None, (16, 16))),
    ]


def cube(**options: Any) -> bytes:
    out = io.BytesIO()
    values = np.random.default_rng(0).integers(0, 4000, (40, 48, 7)).astype(np.uint16)
    tifffile.imwrite(out, values, photometric="minisblack", planarconfig="contig", **options)
    return out.getvalue()


def parquets() -> list[bytes]:
    """Each compression, layout and encoding that a feed may come in."""
    image = images()[0]
    rows = 40
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    names = pa.array([f"cam-{row % 3}" for row in range(rows)])
    base = pa.table(
        {
            "image_id": pa.array([f"{row:05}" for row in range(rows)]),
            "captured_at": pa.array(range(rows), pa.timestamp("ms", "UTC")),
            "source_id": names.dictionary_encode(),
            "image": pa.array([image + bytes([row]) for row in range(rows)]),
            "label": names,
        }
    )
    nested = base.set_column(
        3, "image", pa.array([{"bytes": image, "path": None}] * (rows - 1) + [None], struct)
    )
    options: list[dict[str, Any]] = [
        {"compression": by, "row_group_size": size}
        for by in ("none", "snappy", "zstd", "gzip", "lz4", "brotli")
        for size in (rows, 15)
    ]
    options += [
        {"use_dictionary": False, "data_page_size": 512, "data_page_version": "2.0"},
        {"write_page_checksum": True, "write_page_index": True},
        {"use_dictionary": False, "column_encoding": {"image_id": "DELTA_BYTE_ARRAY"}},
        {"store_schema": False},
    ]
    return [_parquet(content, option) for content in (base, nested) for option in options]


def _parquet(content: pa.Table, options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    if "column_encoding" in options and pa.types.is_struct(content.schema.field("image").type):
        options = {"version": "1.0"}
    pq.write_table(content, out, **options)
    return out.getvalue()
