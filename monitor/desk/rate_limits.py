"""Limits on requests and attempts of each address: a bucket of tokens, refilled over time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock

MOST_CLIENTS = 4096
"""Buckets kept; the one that was idle longest goes first, and it was full again anyway."""


def share_of(address: str) -> str:
    """Whose bucket an address fills: of IPv6 everybody has 2^64, so those are one.

    >>> share_of("192.0.2.7"), share_of("2001:db8::1:2"), share_of("?")
    ('192.0.2.7', '2001:db8::/64', '?')
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found)


class Limiter:
    """Allows ``burst`` at once and ``rate`` per second after that, for each client.

    >>> now = [0.0]
    >>> limiter = Limiter(rate=1.0, burst=2, clock=lambda: now[0])
    >>> [limiter.allows("ada") for _ in range(3)]
    [True, True, False]
    >>> now[0] = 1.0
    >>> limiter.allows("ada")
    True
    """

    def __init__(
        self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def allows(self, client: str) -> bool:
        with self._lock:
            now = self._clock()
            left, then = self._buckets.pop(client, (float(self._burst), now))
            left = min(float(self._burst), left + (now - then) * self._rate)
            allowed = left >= 1
            self._buckets[client] = (left - allowed, now)
            while len(self._buckets) > MOST_CLIENTS:
                self._buckets.popitem(last=False)
            return allowed
