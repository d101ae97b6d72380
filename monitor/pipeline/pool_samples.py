"""The samples of a pool, read back from where the batches spooled them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from monitor.novelty.arrays import Floats
from monitor.store import Store
from monitor.store.output_files import STATS, feature_matrix, read_table
from monitor.store.records import PoolMember, PoolSample


@dataclass(frozen=True, slots=True, eq=False)
class PoolSamples:
    """Features and metadata of a pool, in the order in which the batches were committed."""

    pool_id: int
    features: Floats
    stats: Floats
    meta: pa.Table
    sources: np.ndarray
    keys: tuple[tuple[int, int], ...]
    """Of each sample: the batch that its spooled file is named by, and its row there."""

    def sample(
        self, index: int, suggestion: dict[str, object], thumbnail: str | None
    ) -> PoolSample:
        """One of them as the subject of a question."""
        row = {name: self.meta.column(name)[index].as_py() for name in self.meta.column_names}
        batch_id, spool_row = self.keys[index]
        return PoolSample(
            batch_id=batch_id,
            spool_row=spool_row,
            image_id=row["image_id"],
            source_id=row["source_id"],
            captured_at=row["captured_at"],
            file=row["file"],
            row=row["row"],
            score=row["score"],
            score_ratio=row["score_ratio"],
            nearest_class=row["nearest_class"],
            suggestion=suggestion,
            thumbnail=thumbnail,
        )

    def latest(self) -> dict[str, float]:
        """When the last image of each source was taken, in POSIX seconds, where it is known."""
        taken = self.meta.column("captured_at")
        if not len(taken) or taken.null_count == len(taken):
            return {}
        found = self.meta.group_by("source_id").aggregate([("captured_at", "max")])
        pairs = zip(
            found.column("source_id").to_pylist(),
            found.column("captured_at_max").to_pylist(),
            strict=True,
        )
        return {source: moment.timestamp() for source, moment in pairs if moment is not None}

    def digest(self, index: int) -> str | None:
        """The hash of the image that was scored; None in pools of an older release."""
        known = "image_digest" in self.meta.column_names
        return self.meta.column("image_digest")[index].as_py() if known else None

    def place(self, index: int) -> tuple[str, int]:
        return self.meta.column("file")[index].as_py(), self.meta.column("row")[index].as_py()


def read_samples(store: Store, pool_id: int) -> PoolSamples:
    """All samples of a pool; its size bounds what this takes in memory."""
    with store.reading() as tx:
        members = tx.pools.members(pool_id)
    tables = [read_table(store.folder, member.name) for member in members]
    # Spools of an older release have no figures about how images were taken.
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return PoolSamples(
        pool_id=pool_id,
        features=feature_matrix(whole.column("features")),
        stats=_stats(whole),
        meta=whole.drop_columns([name for name in _ARRAYS if name in whole.column_names]),
        sources=np.asarray(whole.column("source_id").to_pylist(), dtype=object),
        keys=tuple(_keys(members)),
    )


_ARRAYS = ("features", "stats")


def _stats(whole: pa.Table) -> Floats:
    """A row for each sample, or none at all where some have no figures."""
    if "stats" not in whole.column_names or whole.column("stats").null_count:
        return np.empty((0, STATS), np.float32)
    return feature_matrix(whole.column("stats"))


def _keys(members: list[PoolMember]) -> list[tuple[int, int]]:
    return [(member.batch_id, row) for member in members for row in range(member.rows)]
