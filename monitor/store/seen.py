"""Which images have been scored before: duplicates across files and across time.

An image is known by (source, image id). Only a 16 byte digest of the two is kept: at a hundred
million images that is a few gigabytes instead of tens, the chance of one false duplicate is
about 1e-23, and looking a batch up costs the same in the first hour and in the second year.
Digests can be pruned by age; an image that returns after that is scored again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import bindparam, delete, func, select

from monitor.store.repository import Repository, chunks
from monitor.store.schema import batches, seen

DIGEST_BYTES = 16


def image_digest(source_id: str, image_id: str) -> bytes:
    """The name under which an image is remembered.

    The length goes in front, so that ("a", "bc") and ("ab", "c") differ.

    >>> image_digest("a", "bc") == image_digest("ab", "c")
    False
    """
    source = source_id.encode()
    text = len(source).to_bytes(4, "big") + source + image_id.encode()
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


_LOOKUP = select(seen.c.digest, seen.c.batch_id).where(
    seen.c.digest.in_(bindparam("digests", expanding=True))
)


class Seen(Repository):
    """The digests of every image that has a verdict."""

    def lookup(self, digests: Iterable[bytes]) -> dict[bytes, int]:
        """Those that are known, with the batch that brought them."""
        found: dict[bytes, int] = {}
        for piece in chunks(digests):
            rows = self._connection.execute(_LOOKUP, {"digests": piece})
            found.update({bytes(digest): int(batch) for digest, batch in rows})
        return found

    def add(self, batch_id: int, digests: Sequence[bytes]) -> None:
        self.add_many({batch_id: digests})

    def add_many(self, digests: Mapping[int, Sequence[bytes]]) -> None:
        """Enter what each batch brought; an image known already is an ``IntegrityError``."""
        # Sorted, because neighbours share a page of the index: each is then touched once.
        rows = sorted((digest, number) for number, found in digests.items() for digest in found)
        if rows:
            # As text with tuples, the one statement that runs for every image: three times as
            # fast as the same built from the table.
            mark = "?" if self._connection.dialect.name == "sqlite" else "%s"
            self._connection.exec_driver_sql(
                f"INSERT INTO seen (digest, batch_id) VALUES ({mark}, {mark})", rows
            )

    def count(self) -> int:
        return int(self._connection.execute(select(func.count()).select_from(seen)).scalar_one())

    def prune(self, before: datetime) -> int:
        """Forget what was committed before this moment; returns how many.

        Walks over all digests: rare work, for which an index would cost every batch.
        """
        old = select(batches.c.id).where(batches.c.settled_at < before)
        return self._connection.execute(delete(seen).where(seen.c.batch_id.in_(old))).rowcount
