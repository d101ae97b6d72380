"""What a commit records beside the ledger: the images that it brought, and its output files.

An image is known by its key (``monitor.images.image_identity``), 16 bytes: at a hundred million
images that is a few gigabytes instead of tens, and looking a batch up costs the same in the first
hour and in the second year.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, delete, func, insert, select

from monitor.images.image_identity import KEY_BYTES
from monitor.store.records import OutputFile
from monitor.store.tables import Repository, chunks, outputs, seen

_LOOKUP = select(seen.c.digest, seen.c.batch_id).where(
    seen.c.digest.in_(bindparam("digests", expanding=True))
)
#: One of many digests that are passed as one value: the driver is slow to write arrays.
_NTH = f"substring(%s::bytea FROM ({KEY_BYTES} * (nth - 1) + 1)::int FOR {KEY_BYTES})"


class SeenImages(Repository):
    """The digests of every image that has a verdict."""

    def lookup(self, digests: Iterable[bytes]) -> dict[bytes, int]:
        """Those that are known, with the batch that brought them."""
        found: dict[bytes, int] = {}
        if self._connection.dialect.name != "sqlite":
            joined = b"".join(wanted := sorted(digests))
            some = f"SELECT {_NTH} FROM generate_series(1, %s) AS given (nth)"
            known = self._connection.exec_driver_sql(
                f"SELECT digest, batch_id FROM seen WHERE digest IN ({some})",
                (joined, len(wanted)),
            )
            return {bytes(digest): int(batch) for digest, batch in known}
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
                joined = b"".join(digest for digest, _ in rows)
                numbers = json.dumps([number for _, number in rows])
                given = "json_array_elements_text(%s::json) WITH ORDINALITY AS given (batch, nth)"
                self._connection.exec_driver_sql(
                    f"{into} SELECT {_NTH}, batch::bigint FROM {given}", (joined, numbers)
                )

    def count(self) -> int:
        return int(self._connection.execute(select(func.count()).select_from(seen)).scalar_one())


class Outputs(Repository):
    """The committed files of ``verdicts/``, ``rejected/``, ``discoveries/`` and ``settled/``."""

    def add(self, output: OutputFile) -> None:
        self._connection.execute(
            insert(outputs).values({name: getattr(output, name) for name in OutputFile.__slots__})
        )

    def replace(self, old: Sequence[OutputFile], new: OutputFile) -> bool:
        """Let ``new`` take the place of ``old``; False (and no change) if one is gone already."""
        if not all(self._stands(output) for output in old):
            return False
        for output in old:
            self.remove(output)
        self.add(new)
        return True

    def remove(self, output: OutputFile) -> None:
        self._connection.execute(delete(outputs).where(outputs.c.name == output.name))

    def _stands(self, output: OutputFile) -> bool:
        found = self._first(OutputFile, select(outputs).where(outputs.c.name == output.name))
        return found is not None and found.sha256 == output.sha256

    def of_kind(self, kind: str) -> list[OutputFile]:
        """In the order of what they cover."""
        return self._all(
            OutputFile, select(outputs).where(outputs.c.kind == kind).order_by(outputs.c.first)
        )

    def all(self) -> list[OutputFile]:
        return self._all(OutputFile, select(outputs).order_by(outputs.c.kind, outputs.c.first))
