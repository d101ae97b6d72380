"""Pools: scored samples gathered until there are enough of them to ask about.

Which state of a pool follows which is in :mod:`monitor.store.pool_transitions`. Settlements say
when the verdicts of a pool's images were settled, and settled again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update

from monitor.store.errors import NotFound, WrongState
from monitor.store.pool_transitions import FINISHED_POOLS, PoolEvent, PoolState, next_state
from monitor.store.records import Pool, PoolMember, Settlement
from monitor.store.tables import Repository, chunks, pool_members, pools, settlements


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


class PoolRepository(Repository):
    """Pools and the spooled files that belong to them.

    Membership is one row per spooled file, not per image: a features file holds exactly the
    rows that one run of batches, committed together, brought to one pool.
    """

    def open(self, *, seed: int = 0) -> Pool:
        """Begin a pool."""
        pool = Pool(
            id=self._next_id(pools.c.id),
            group_name="",
            state=PoolState.FILLING,
            reason=None,
            size=0,
            above=0,
            seed=seed,
            round=0,
            budget=0,
            asked=0,
            detector_version=None,
            resolved_by=None,
            evidence={},
            opened_at=self._now,
            closed_at=None,
            finished_at=None,
            spool_dropped_at=None,
        )
        self._connection.execute(
            insert(pools).values({name: getattr(pool, name) for name in Pool.__slots__})
        )
        return pool

    def get(self, pool_id: int) -> Pool:
        found = self._first(Pool, select(pools).where(pools.c.id == pool_id))
        if found is None:
            raise NotFound(f"pool {pool_id}: there is no such pool")
        return found

    def filling(self) -> Pool | None:
        """The pool that takes new samples, if one is open."""
        return self._first(Pool, select(pools).where(pools.c.state == PoolState.FILLING))

    def in_state(self, *states: PoolState, limit: int = 1000) -> list[Pool]:
        """Oldest first."""
        return self._all(
            Pool,
            select(pools).where(pools.c.state.in_(states)).order_by(pools.c.id).limit(limit),
        )

    def add_member(self, member: PoolMember, *, above: int) -> None:
        """Enter a spooled file; only a pool that is still filling takes samples."""
        pool = self.get(member.pool_id)
        if pool.state is not PoolState.FILLING:
            raise WrongState(f"pool {pool.id}: is {pool.state} and takes no more samples")
        self._connection.execute(
            insert(pool_members).values(
                {name: getattr(member, name) for name in PoolMember.__slots__}
            )
        )
        self._set(pool.id, size=pools.c.size + member.rows, above=pools.c.above + above)

    def members(self, pool_id: int) -> list[PoolMember]:
        """The pool's spooled files in batch order: the order of its samples."""
        return self._all(
            PoolMember,
            select(pool_members)
            .where(pool_members.c.pool_id == pool_id)
            .order_by(pool_members.c.batch_id),
        )

    def apply(
        self,
        pool_id: int,
        event: PoolEvent,
        *,
        reason: str | None = None,
        evidence: Mapping[str, Any] | None = None,
        resolved_by: int | None = None,
    ) -> Pool:
        """Go on to the state that follows an event; refuse one that cannot happen now."""
        pool = self.get(pool_id)
        to = next_state(pool.state, event)
        if to is None:
            raise WrongState(f"pool {pool_id}: is {pool.state}, so it cannot be {event}")
        values: dict[str, Any] = {"state": to, "reason": reason}
        if evidence is not None:
            values["evidence"] = {**pool.evidence, **evidence}
        if resolved_by is not None:
            values["resolved_by"] = resolved_by
        if to is PoolState.CLOSED:
            values["closed_at"] = self._now
        values["finished_at"] = self._now if to in FINISHED_POOLS else None
        self._set(pool_id, **values)
        return self.get(pool_id)

    def begin_asking(
        self,
        pool_id: int,
        *,
        budget: int,
        detector_version: int,
        evidence: Mapping[str, Any] | None = None,
        event: PoolEvent = PoolEvent.TRIGGERED,
    ) -> Pool:
        """Start the inner loop: from here on the pool may open up to ``budget`` questions."""
        self.apply(pool_id, event, evidence=evidence)
        self._set(pool_id, budget=budget, detector_version=detector_version)
        return self.get(pool_id)

    def drop_members(self, pool_id: int) -> None:
        """Forget the spooled files of a settled pool; the caller then deletes them."""
        pool = self.get(pool_id)
        if pool.state not in FINISHED_POOLS:
            raise WrongState(f"pool {pool_id}: is {pool.state}, its features are still needed")
        settled = select(pools.c.id).where(pools.c.id == pool_id, is_settled())
        if self._connection.execute(settled).first() is None:
            raise WrongState(f"pool {pool_id}: is not settled, its features are still needed")
        self._connection.execute(delete(pool_members).where(pool_members.c.pool_id == pool_id))
        self._set(pool_id, spool_dropped_at=self._now)

    def _set(self, pool_id: int, **values: Any) -> None:
        self._connection.execute(update(pools).where(pools.c.id == pool_id).values(**values))
