"""What the monitor waits for, as a line on top of every page."""

from __future__ import annotations

from monitor.outages import Outage, from_note
from monitor.store import Store
from monitor.store.shared_names import COORDINATOR_LEASE, OUTAGES


def shown_outages(store: Store) -> tuple[Outage, ...]:
    """Outages that a running monitor has noted; none of one that has ended."""
    with store.reading() as tx:
        lease = tx.leases.get(COORDINATOR_LEASE)
        if lease is None or not lease.is_held(tx.now):
            return ()
        return from_note(tx.notes.get(*OUTAGES))
