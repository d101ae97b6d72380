"""Pools: scored samples gathered until there are enough of them to ask about, and their states.

:data:`TRANSITIONS` has every state, every event, and the state that follows. What is not in the
table cannot happen: ``tx.pools.apply`` is the only way to change a pool's state, and it refuses
every other event. ``filling`` takes samples; ``closed`` waits for its inspection; ``asking`` is the
machine's turn (the inner loop chooses, thumbnails are rendered), ``waiting`` the people's; ``held``
waits for an operator. The other three are ends. Settlements say when the verdicts of a pool's
images were settled, and settled again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update

from monitor.store.errors import NotFound, WrongState
from monitor.store.pool_and_file_states import PoolState
from monitor.store.records import Pool, PoolMember, Settlement
from monitor.store.tables import Repository, chunks, pool_members, pools, settlements


class PoolEvent(StrEnum):
    """What can happen to a pool."""

    FILLED = "filled"
    """It is full or old enough, or the feed has ended: it takes no more samples."""
    FOUND_CALM = "found calm"
    """The inspection shows nothing beyond chance, so no question is asked."""
    TRIGGERED = "triggered"
    """The inspection shows more than chance explains, or a shift to confirm."""
    PROBED = "probed"
    """Nothing beyond chance, but a few questions of the week's trickle go to it."""
    ROUND_OPENED = "round opened"
    """People have a round of questions to answer."""
    ROUND_CLOSED = "round closed"
    """All have been answered, or their time is over."""
    NOTHING_LEARNT = "nothing learnt"
    """The inner loop ended without a class or an adaptation."""
    VERSION_PUBLISHED = "version published"
    """A detector version with what was learnt is in use."""
    VERSION_HELD = "version held"
    """The gate objects to that version."""
    VERSION_RELEASED = "version released"
    """An operator puts the held version into use all the same."""
    VERSION_REFUSED = "version refused"
    """An operator turns the held version down."""
    GIVEN_UP = "given up"
    """Nobody answered, too many pools wait, or its inner loop fails."""


_S, _E = PoolState, PoolEvent

TRANSITIONS: Mapping[PoolState, Mapping[PoolEvent, PoolState]] = MappingProxyType(
    {
        _S.FILLING: {
            _E.FILLED: _S.CLOSED,
        },
        _S.CLOSED: {
            _E.FOUND_CALM: _S.QUIET,
            _E.TRIGGERED: _S.ASKING,
            _E.PROBED: _S.ASKING,
            _E.GIVEN_UP: _S.UNRESOLVED,
        },
        _S.ASKING: {
            _E.ROUND_OPENED: _S.WAITING,
            _E.NOTHING_LEARNT: _S.RESOLVED,
            _E.VERSION_PUBLISHED: _S.RESOLVED,
            _E.VERSION_HELD: _S.HELD,
            _E.GIVEN_UP: _S.UNRESOLVED,
        },
        _S.WAITING: {
            _E.ROUND_CLOSED: _S.ASKING,
        },
        _S.HELD: {
            _E.VERSION_RELEASED: _S.RESOLVED,
            _E.VERSION_REFUSED: _S.UNRESOLVED,
        },
        _S.QUIET: {},
        _S.RESOLVED: {},
        _S.UNRESOLVED: {},
    }
)

#: Nothing will be asked of these any more, so what was spooled for them may be dropped.
FINISHED_POOLS = frozenset(state for state, events in TRANSITIONS.items() if not events)


def next_state(state: PoolState, event: PoolEvent) -> PoolState | None:
    """The state after an event; None if it cannot happen in this one.

    >>> next_state(PoolState.WAITING, PoolEvent.ROUND_CLOSED)
    <PoolState.ASKING: 'asking'>
    >>> next_state(PoolState.QUIET, PoolEvent.TRIGGERED) is None
    True
    """
    return TRANSITIONS[state].get(event)


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
