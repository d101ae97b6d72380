"""What people are shown of an image, and what they are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from monitor.images.bands import Bands
from monitor.images.decode import Decoding
from monitor.images.reject_reasons import Reason, Rejected
from monitor.images.thumbnail import render_thumbnail
from tests.feed.make import encoded, picture


def opened(data: bytes | Rejected) -> Image.Image:
    assert isinstance(data, bytes)
    return Image.open(io.BytesIO(data))


def test_nothing_but_pixels_goes_through() -> None:
    exif = Image.Exif()
    exif[0x0110] = "SecretCamera"
    exif[0x8825] = {1: "N", 2: (52.0, 30.0, 0.0)}
    data = encoded(picture(640, 480), exif=exif.tobytes(), comment=b"SecretComment")
    small = render_thumbnail(data)
    assert isinstance(small, bytes)
    assert b"Secret" in data
    assert b"Secret" not in small
    assert b"Exif" not in small
    assert not opened(small).getexif()


def test_it_stands_upright_as_the_backbone_saw_it() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = picture(640, 480).transpose(Image.Transpose.ROTATE_90)
    small = opened(render_thumbnail(encoded(lying, exif=exif.tobytes())))
    assert small.size == (320, 240)
    red, green, blue = (int(part) for part in np.asarray(small)[8, 8])
    assert red > 200 > 80 > max(green, blue)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((640, 480), (320, 240)),
        ((480, 640), (240, 320)),
        ((320, 320), (320, 320)),
        ((200, 100), (200, 100)),
        ((32, 24), (96, 72)),
        ((4000, 100), (320, 8)),
        ((64, 64), (64, 64)),
    ],
)
def test_large_ones_shrink_and_tiny_ones_grow(
    size: tuple[int, int], shown: tuple[int, int]
) -> None:
    assert opened(render_thumbnail(encoded(picture(*size), "PNG"))).size == shown


def test_the_same_image_gives_the_same_bytes() -> None:
    data = encoded(picture(300, 200))
    assert render_thumbnail(data) == render_thumbnail(data)


def test_what_the_feed_rejects_has_no_picture() -> None:
    assert isinstance(render_thumbnail(b"GIF89a"), Rejected)
    large = render_thumbnail(encoded(picture(64, 64)), Decoding(max_pixels=100))
    assert isinstance(large, Rejected)
    assert large.reason is Reason.TOO_LARGE


def test_bands_are_shown_as_the_feed_maps_them() -> None:
    import tifffile

    bands = np.zeros((64, 64, 4), np.uint16)
    bands[..., 3] = 3000
    file = io.BytesIO()
    tifffile.imwrite(file, bands, photometric="minisblack", planarconfig="contig")
    decoding = Decoding(bands=Bands((4, 2, 1), (0.0, 3000.0), "value"))
    small = opened(render_thumbnail(file.getvalue(), decoding))
    red, green, blue = (int(part) for part in np.asarray(small)[32, 32])
    assert red > 240
    assert max(green, blue) < 20
