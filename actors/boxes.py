"""Detectors on their way to an actor: sent once for each version, however many calls name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray

from monitor.novelty.detector import Detector

#: The version in use, the one that a pool began with, and one on its way.
KEPT = 3


@dataclass(frozen=True, slots=True)
class Box:
    """A version of the detector, or a reference to where Ray keeps it.

    Ray would fetch a reference that is an argument of its own; inside a box it stays closed
    until somebody needs what is in it.
    """

    number: int
    content: Any


class Shelf:
    """The detectors that an actor has opened lately."""

    def __init__(self) -> None:
        self._open: dict[int, Detector] = {}

    def take(self, box: Box) -> Detector:
        if box.number not in self._open:
            content = box.content
            detector = content if isinstance(content, Detector) else ray.get(content)
            while len(self._open) >= KEPT:
                del self._open[min(self._open)]
            self._open[box.number] = detector
        return self._open[box.number]
