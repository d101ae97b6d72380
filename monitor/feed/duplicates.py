"""One image counts once: the identity of a row, and a filter for bounded jobs.

Across months the store keeps the identities; within one job a set in memory is enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

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


class Duplicates:
    """Remembers which rows a bounded job has taken, and counts those that came again.

    Costs about 100 bytes for each row, so 100 MB for a million. Ask once for each row, in a
    stable order: the first one stays.

    >>> seen = Duplicates()
    >>> [seen.is_new(sample_key("cam-7", image)) for image in ("1", "2", "1")]
    [True, True, False]
    >>> seen.dropped
    1
    """

    def __init__(self, already: Iterable[bytes] = ()) -> None:
        self._keys = set(already)
        self._dropped = 0

    @property
    def dropped(self) -> int:
        return self._dropped

    def __len__(self) -> int:
        return len(self._keys)

    def is_new(self, key: bytes) -> bool:
        """Whether this row is seen for the first time; remembers it if so."""
        before = len(self._keys)
        self._keys.add(key)
        if len(self._keys) > before:
            return True
        self._dropped += 1
        return False
