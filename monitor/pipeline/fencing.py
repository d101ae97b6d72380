"""Transactions that only the holder of the lease can write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from monitor.store import Store, Transaction
from monitor.store.rows import Lease


@contextmanager
def fenced(store: Store, lease: Lease | None) -> Iterator[Transaction]:
    """A write transaction that fails if the lease has passed to somebody else."""
    with store.transaction() as tx:
        if lease is not None:
            tx.leases.verify(lease)
        yield tx
