"""A few pictures of each class, taken from a stream of labelled images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from monitor.images.decode import Decoding
from monitor.images.isolated_decoding import decoders_for
from monitor.images.thumbnail import SIDE

PER_CLASS = 8
"""What a person takes in at a glance, and what fits beside a question."""


@dataclass(slots=True)
class Gallery:
    """Keeps a fair sample of the images of each class, as small pictures.

    Every image has the same chance to be kept, however many there are and in whatever order
    they come (reservoir sampling); only the pictures kept at any time are held.

    >>> gallery = Gallery(per_class=2)
    >>> gallery.offer("water", b"no image")
    >>> gallery.pictures()
    {}
    """

    decoding: Decoding | None = None
    per_class: int = PER_CLASS
    seed: int = 0
    _kept: dict[str, list[bytes]] = field(default_factory=dict, init=False)
    _seen: dict[str, int] = field(default_factory=dict, init=False)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def offer(self, label: str, image: bytes) -> None:
        """Show one image; what cannot be decoded is passed over."""
        count = self._seen.get(label, 0)
        place = count if count < self.per_class else int(self._rng.integers(count + 1))
        if place >= self.per_class:
            self._seen[label] = count + 1
            return
        picture = decoders_for(self.decoding or Decoding()).thumbnail(image, SIDE)
        if not isinstance(picture, bytes):
            return
        self._seen[label] = count + 1
        kept = self._kept.setdefault(label, [])
        if place == len(kept):
            kept.append(picture)
        else:
            kept[place] = picture

    def pictures(self) -> dict[str, list[bytes]]:
        """What was kept, by label."""
        return {label: list(kept) for label, kept in self._kept.items()}
