"""Leases: work that only one process may do at a time, also when processes die."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import insert, select, update

from monitor.store.errors import LeaseHeld, LeaseLost
from monitor.store.records import Lease
from monitor.store.repository import Repository
from monitor.store.tables import leases


class Leases(Repository):
    """Named leases. The moment is the database's, so machines need not agree on the time."""

    def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease:
        """Take a lease that is free or has expired; refused while somebody holds it.

        ``owner`` must be unique to the process (host, pid and start time, say): the same owner
        asking again simply renews.
        """
        held = self.get(name)
        is_held = held is not None and held.is_held(self._now)
        if held is not None and is_held and held.owner == owner:
            return self.renew(held, ttl)
        if held is not None and is_held:
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
        """The present lease; raises only if another process has taken it.

        Inside a write transaction this is a fence: nobody can take the lease before the
        transaction ends, so what is written with it is written by the holder. A lease that has
        run out and that nobody took is still ours: the clock may have jumped, the database may
        have been away, this process may have been frozen. Its number says whether it passed on.
        """
        held = self.get(lease.name)
        if held is None or held.token != lease.token:
            holder = "nobody" if held is None else held.owner
            raise LeaseLost(
                f"{lease.name}: {lease.owner} no longer holds the lease, {holder} took it; "
                "this process must stop, nothing of what it just did was committed"
            )
        return held

    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        held = self.verify(lease)
        expires_at = self._now + ttl
        self._set(held, expires_at=expires_at)
        return Lease(held.name, held.owner, held.token, held.acquired_at, expires_at)

    def release(self, lease: Lease) -> None:
        """Give it back, and its number with it; harmless when it was lost already."""
        held = self.get(lease.name)
        if held is not None and held.token == lease.token:
            self._set(held, expires_at=held.acquired_at, token=held.token + 1)

    def _set(self, lease: Lease, **values: object) -> None:
        self._connection.execute(update(leases).where(leases.c.name == lease.name).values(**values))
