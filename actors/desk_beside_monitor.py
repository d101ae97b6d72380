"""Keeps a desk beside the monitor: started, and started again whatever ended it.

The feed does not wait for it. A database that is away or a port that is taken when the monitor
starts keeps people from answering for as long as that lasts, and not until the next restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from monitor.config import Config
from monitor.errors import ConcladError

if TYPE_CHECKING:
    from monitor.desk.server import Handle

#: Between two starts: soon at first, then as often as a person who repairs something waits.
PAUSE_SECONDS, PAUSE_MOST_SECONDS = 1.0, 30.0
LOOK_SECONDS = 1.0
#: A start that is under way when the monitor ends is left: the desk goes with us.
JOIN_SECONDS = 10.0


class DeskKeeper:
    """``start`` gives a desk that runs, or raises a sentence, which is said once."""

    def __init__(
        self,
        config: Config,
        say: Callable[[str], None],
        start: Callable[[Config], Handle],
    ) -> None:
        self._config, self._say, self._start = config, say, start
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="desk-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the desk, and start no other."""
        self._over.set()
        self._thread.join(JOIN_SECONDS)

    def _keep(self) -> None:
        pause, said = PAUSE_SECONDS, ""
        while not self._over.is_set():
            try:
                desk = self._start(self._config)
            except ConcladError as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"without a desk for now: {said}")
            else:
                pause, said = PAUSE_SECONDS, ""
                self._look_after(desk)
            self._over.wait(pause)
            pause = min(2 * pause, PAUSE_MOST_SECONDS)

    def _look_after(self, desk: Handle) -> None:
        """Until it ends, or is to end."""
        try:
            self._say(f"desk: {desk.url}")
            while desk.alive() and not self._over.wait(LOOK_SECONDS):
                pass
            if not self._over.is_set():
                self._say("the desk has ended; another one is started")
        finally:
            desk.stop()
