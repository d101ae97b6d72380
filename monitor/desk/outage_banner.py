"""What the monitor waits for, as a line on top of every page."""

from __future__ import annotations

from monitor.outages import Outage, from_note
from monitor.store import Store
from monitor.store.disk_space import with_disk_outage
from monitor.store.shared_names import COORDINATOR_LEASE, OUTAGES


def shown_outages(store: Store) -> tuple[Outage, ...]:
    """Outages that a running monitor has noted, and a full disk, which it cannot note."""
    with store.reading() as tx:
        lease = tx.leases.get(COORDINATOR_LEASE)
        runs = lease is not None and lease.is_held(tx.now)
        return with_disk_outage(from_note(tx.notes.get(*OUTAGES)) if runs else (), store, tx.now)
