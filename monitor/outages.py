"""What is away just now: said once, waited for with growing pauses, and shown to people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from monitor.errors import OUTAGES, ErrorKind, kind_of

#: Between two tries: soon at first, since most outages are over at once; then as often as a
#: person who repairs something likes to see that it worked.
PAUSE_SECONDS, PAUSE_MOST_SECONDS = 0.5, 15.0
#: Somebody who waits tries again at least this often; who does not has died or hangs.
TRIED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outage:
    """Something that conclad needs and that is away."""

    kind: ErrorKind
    sentence: str
    since: datetime


@dataclass(slots=True)
class _Entry:
    outage: Outage
    tries: int
    tried_at: float
    began_at: float


def _silent(kind: str, text: str) -> None:
    """Reports to nobody."""


class Outages:
    """The outages of one process; may be used from several threads.

    ``report`` is called with a kind and a sentence when one begins and when it ends.

    >>> from monitor.feed.errors import SourceMissing
    >>> outages = Outages()
    >>> outages.begin(SourceMissing("/data/feed: no such folder")), outages.pause(ErrorKind.FEED)
    (True, 0.5)
    >>> outages.begin(SourceMissing("/data/feed: no such folder")), outages.pause(ErrorKind.FEED)
    (False, 1.0)
    >>> [str(outage.kind) for outage in outages.current()], outages.end(ErrorKind.FEED) is None
    (['feed'], False)
    >>> outages.current()
    ()
    """

    def __init__(
        self,
        *,
        report: Callable[[str, str], None] = _silent,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[ErrorKind, _Entry] = {}

    def begin(self, error: BaseException, kind: ErrorKind | None = None) -> bool:
        """Something failed because of an outage (of this kind); whether that was not known yet."""
        kind, now = kind or kind_of(error), self._clock()
        if kind not in OUTAGES:
            raise ValueError(f"{error!r} is no outage")
        with self._lock:
            entry = self._entries.get(kind)
            if entry is not None:
                entry.tries, entry.tried_at = entry.tries + 1, now
                return False
            outage = Outage(kind, str(error), datetime.now(UTC))
            self._entries[kind] = _Entry(outage, 1, now, now)
        self._report(f"{kind}.unavailable", f"waiting: {error}")
        return True

    def end(self, kind: ErrorKind) -> float | None:
        """It is back; how long it was away, or None if it was not."""
        with self._lock:
            entry = self._entries.pop(kind, None)
        if entry is None:
            return None
        seconds = self._clock() - entry.began_at
        self._report(f"{kind}.back", f"the {kind} answers again after {seconds:.0f} s")
        return seconds

    def pause(self, kind: ErrorKind) -> float:
        """How long to wait before the next try."""
        with self._lock:
            entry = self._entries.get(kind)
        tries = 1 if entry is None else entry.tries
        return min(PAUSE_SECONDS * 2.0 ** min(tries - 1, 16), PAUSE_MOST_SECONDS)

    def current(self) -> tuple[Outage, ...]:
        with self._lock:
            return tuple(entry.outage for entry in self._entries.values())

    def is_waiting(self) -> bool:
        """Whether somebody waits for something to come back, and still tries."""
        with self._lock:
            last = max((entry.tried_at for entry in self._entries.values()), default=None)
        return last is not None and self._clock() - last < TRIED_SECONDS

    def as_note(self) -> dict[str, dict[str, str]]:
        """For the store, where the desk and ``conclad status`` find it."""
        return {
            outage.kind.value: {"sentence": outage.sentence, "since": outage.since.isoformat()}
            for outage in self.current()
        }


def from_note(note: object) -> tuple[Outage, ...]:
    """What :meth:`Outages.as_note` wrote; what cannot be understood is left out."""
    found: list[Outage] = []
    for kind, said in note.items() if isinstance(note, Mapping) else ():
        try:
            since = datetime.fromisoformat(said["since"])
            found.append(Outage(ErrorKind(kind), str(said["sentence"]), since))
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(found)
