"""Several sources at once, each in a thread of its own, as one stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.ingest.address_kinds import Source
from monitor.ingest.reader_items import Handed, Idle

QUEUED = 32
"""Images between the threads and the writer: when it waits for space, so do they."""
TICK_SECONDS = 0.2
"""How late a batch may be published because nothing comes."""


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None


def one_after_the_other(
    sources: Sequence[Source], stop: threading.Event
) -> Iterator[tuple[Source | None, Handed]]:
    for source in sources:
        for handed in source.pictures():
            yield source, handed
            if stop.is_set():
                return


def side_by_side(
    sources: Sequence[Source], stop: threading.Event
) -> Iterator[tuple[Source | None, Handed]]:
    """Until every source has ended or it is time to stop; an error of one is an error of all."""
    handed_over: queue.Queue[tuple[Source, Handed | _Ended]] = queue.Queue(QUEUED)

    def put(source: Source, handed: Handed | _Ended) -> None:
        while True:
            try:
                return handed_over.put((source, handed), timeout=TICK_SECONDS)
            except queue.Full:
                if stop.is_set():
                    return None

    def read(source: Source) -> None:
        error: BaseException | None = None
        try:
            for handed in source.pictures():
                put(source, handed)
                if stop.is_set():
                    break
        except BaseException as caught:  # noqa: BLE001 - raised again where somebody can see it
            error = caught
        put(source, _Ended(error))

    for source in sources:
        # A camera may hang in a read for seconds; a daemon does not hold up the end.
        threading.Thread(target=read, args=(source,), daemon=True).start()
    running = len(sources)
    while running:
        try:
            source, handed = handed_over.get(timeout=TICK_SECONDS)
        except queue.Empty:
            if stop.is_set():
                return
            yield None, Idle()
            continue
        if isinstance(handed, _Ended):
            if handed.error is not None:
                raise handed.error
            running -= 1
        else:
            yield source, handed
