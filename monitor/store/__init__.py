"""The store: ledger, pools, questions, answers, classes, detector versions, and their files."""

from monitor.store.store import Store, Transaction

__all__ = ["Store", "Transaction"]
