"""How a scene is cut: tiles of one size that cover it all."""

from __future__ import annotations

from collections.abc import Iterator


def starts(length: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin along one side. The last one is moved inwards, so that all are full.

    >>> starts(1000, 400, 0), starts(1000, 400, 100), starts(300, 400, 0)
    ([0, 400, 600], [0, 300, 600], [0])
    """
    if length <= tile:
        return [0]
    found = list(range(0, length - tile, tile - overlap))
    return [*found, length - tile]


def windows(
    width: int, height: int, tile: int, overlap: int
) -> Iterator[tuple[int, int, int, int]]:
    """Column, row, width and height of each tile, row by row as files are laid out.

    >>> list(windows(500, 300, 400, 0))
    [(0, 0, 400, 300), (100, 0, 400, 300)]
    """
    for row in starts(height, tile, overlap):
        for column in starts(width, tile, overlap):
            yield column, row, min(tile, width), min(tile, height)
