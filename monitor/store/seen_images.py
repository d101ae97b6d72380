"""Which images have been scored before: duplicates across files and across time.

An image is known by its key (``monitor.images.image_identity``), 16 bytes: at a hundred million
images that is a few gigabytes instead of tens, and looking a batch up costs the same in the first
hour and in the second year.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, func, select

from monitor.store.repository import Repository, chunks
from monitor.store.tables import seen

_LOOKUP = select(seen.c.digest, seen.c.batch_id).where(
    seen.c.digest.in_(bindparam("digests", expanding=True))
)


class SeenImages(Repository):
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
            into = "INSERT INTO seen (digest, batch_id)"
            if self._connection.dialect.name == "sqlite":
                self._connection.exec_driver_sql(f"{into} VALUES (?, ?)", rows)
            else:
                columns = tuple(map(list, zip(*rows, strict=True)))
                several = "SELECT * FROM unnest(%s::bytea[], %s::bigint[])"
                self._connection.exec_driver_sql(f"{into} {several}", columns)

    def count(self) -> int:
        return int(self._connection.execute(select(func.count()).select_from(seen)).scalar_one())
