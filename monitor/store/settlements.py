"""When the verdicts of a pool's images were settled, and settled again."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, func, insert, select

from monitor.store.pool_transitions import FINISHED_POOLS
from monitor.store.records import Pool, Settlement
from monitor.store.repository import Repository, chunks
from monitor.store.tables import pool_members, pools, settlements


class Settlements(Repository):
    """One row for each file of ``settled/`` that was ever committed, merged since or not."""

    def next_unsettled(self) -> Pool | None:
        """The oldest finished pool that has features and no settled verdicts yet."""
        return self._first(
            Pool,
            select(pools)
            .where(
                pools.c.spool_dropped_at.is_(None),
                pools.c.state.in_(FINISHED_POOLS),
                ~is_settled(),
            )
            .order_by(pools.c.id),
        )

    def of_pool(self, pool_id: int) -> list[Settlement]:
        """By revision, the first one first."""
        return self._all(
            Settlement,
            select(settlements)
            .where(settlements.c.pool_id == pool_id)
            .order_by(settlements.c.revision),
        )

    def of_pools(self, pool_ids: list[int]) -> list[Settlement]:
        """All settlements of these pools, in the order in which they were made."""
        found = [
            one
            for piece in chunks(pool_ids)
            for one in self._all(
                Settlement, select(settlements).where(settlements.c.pool_id.in_(piece))
            )
        ]
        return sorted(found, key=lambda one: one.number)

    def pools_of_batches(self, first: int, last: int) -> list[int]:
        """Settled pools that may hold images of these batches."""
        rows = self._connection.execute(
            select(settlements.c.pool_id)
            .where(
                settlements.c.revision == 1,
                settlements.c.first_batch <= last,
                settlements.c.last_batch >= first,
            )
            .order_by(settlements.c.pool_id)
        )
        return [int(row.pool_id) for row in rows]

    def pools_after(self, pool_id: int, limit: int) -> list[int]:
        """The next settled pools by their ids."""
        rows = self._connection.execute(
            select(settlements.c.pool_id)
            .where(settlements.c.revision == 1, settlements.c.pool_id > pool_id)
            .order_by(settlements.c.pool_id)
            .limit(limit)
        )
        return [int(row.pool_id) for row in rows]

    def next_number(self) -> int:
        return self._next_id(settlements.c.number)

    def add(self, pool_id: int, revision: int, *, reason: str, rows: int) -> Settlement:
        """Enter the next settlement; the caller has made sure that the revision is the next."""
        first, last = self._batches_of(pool_id)
        settlement = Settlement(
            number=self.next_number(),
            pool_id=pool_id,
            revision=revision,
            reason=reason,
            rows=rows,
            first_batch=first,
            last_batch=last,
            at=self._now,
        )
        self._connection.execute(
            insert(settlements).values(
                {name: getattr(settlement, name) for name in Settlement.__slots__}
            )
        )
        return settlement

    def _batches_of(self, pool_id: int) -> tuple[int | None, int | None]:
        """From the first settlement: by the next one the spooled files may have been dropped."""
        before = self.of_pool(pool_id)
        if before:
            return before[0].first_batch, before[0].last_batch
        row = self._connection.execute(
            select(func.min(pool_members.c.batch_id), func.max(pool_members.c.last_batch)).where(
                pool_members.c.pool_id == pool_id
            )
        ).one()
        return row[0], row[1]


def is_settled() -> ColumnElement[bool]:
    """For statements about pools: whether their images have settled verdicts."""
    return exists().where(settlements.c.pool_id == pools.c.id)
