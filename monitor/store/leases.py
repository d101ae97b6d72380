"""Leases: work that only one process may do at a time, also when processes die."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import insert, select, update

from monitor.store.errors import LeaseHeld, LeaseLost
from monitor.store.repository import Repository
from monitor.store.rows import Lease
from monitor.store.schema import leases


class Leases(Repository):
    """Named leases. The moment is the database's, so machines need not agree on the time."""

    def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease:
        """Take a lease that is free or has expired; refused while somebody holds it.

        ``owner`` must be unique to the process (host, pid and start time, say): the same owner
        asking again simply renews.
        """
        held = self.get(name)
        if held is not None and held.owner == owner and held.expires_at > self._now:
            return self.renew(held, ttl)
        if held is not None and held.expires_at > self._now:
            raise LeaseHeld(
                f"{name}: {held.owner} has been doing this since "
                f"{held.acquired_at:%Y-%m-%d %H:%M:%S} UTC; stop it, or wait until its lease "
                f"runs out at {held.expires_at:%H:%M:%S} UTC"
            )
        lease = Lease(
            name=name,
            owner=owner,
            token=1 if held is None else held.token + 1,
            acquired_at=self._now,
            expires_at=self._now + ttl,
        )
        values = {key: getattr(lease, key) for key in Lease.__slots__}
        statement = insert(leases) if held is None else update(leases).where(leases.c.name == name)
        self._connection.execute(statement.values(values))
        return lease

    def get(self, name: str) -> Lease | None:
        """Who holds it, or held it last."""
        return self._first(Lease, select(leases).where(leases.c.name == name))

    def verify(self, lease: Lease) -> Lease:
        """The lease as it stands; refuses when it has passed to somebody else or expired.

        Inside a write transaction this is a fence: nobody can take the lease before the
        transaction ends, so what is written with it is written by the holder.
        """
        held = self.get(lease.name)
        if held is None or held.token != lease.token or held.expires_at <= self._now:
            holder = "nobody" if held is None or held.expires_at <= self._now else held.owner
            raise LeaseLost(
                f"{lease.name}: the lease of {lease.owner} has run out ({holder} holds it now); "
                "this process must stop, nothing of what it just did was committed"
            )
        return held

    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        held = self.verify(lease)
        expires_at = self._now + ttl
        self._expire(held, expires_at)
        return Lease(held.name, held.owner, held.token, held.acquired_at, expires_at)

    def release(self, lease: Lease) -> None:
        """Give it back; harmless when it was lost already."""
        held = self.get(lease.name)
        if held is not None and held.token == lease.token:
            self._expire(held, self._now)

    def _expire(self, lease: Lease, at: object) -> None:
        self._connection.execute(
            update(leases).where(leases.c.name == lease.name).values(expires_at=at)
        )
