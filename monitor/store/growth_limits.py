"""Forgets old digests and events, so that the database does not grow with the age of a feed.

Digests are reached by their own order, not by their age: an index by age would double what an
image costs. So a call looks at a few slices of them, and all slices come up once a day.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select

from monitor.store.records import Count, Lease
from monitor.store.store import Store, Transaction
from monitor.store.tables import batches, events, seen

#: Slices of all digests: small enough that one takes milliseconds at a billion of them.
SLICES = 4096
#: Events that are removed at once, so that no write waits long for it.
EVENTS_AT_ONCE = 5000
#: What happens with every pool or restart. What people did, and what was learnt, is kept for good.
ROUTINE_EVENTS = (
    "actor.restarted",
    "budget.exhausted",
    "drift.detected",
    "drift.ended",
    "monitor.started",
    "monitor.stopped",
    "pool.probed",
    "pool.quiet",
    "pool.settled",
    "pool.triggered",
    "pool.unresolved",
)
#: The note with the slice that comes next.
CURSOR = ("retention", "digests")


def forget_old(
    store: Store,
    *,
    digests: timedelta,
    events: timedelta,
    slices: int = 3,
    lease: Lease | None = None,
) -> dict[str, int]:
    """Forget digests and routine events that are older than this; how many went of each.

    An image that returns after its digest went is scored again.
    """
    with store.transaction(lease) as tx:
        gone = {
            "digests": _forget_digests(tx, tx.now - digests, slices),
            "events": _forget_events(tx, tx.now - events),
        }
        tx.counters.add([Count("forgotten", "", what, n) for what, n in gone.items() if n])
    return gone


def _forget_digests(tx: Transaction, before: datetime, slices: int) -> int:
    last = last_batch_before(tx, before)
    if last is None:
        return 0
    first = int(tx.notes.get(*CURSOR, 0))
    gone = 0
    for number in range(first, first + slices):
        low, high = _slice(number % SLICES)
        condition = (seen.c.digest >= low) & (seen.c.batch_id <= last)
        if high is not None:
            condition &= seen.c.digest < high
        gone += tx.connection.execute(delete(seen).where(condition)).rowcount
    tx.notes.set(*CURSOR, (first + slices) % SLICES)
    return gone


def _slice(number: int) -> tuple[bytes, bytes | None]:
    """Where a slice of the digests begins, and where the next one does.

    >>> _slice(0), _slice(4095)
    ((b'\\x00\\x00', b'\\x00\\x10'), (b'\\xff\\xf0', None))
    """
    width = 0x10000 // SLICES
    low = number * width
    high = low + width
    return low.to_bytes(2, "big"), high.to_bytes(2, "big") if high < 0x10000 else None


def last_batch_before(tx: Transaction, before: datetime) -> int | None:
    """The last batch that was done before this moment; batches are done in their order."""

    def done(number: int) -> tuple[int, datetime] | None:
        row = tx.connection.execute(
            select(batches.c.id, batches.c.settled_at)
            .where(batches.c.id >= number, batches.c.settled_at.is_not(None))
            .order_by(batches.c.id)
            .limit(1)
        ).first()
        return None if row is None else (int(row.id), row.settled_at)

    low, found = 1, None
    high = tx.connection.execute(select(batches.c.id).order_by(batches.c.id.desc()).limit(1))
    top = int(high.scalar() or 0)
    while low <= top:
        middle = (low + top) // 2
        at = done(middle)
        if at is not None and at[1] < before:
            found, low = at[0], at[0] + 1
        else:
            top = middle - 1
    return found


def _forget_events(tx: Transaction, before: datetime) -> int:
    old = (
        select(events.c.id)
        .where(events.c.at < before, events.c.kind.in_(ROUTINE_EVENTS))
        .order_by(events.c.at)
        .limit(EVENTS_AT_ONCE)
    )
    ids = [int(row.id) for row in tx.connection.execute(old)]
    # The newest stays whatever it is: numbers follow the largest one, and readers remember theirs.
    ids = [number for number in ids if number != tx.events.last()]
    if not ids:
        return 0
    return tx.connection.execute(delete(events).where(events.c.id.in_(ids))).rowcount
