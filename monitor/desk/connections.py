"""Who may hold a connection to the desk, and for how long without saying anything.

A socket costs an attacker nothing and us a little, so whoever opens many loses their own: an
address beyond its share gives up the connection that was silent longest. A browser whose idle
connection goes this way opens another and notices nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from monitor.desk.rate_limits import share_of

PER_ADDRESS = 128
"""Connections of one address: some twenty browsers behind one router, with six each."""

AT_ALL = 500
"""Connections in all: well below the usual limit of 1,024 open files."""

HEADER_SECONDS = 10.0
"""To say what is wanted: a slow telephone line needs one or two."""


class OpenConnections:
    """All connections of a server by address, those that were silent longest first."""

    def __init__(
        self,
        *,
        is_shared: Callable[[str], bool] = lambda address: False,
        per_address: int = PER_ADDRESS,
        at_all: int = AT_ALL,
        header_seconds: float = HEADER_SECONDS,
    ) -> None:
        self.header_seconds = header_seconds
        self._is_shared, self._per_address, self._at_all = is_shared, per_address, at_all
        self._silent: OrderedDict[GuardedConnection, str] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._all: set[GuardedConnection] = set()

    def add(self, connection: GuardedConnection, address: str) -> bool:
        """Note a new connection; False if there is no room and nobody silent to make some."""
        self._all.add(connection)
        self._counts[address] = self._counts.get(address, 0) + 1
        self._silent[connection] = address
        if self._counts[address] > self._per_address and not self._is_shared(address):
            return self._give_up(connection, of=address)
        if len(self._all) > self._at_all:
            return self._give_up(connection, of=None)
        return True

    def busy(self, connection: GuardedConnection) -> None:
        """It is being answered, and is not given up for others."""
        self._silent.pop(connection, None)

    def silent(self, connection: GuardedConnection, address: str) -> None:
        """It has had its answer, and may ask again."""
        if connection not in self._all:
            return
        self._silent[connection] = address
        self._silent.move_to_end(connection)

    def remove(self, connection: GuardedConnection, address: str) -> None:
        """Forget a connection that has ended, or is about to; harmless to repeat."""
        if connection not in self._all:
            return
        self._all.discard(connection)
        self._silent.pop(connection, None)
        left = self._counts.get(address, 0) - 1
        if left > 0:
            self._counts[address] = left
        else:
            self._counts.pop(address, None)

    def _give_up(self, newest: GuardedConnection, *, of: str | None) -> bool:
        for other, address in self._silent.items():
            if other is not newest and of in (None, address):
                # At once: many are accepted before the loop comes to end any of them.
                self.remove(other, address)
                other.give_up()
                return True
        return False

    def protocol(self, **settings: Any) -> GuardedConnection:
        """What uvicorn makes for each connection."""
        return GuardedConnection(self, **settings)


class GuardedConnection(H11Protocol):
    """One connection, with a time limit on its silence."""

    def __init__(self, others: OpenConnections, **settings: Any) -> None:
        super().__init__(**settings)
        self._others, self._address = others, ""
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        self._address = share_of(str(peer[0])) if peer else ""
        super().connection_made(transport)
        if not self._others.add(self, self._address):
            self.give_up()
            return
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
            self._others.busy(self)
        elif self._patience is None:  # a byte now and then does not win more time
            self._wait_for_header()

    def on_response_complete(self) -> None:
        self._others.silent(self, self._address)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._others.remove(self, self._address)
        super().connection_lost(exc)

    def give_up(self) -> None:
        """End it at once; what was half said is not answered."""
        self._stop_waiting()
        self.transport.abort()

    def _is_answering(self) -> bool:
        cycle = cast(Any, self.cycle)
        return cycle is not None and not cycle.response_complete

    def _wait_for_header(self) -> None:
        self._patience = self.loop.call_later(self._others.header_seconds, self.give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
