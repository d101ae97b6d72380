"""The images that a bounded job has taken; across months the store keeps the same keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import islice

_CACHE_KIB = 16 << 10
"""Pages held in memory: half a million keys are looked up without a disk."""

_TOGETHER = 500
"""Keys in one statement; SQLite takes at least 999."""


class TakenImages:
    """The keys of images that a bounded job has taken, in a file that goes when the job does.

    The memory it needs does not grow with the images: SQLite keeps the pages in use, and the rest
    of the file lies in the system's folder for temporary files, 30 bytes for an image.

    >>> from monitor.images.image_identity import image_key
    >>> taken = TakenImages()
    >>> taken.add([image_key("cam-7", "1")])
    >>> taken.among([image_key("cam-7", "1"), image_key("cam-7", "2")]) == {
    ...     image_key("cam-7", "1")}
    True
    """

    def __init__(self, taken: Iterable[bytes] = ()) -> None:
        # Without a name SQLite makes a file of its own and removes it by itself.
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE taken (identity BLOB PRIMARY KEY) WITHOUT ROWID",
        ):
            self._database.execute(statement)
        self.add(taken)

    def __len__(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM taken").fetchone()
        return int(count)

    def among(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of the keys that were taken."""
        wanted = iter(keys)
        found: set[bytes] = set()
        while piece := list(islice(wanted, _TOGETHER)):
            marks = ",".join("?" * len(piece))
            rows = self._database.execute(
                f"SELECT identity FROM taken WHERE identity IN ({marks})", piece
            )
            found.update(key for (key,) in rows)
        return found

    def add(self, keys: Iterable[bytes]) -> None:
        """Take them; one that was taken before stays."""
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT OR IGNORE INTO taken VALUES (?)", ((key,) for key in keys)
        )
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()
