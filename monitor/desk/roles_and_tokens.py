"""Roles, and tokens: tokens by name, kept as hashes, each with a role.

A token is 256 random bits, so one round of SHA-256 is enough: nobody can try them all, and there
is no word list to try first. Passwords would need a slow hash; tokens are not chosen by people.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from monitor.desk.errors import BadToken
from monitor.people.class_names import clean_name
from monitor.store.store import Store, Transaction

ROOM = "desk_tokens"
PREFIX = "conclad_"
"""So that a token that ends up where it should not be is recognised by scanners of secrets."""

VARIABLE = "CONCLAD_DESK_TOKEN"
"""An admin's token from the environment, for containers that are given their secrets there."""

SHORTEST = 24
"""Characters that a token from the environment must have: some 120 bits if drawn well."""


class Role(IntEnum):
    """What somebody may do; each may do what the one before may."""

    PUBLIC = 0
    READER = 1
    ANNOTATOR = 2
    ADMIN = 3

    @classmethod
    def named(cls, word: str) -> Role:
        return cls[word.upper()]

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody with a token."""

    name: str
    role: Role
    digest: str
    created_at: str | None = None


def add_token(store: Store, name: str, role: Role, *, by: str | None = None) -> str:
    """Make a token; it is shown this once, and only its hash is kept."""
    name = clean_name(name)
    token = PREFIX + secrets.token_urlsafe(32)
    with store.transaction() as tx:
        if tx.notes.get(ROOM, name) is not None:
            raise BadToken(
                f"{name!r}: has a token already; remove it first with: conclad tokens remove {name}"
            )
        entry = {"role": role.word, "digest": digest(token), "created_at": tx.now.isoformat()}
        tx.notes.set(ROOM, name, entry)
        tx.events.append("token.added", {"name": name, "role": role.word, "by": by})
    return token


def remove_token(store: Store, name: str, *, by: str | None = None) -> None:
    """Whoever holds it is signed out at once."""
    with store.transaction() as tx:
        if tx.notes.get(ROOM, name) is None:
            raise BadToken(f"{name!r}: has no token; 'conclad tokens list' shows who has one")
        tx.notes.delete(ROOM, name)
        tx.events.append("token.removed", {"name": name, "by": by})


def holders(tx: Transaction, environment: Mapping[str, str] = os.environ) -> list[Holder]:
    """Everybody who may come in."""
    found = [
        Holder(name, Role.named(entry["role"]), entry["digest"], entry["created_at"])
        for name, entry in tx.notes.all(ROOM).items()
    ]
    given = environment.get(VARIABLE)
    if given is not None:
        if len(given) < SHORTEST:
            raise BadToken(f"{VARIABLE}: is shorter than {SHORTEST} characters; draw a longer one")
        found.append(Holder("admin", Role.ADMIN, digest(given)))
    return found


def holder_of(token: str, known: list[Holder]) -> Holder | None:
    """Whose token this is. Looks at all of them, each in constant time, whatever matches."""
    wanted = digest(token)
    found: Holder | None = None
    for holder in known:
        if hmac.compare_digest(holder.digest, wanted):
            found = holder
    return found


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
