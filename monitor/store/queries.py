"""Questions to people: opened within a budget, lent to one person at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, or_, select, update

from monitor.store.errors import BudgetExceeded, NotFound, WrongState
from monitor.store.pools import Pools
from monitor.store.records import Query, Sample
from monitor.store.repository import Repository, chunks
from monitor.store.states import PoolState, QueryState
from monitor.store.tables import pools, queries


class Queries(Repository):
    """The questions. What stands here was asked; a replay finds it and asks nobody again."""

    def open(self, pool_id: int, round: int, samples: Sequence[Sample]) -> list[Query]:
        """Ask about these samples; those already asked about in this pool come back as they are.

        The budget is checked and spent here, together with the questions, so it can never be
        exceeded: not by a crash in between, and not by a loop that is replayed.
        """
        pool = Pools(self._connection, self._now).get(pool_id)
        if pool.state is not PoolState.ASKING:
            raise WrongState(f"pool {pool_id}: is {pool.state}, only an asking pool opens queries")
        asked = {(query.batch_id, query.spool_row): query for query in self.of_pool(pool_id)}
        wanted = {(sample.batch_id, sample.spool_row): sample for sample in samples}
        fresh = [sample for key, sample in wanted.items() if key not in asked]
        if pool.asked + len(fresh) > pool.budget:
            raise BudgetExceeded(
                f"pool {pool_id}: {pool.asked} of {pool.budget} labels are spent, "
                f"{len(fresh)} more do not fit"
            )
        opened = self._insert(pool_id, round, fresh)
        self._connection.execute(
            update(pools)
            .where(pools.c.id == pool_id)
            .values(asked=pool.asked + len(fresh), round=max(pool.round, round))
        )
        known = {**asked, **{(query.batch_id, query.spool_row): query for query in opened}}
        return [known[key] for key in wanted]

    def _insert(self, pool_id: int, round: int, samples: Sequence[Sample]) -> list[Query]:
        if not samples:
            return []
        first = self._next_id(queries.c.id)
        values = [
            {
                **{name: getattr(sample, name) for name in Sample.__slots__},
                "id": first + offset,
                "pool_id": pool_id,
                "round": round,
                "state": QueryState.OPEN,
                "lease_owner": None,
                "lease_until": None,
                "answer_id": None,
                "opened_at": self._now,
                "closed_at": None,
            }
            for offset, sample in enumerate(samples)
        ]
        self._connection.execute(insert(queries), values)
        return [Query(**value) for value in values]

    def get(self, query_id: int) -> Query:
        found = self._first(Query, select(queries).where(queries.c.id == query_id))
        if found is None:
            raise NotFound(f"query {query_id}: there is no such query")
        return found

    def of_pool(self, pool_id: int, round: int | None = None) -> list[Query]:
        """In the order they were asked."""
        statement = select(queries).where(queries.c.pool_id == pool_id)
        if round is not None:
            statement = statement.where(queries.c.round == round)
        return self._all(Query, statement.order_by(queries.c.id))

    def list_open(self, *, limit: int = 1000, after: int = 0) -> list[Query]:
        return self._all(
            Query,
            select(queries)
            .where(queries.c.state == QueryState.OPEN, queries.c.id > after)
            .order_by(queries.c.id)
            .limit(limit),
        )

    def count_open(self, pool_id: int | None = None) -> int:
        statement = (
            select(func.count()).select_from(queries).where(queries.c.state == QueryState.OPEN)
        )
        if pool_id is not None:
            statement = statement.where(queries.c.pool_id == pool_id)
        return int(self._connection.execute(statement).scalar_one())

    def count_opened(self, since: datetime) -> int:
        """How many questions were asked since a moment: what a weekly budget counts."""
        statement = select(func.count()).select_from(queries).where(queries.c.opened_at > since)
        return int(self._connection.execute(statement).scalar_one())

    def lease(self, who: str, *, limit: int, ttl: timedelta) -> list[Query]:
        """Lend open questions to a person: free ones, expired ones, and those they hold.

        A lease only decides who is shown what. An answer by somebody else is still taken.
        """
        free = self._all(
            Query,
            select(queries)
            .where(
                queries.c.state == QueryState.OPEN,
                or_(
                    queries.c.lease_owner.is_(None),
                    queries.c.lease_owner == who,
                    queries.c.lease_until <= self._now,
                ),
            )
            .order_by(queries.c.id)
            .limit(limit),
        )
        until = self._now + ttl
        self._set([query.id for query in free], lease_owner=who, lease_until=until)
        return [replace(query, lease_owner=who, lease_until=until) for query in free]

    def release(self, who: str) -> None:
        """Give back everything a person holds (they closed the page)."""
        self._connection.execute(
            update(queries)
            .where(queries.c.state == QueryState.OPEN, queries.c.lease_owner == who)
            .values(lease_owner=None, lease_until=None)
        )

    def set_answer(self, query_id: int, answer_id: int | None) -> None:
        """Let an answer stand, or (None) open the question again."""
        self._set(
            [query_id],
            answer_id=answer_id,
            state=QueryState.OPEN if answer_id is None else QueryState.ANSWERED,
            lease_owner=None,
            lease_until=None,
        )

    def shows(self, thumbnail: str) -> bool:
        """Whether any question refers to this picture."""
        found = select(queries).where(queries.c.thumbnail == thumbnail)
        return self._first(Query, found) is not None

    def close_round(self, pool_id: int, round: int) -> list[Query]:
        """End a round, answered or not: from here on its answers are used and stay as they are."""
        self._connection.execute(
            update(queries)
            .where(
                queries.c.pool_id == pool_id,
                queries.c.round == round,
                queries.c.state != QueryState.CLOSED,
            )
            .values(
                state=QueryState.CLOSED, closed_at=self._now, lease_owner=None, lease_until=None
            )
        )
        return self.of_pool(pool_id, round)

    def _set(self, query_ids: Sequence[int], **values: Any) -> None:
        for piece in chunks(query_ids):
            self._connection.execute(
                update(queries).where(queries.c.id.in_(piece)).values(**values)
            )
