"""Which frames of a fixed camera show what an earlier one showed.

A frame is reduced to a coarse picture of itself, its *signature*, and compared cell by cell: the
cell that differs most counts, so that something small in a corner is a change as much as another
light is. How much may differ follows from the camera itself: most frames differ from the frame
before by its noise alone, and twice that is the bound. A frame is only ever compared with frames
that will be embedded, so a slow change adds up until it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from monitor.images.decode import Decoded

CELLS = 24
"""Cells of a signature along each side. What fills less than a cell is diluted in it, and is nine
pixels of a backbone's 224."""

FEWEST_FRAMES = 8
"""Of a source that has fewer frames together, the noise is not known and nothing would be saved."""

PROBED_PAIRS = 4
"""So many pairs of neighbouring frames tell whether a source stands still, before all are looked
at."""

NOISE_TIMES = 2
"""The bound over what a frame and the one before differ by when nothing happens."""

MOST_NOISE = 6
"""Levels of 255 by which the cells of quiet frames may differ. Where neighbouring frames differ by
more, the picture moves and there is nothing to reuse."""

REMEMBERED = 8
"""Embedded frames that a frame is compared with, the last ones: what was there before something
passed by is there again after it."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """What was found out about the frames of one source."""

    same_as: tuple[int | None, ...]
    """For each frame the earlier one whose features it can use, itself embedded; else None."""
    bound: int | None
    """Levels of 255 by which a cell may differ; None where frames differ too much."""
    checked: tuple[int, int] | None = None
    """The frame that differs most from the one it would have used, and that one: it is embedded as
    well, and so shows what is lost."""

    @property
    def copies(self) -> int:
        return sum(other is not None for other in self.same_as)


def frame_signature(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The means of the cells of an image, RGB.

    >>> frame_signature(np.zeros((90, 160, 3), np.uint8)).shape
    (24, 24, 3)
    """
    small = Image.fromarray(pixels).resize((CELLS, CELLS), Image.Resampling.BOX)
    return np.asarray(small)


def stands_still(pairs: Sequence[tuple[Decoded | None, Decoded | None]]) -> bool:
    """Whether at least half of some pairs of neighbouring frames are alike."""
    alike = sum(
        _comparable(a, b) and _difference(a.pixels, b.pixels) <= MOST_NOISE
        for a, b in pairs
        if a is not None and b is not None
    )
    return 2 * alike >= len(pairs)


def find_unchanged(frames: Sequence[Decoded | None]) -> Unchanged:
    """Compare the frames of one source, in their order; None stands for one without a signature.

    The pixels of the frames are their signatures. The answer depends on nothing else.
    """
    same_as: list[int | None] = [None] * len(frames)
    nothing = Unchanged(tuple(same_as), None)
    noise = _noise(frames)
    if noise is None or noise > MOST_NOISE:
        return nothing
    bound = NOISE_TIMES * max(1, noise)
    embedded: list[int] = []
    farthest, checked = -1, None
    for index, frame in enumerate(frames):
        if frame is None:
            continue
        for other in reversed(embedded):
            reference = frames[other]
            assert reference is not None
            if not _comparable(frame, reference):
                continue
            difference = _difference(frame.pixels, reference.pixels)
            if difference <= bound:
                same_as[index] = other
                embedded.remove(other)
                embedded.append(other)
                if difference > farthest:
                    farthest, checked = difference, (index, other)
                break
        else:
            embedded = [*embedded[1 - REMEMBERED :], index]
    if checked is None:
        return nothing
    same_as[checked[0]] = None
    return Unchanged(tuple(same_as), bound, checked)


def _noise(frames: Sequence[Decoded | None]) -> int | None:
    """By how much a frame and the one before differ when nothing happens: half differ by less."""
    found = sorted(
        _difference(before.pixels, frame.pixels)
        for before, frame in pairwise(frames)
        if before is not None and frame is not None and _comparable(before, frame)
    )
    return found[len(found) // 2] if len(found) + 1 >= FEWEST_FRAMES else None


def _comparable(one: Decoded, other: Decoded) -> bool:
    return one.size == other.size


def _difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> int:
    """Of the cell and colour that differ most."""
    return int(np.abs(one.astype(np.int16) - other).max())
