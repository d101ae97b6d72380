"""One request, checked: who asks, for what, with which values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.config.desk import Desk as DeskConfig
from monitor.desk.tokens import Role
from monitor.store.store import Store


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody at the desk; ``via`` is how we know: open, cookie, token, or not at all."""

    name: str
    role: Role
    via: str


NOBODY = Person("", Role.PUBLIC, "nobody")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a handler is given. Paths, query and body are checked before it is called."""

    store: Store
    config: DeskConfig
    person: Person
    params: Mapping[str, str]
    query: Any
    body: Any
    csrf: str
    is_open: bool
    """Whether anybody on this machine may do everything, because there are no tokens."""

    @property
    def is_https(self) -> bool:
        return (self.config.address or "").startswith("https://")

    def number(self, name: str = "number") -> int:
        return int(self.params[name])
