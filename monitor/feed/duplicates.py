"""One image counts once: the identity of a row, and a memory of them for bounded jobs.

Across months the store keeps the identities; a job keeps its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from itertools import islice

_CACHE_KIB = 16 << 10
"""Pages held in memory: half a million identities are looked up without a disk."""

_TOGETHER = 500
"""Keys in one statement; SQLite takes at least 999."""

KEY_BYTES = 16
"""128 bits: a billion rows collide with a probability of about 1.5e-21."""


def sample_key(source_id: str, image_id: str) -> bytes:
    """The identity of a row, the same in every process and for ever.

    The length of the source stands before it, so that ("a", "bc") and ("ab", "c") differ.

    >>> sample_key("cam-7", "0001").hex()
    'b976639b3b8279fe0e54d7ac6798e928'
    >>> sample_key("a", "bc") == sample_key("ab", "c")
    False
    """
    source = source_id.encode("utf-8", "surrogatepass")
    image = image_id.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(digest_size=KEY_BYTES, person=b"conclad sample")
    digest.update(len(source).to_bytes(8, "big"))
    digest.update(source)
    digest.update(image)
    return digest.digest()


class Identities:
    """The identities that a bounded job has taken, in a file that goes when the job does.

    The memory it needs does not grow with the images: SQLite keeps the pages in use, and the rest
    of the file lies in the system's folder for temporary files, 30 bytes for an image.

    >>> taken = Identities()
    >>> taken.add([sample_key("cam-7", "1")])
    >>> taken.among([sample_key("cam-7", "1"), sample_key("cam-7", "2")]) == {
    ...     sample_key("cam-7", "1")}
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
