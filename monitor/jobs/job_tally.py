"""Counting what a job produced, from the tables that it wrote: one way for new and old parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from monitor.store.verdict_columns import DUPLICATE, NOVEL


class VerdictTally:
    """Counts of verdicts and rejected rows, as a whole and per source."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.duplicates = 0
        self.reused = 0
        self._sources: dict[str, Counter[str]] = {}

    def add_verdicts(self, found: pa.Table) -> None:
        for source, verdict, count in _grouped(found, ["source_id", "verdict"]):
            self.verdicts[verdict] += count
            self._of(source)[verdict] += count
        if "same_as" in found.schema.names:
            self.reused += found.num_rows - found.column("same_as").null_count

    def add_rejected(self, found: pa.Table) -> None:
        for source, reason, count in _grouped(found, ["source_id", "reason"]):
            if reason == DUPLICATE:
                self.duplicates += count
            else:
                self.rejected[reason] += count
            self._of(source)["duplicate" if reason == DUPLICATE else "rejected"] += count

    @property
    def rows(self) -> int:
        return self.verdicts.total() + self.rejected.total() + self.duplicates

    def sources(self) -> dict[str, dict[str, int]]:
        """By source, those with the most novel images first."""
        order = sorted(self._sources.items(), key=lambda item: (-item[1][NOVEL], item[0]))
        return {source: dict(sorted(counts.items())) for source, counts in order}

    def _of(self, source: str | None) -> Counter[str]:
        return self._sources.setdefault(source or "", Counter())


def _grouped(found: pa.Table, keys: list[str]) -> list[tuple[Any, Any, int]]:
    if not found.num_rows:
        return []
    counts = found.group_by(keys).aggregate([([], "count_all")])
    columns = (counts.column(name).to_pylist() for name in (*keys, "count_all"))
    return list(zip(*columns, strict=True))
