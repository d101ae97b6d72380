"""Waiting while the disk is nearly full: filling it would take others down as well."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 5.0
"""A retention job frees space in minutes; asking more often would not be answered sooner."""


@dataclass(slots=True)
class Space:
    """Keeps some bytes of a disk free.

    >>> told = []
    >>> free = iter([10, 10, 500])
    >>> space = Space(Path("."), 100, told.append, lambda seconds: True, lambda: next(free))
    >>> space.wait_for(50)
    True
    >>> told
    ['the disk of . has 10 B free, where 100 B are kept free (--min-free): waiting', \
'the disk of . has room again: going on']
    """

    folder: Path
    keep_free: int
    note: Callable[[str], None]
    sleep: Callable[[float], bool]
    """Returns False when it is time to stop."""
    free: Callable[[], int] | None = None
    """In place of the disk's own answer."""
    waiting: bool = False

    def wait_for(self, wanted: int) -> bool:
        """Return True once there is room for so many bytes more, False if told to stop before."""
        while (free := self._free()) < self.keep_free + wanted:
            if not self.waiting:
                self.waiting = True
                self.note(
                    f"the disk of {self.folder} has {size(free)} free, where "
                    f"{size(self.keep_free)} are kept free (--min-free): waiting"
                )
            if not self.sleep(LOOK_SECONDS):
                return False
        if self.waiting:
            self.waiting = False
            self.note(f"the disk of {self.folder} has room again: going on")
        return True

    def _free(self) -> int:
        return self.free() if self.free is not None else shutil.disk_usage(self.folder).free


def size(number: float) -> str:
    """
    >>> size(999), size(1_234_000), size(5_000_000_000)
    ('999 B', '1.2 MB', '5.0 GB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number:.0f} B"
