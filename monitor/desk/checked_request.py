"""One request, checked: who asks, for what, with which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from monitor.config import Config
from monitor.config.desk_section import DeskSection as DeskConfig
from monitor.desk.feed_pictures import FeedPictures
from monitor.desk.openid import OpenIdClient
from monitor.desk.pool_map import PoolMaps
from monitor.desk.roles_and_tokens import Role
from monitor.store.store import Store


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody at the desk; ``via`` is how we know: open, cookie, token, proxy, or not."""

    name: str
    role: Role
    via: str


NOBODY = Person("", Role.PUBLIC, "nobody")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a handler is given. Paths, query and body are checked before it is called."""

    store: Store
    settings: Config
    person: Person
    params: Mapping[str, str]
    query: Any
    body: Any
    csrf: str
    is_open: bool
    """Whether anybody on this machine may do everything, because there are no tokens."""
    pictures: FeedPictures
    maps: PoolMaps
    key: bytes
    cookies: Mapping[str, str]
    oidc: OpenIdClient | None
    turn: Callable[[], AbstractContextManager[None]]
    """Waits for one's turn to write; for handlers that write in many small steps."""
    is_gone: Callable[[], bool]
    """Whether the client has left, so that nobody would read the answer."""

    @property
    def config(self) -> DeskConfig:
        return self.settings.desk

    @property
    def is_https(self) -> bool:
        return (self.config.address or "").startswith("https://")

    def number(self, name: str = "number") -> int:
        return int(self.params[name])
