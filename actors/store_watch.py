"""Notices a database that neither answers nor hangs up: frozen, or on a disk that hangs.

Whoever asks such a server waits in the kernel and cannot say so. A thread beside it can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from monitor.errors import ErrorKind
from monitor.outages import Outages
from monitor.store.database import Database
from monitor.store.errors import StoreUnreachable

#: Transactions take milliseconds, and wait for others for some seconds.
HANGS_SECONDS = 20.0
LOOK_SECONDS = 2.0


@contextmanager
def watching_store(
    database: Database,
    outages: Outages,
    say: Callable[[str, str], None],
    is_waited_for: Callable[[ErrorKind], bool],
    *,
    look_seconds: float = LOOK_SECONDS,
    hangs_seconds: float = HANGS_SECONDS,
) -> Iterator[None]:
    """Say and export while a transaction of this thread hangs.

    Not where it is waited for already: whoever waits says so.
    """
    thread, over = threading.get_ident(), threading.Event()

    def watch() -> None:
        is_ours = False
        while not over.wait(look_seconds):
            hangs = database.busy_seconds(thread) > hangs_seconds
            if hangs:
                sentence = f"{database.where}: has not answered for {hangs_seconds:g} s"
                if outages.begin(StoreUnreachable(sentence)):
                    is_ours = True
                    say("store.unavailable", f"waiting: {sentence}")
            elif is_ours:
                is_ours = False
                if is_waited_for(ErrorKind.STORE):
                    continue
                seconds = outages.end(ErrorKind.STORE)
                if seconds is not None:
                    say("store.back", f"the store answers again after {seconds:.0f} s")

    watcher = threading.Thread(target=watch, name="store-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(look_seconds)
