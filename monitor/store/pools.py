"""Pools: scored samples gathered until there are enough of them to ask about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from monitor.store.errors import NotFound, WrongState
from monitor.store.repository import Repository
from monitor.store.rows import Pool, PoolMember
from monitor.store.schema import pool_members, pools
from monitor.store.states import FINISHED_POOLS, POOL_MOVES, PoolState


class Pools(Repository):
    """Pools and the spooled files that belong to them.

    Membership is one row per spooled file, not per image: a features file holds exactly the
    rows that one run of batches, committed together, brought to one pool.
    """

    def open(self, group: str = "", *, seed: int = 0) -> Pool:
        """Begin a pool; ``group`` is the group of sources that share a detector."""
        pool = Pool(
            id=self._next_id(pools.c.id),
            group_name=group,
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

    def filling(self, group: str = "") -> Pool | None:
        """The pool that takes new samples of a group, if one is open."""
        return self._first(
            Pool,
            select(pools).where(pools.c.state == PoolState.FILLING, pools.c.group_name == group),
        )

    def in_state(self, *states: PoolState, limit: int = 1000) -> list[Pool]:
        """Oldest first."""
        return self._all(
            Pool,
            select(pools).where(pools.c.state.in_(states)).order_by(pools.c.id).limit(limit),
        )

    def count_by_state(self) -> dict[PoolState, int]:
        rows = self._connection.execute(select(pools.c.state, func.count()).group_by(pools.c.state))
        return {state: int(count) for state, count in rows}

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

    def close(self, pool_ids: Iterable[int]) -> None:
        """Close those of the pools that are still filling; the others stay as they are."""
        for pool_id in pool_ids:
            self._connection.execute(
                update(pools)
                .where(pools.c.id == pool_id, pools.c.state == PoolState.FILLING)
                .values(state=PoolState.CLOSED, closed_at=self._now)
            )

    def members(self, pool_id: int) -> list[PoolMember]:
        """The pool's spooled files in batch order: the order of its samples."""
        return self._all(
            PoolMember,
            select(pool_members)
            .where(pool_members.c.pool_id == pool_id)
            .order_by(pool_members.c.batch_id),
        )

    def move(
        self,
        pool_id: int,
        to: PoolState,
        *,
        reason: str | None = None,
        evidence: Mapping[str, Any] | None = None,
        resolved_by: int | None = None,
    ) -> Pool:
        """Go on to another state, if the state machine allows the step."""
        pool = self.get(pool_id)
        if to not in POOL_MOVES[pool.state]:
            raise WrongState(f"pool {pool_id}: cannot go from {pool.state} to {to}")
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
    ) -> Pool:
        """Start the inner loop: from here on the pool may open up to ``budget`` queries."""
        pool = self.get(pool_id)
        if budget < pool.asked:
            raise WrongState(
                f"pool {pool_id}: {pool.asked} queries were already asked, "
                f"the budget cannot become {budget}"
            )
        if pool.spool_dropped_at is not None:
            raise WrongState(f"pool {pool_id}: its features were dropped, nothing can be asked")
        self.move(pool_id, PoolState.ASKING, evidence=evidence)
        self._set(pool_id, budget=budget, detector_version=detector_version)
        return self.get(pool_id)

    def drop_members(self, pool_id: int) -> None:
        """Forget the spooled files of a finished pool; the caller then deletes them."""
        pool = self.get(pool_id)
        if pool.state not in FINISHED_POOLS:
            raise WrongState(f"pool {pool_id}: is {pool.state}, its features are still needed")
        self._connection.execute(delete(pool_members).where(pool_members.c.pool_id == pool_id))
        self._set(pool_id, spool_dropped_at=self._now)

    def _set(self, pool_id: int, **values: Any) -> None:
        self._connection.execute(update(pools).where(pools.c.id == pool_id).values(**values))
