"""A fair handful of pictures, whatever the order and the number of the images."""

from __future__ import annotations

import io
from collections import Counter

from PIL import Image

from monitor.feed.class_gallery import Gallery
from tests.feed.make import encoded, picture


def grey(value: int) -> bytes:
    return encoded(Image.new("RGB", (8, 8), (value, value, value)), "PNG")


def value(data: bytes) -> int:
    pixel = Image.open(io.BytesIO(data)).getpixel((4, 4))
    assert isinstance(pixel, tuple)
    return int(pixel[0])


def test_each_class_keeps_its_own() -> None:
    gallery = Gallery(per_class=3)
    for number in range(10):
        gallery.offer("a", encoded(picture(seed=number)))
    gallery.offer("b", encoded(picture()))
    gallery.offer("b", b"broken")
    assert {label: len(kept) for label, kept in gallery.pictures().items()} == {"a": 3, "b": 1}


def test_the_same_seed_keeps_the_same() -> None:
    def run(seed: int) -> dict[str, list[bytes]]:
        gallery = Gallery(per_class=2, seed=seed)
        for number in range(30):
            gallery.offer("a", grey(number * 8))
        return gallery.pictures()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_late_images_are_kept_as_often_as_early_ones() -> None:
    halves: Counter[bool] = Counter()
    for seed in range(60):
        gallery = Gallery(per_class=2, seed=seed)
        for number in range(10):
            gallery.offer("a", grey(number * 25))
        halves.update(value(one) >= 120 for one in gallery.pictures()["a"])
    # 120 draws at one half: four standard deviations are 22.
    assert abs(halves[True] - 60) < 22
