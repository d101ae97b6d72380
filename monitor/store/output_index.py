"""Which output files exist, what they cover and what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from monitor.store.records import OutputFile
from monitor.store.repository import Repository
from monitor.store.tables import outputs


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
