"""When a run dies again and again without getting anywhere, what it had in hand is suspect.

A worker that dies is noticed by the coordinator. A batch that takes the whole machine along is
not: all that remains of it is that the last runs ended without a word and without progress. Then
the batches at the front of the ledger are tried one at a time, each try noted before it begins.
"""

from __future__ import annotations

from monitor.pipeline.fencing import fenced
from monitor.store import Store
from monitor.store.rows import Lease

#: Runs that ended without a word and without a single batch, before batches are suspected.
IN_VAIN = 3

_NOTE = ("monitor", "last_run")


def begin_run(store: Store, lease: Lease, *, in_hand: int) -> bool:
    """Note that a run begins; says whether the first ``in_hand`` batches are now suspect."""
    with fenced(store, lease) as tx:
        done = tx.counters.value("batches", "", "done")
        last = tx.notes.get(*_NOTE, {"ended": True})
        died_in_vain = not last["ended"] and last["done"] == done
        in_vain = last["in_vain"] + 1 if died_in_vain else 0
        suspicious = in_vain >= IN_VAIN
        if suspicious:
            pending = tx.batches.pending(in_hand)
            tx.batches.start([batch.id for batch in pending if not batch.tries])
        tx.notes.set(*_NOTE, {"ended": False, "done": done, "in_vain": in_vain})
    return suspicious


def end_run(store: Store, lease: Lease) -> None:
    """Note that the run ended by itself, whatever its reason."""
    with fenced(store, lease) as tx:
        last = tx.notes.get(*_NOTE, {})
        tx.notes.set(*_NOTE, {**last, "ended": True})
