"""Going on through outages, and stopping when asked, from the first moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from actors.event_messages import Listener, MonitorMessage
from monitor.errors import ErrorKind, is_outage, kind_of
from monitor.outages import Outages

T = TypeVar("T")


class Stop:
    """That somebody asked to stop; safe to set from a signal handler."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._then: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self._asked.set()
        self._then()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def then(self, action: Callable[[], None]) -> None:
        """What to do when it is asked for; at once if it has been."""
        self._then = action
        if self.is_asked:
            action()

    def wait(self, seconds: float) -> bool:
        """Sleep, unless asked to stop."""
        return self._asked.wait(seconds)


class Waiting:
    """Does something again and again until no outage keeps it from being done.

    Not ``forever``: at the start of a bounded run an outage is told at once, in one sentence.
    """

    def __init__(
        self, outages: Outages, stop: Stop, listener: Listener, *, forever: bool = True
    ) -> None:
        self._outages, self._stop, self._listener = outages, stop, listener
        self._forever = forever
        self._kind: ErrorKind | None = None
        self.note: Callable[[], None] = lambda: None
        """Tells others what is away, where there is a way to tell them."""

    def until_done(self, action: Callable[[], T], *, forever: bool | None = None) -> T:
        """What the action returns; raises what is no outage, and the outage when asked to stop."""
        while True:
            try:
                done = action()
            except Exception as error:
                may_wait = self._forever if forever is None else forever
                if not is_outage(error) or not may_wait:
                    raise
                self._begin(error)
                if self._stop.wait(self._outages.pause(kind_of(error))):
                    raise
            else:
                self.is_over()
                return done

    def _begin(self, error: Exception) -> None:
        kind = kind_of(error)
        if self._kind is not None and self._kind is not kind:
            self.is_over()
        self._kind = kind
        if self._outages.begin(error):
            self._say(f"{kind}.unavailable", f"waiting: {error}")
            self.note()

    def is_over(self) -> None:
        """What was waited for answers again."""
        if self._kind is None:
            return
        seconds = self._outages.end(self._kind)
        if seconds is not None:
            self._say(f"{self._kind}.back", f"the {self._kind} answers again after {seconds:.0f} s")
            self.note()
        self._kind = None

    def _say(self, kind: str, text: str) -> None:
        self._listener(MonitorMessage(kind, text))


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C finish what is in flight; a second Ctrl-C ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {name: signal.signal(name, handle) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
