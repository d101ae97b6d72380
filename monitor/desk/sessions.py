"""A signed-in browser: a random cookie, and what it stands for in the store.

The store keeps a hash of the cookie only, made with a key that lies beside the database and in no
backup: in a copy of the database, and where a backup was restored, no cookie is worth anything. A
restart of the desk signs nobody out; signing out ends the session at once, wherever the cookie was
copied to, and so does removing the token behind it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from monitor.desk.roles_and_tokens import Holder, Role
from monitor.store.note_and_counter_names import DESK_KEY
from monitor.store.store import Store, Transaction

COOKIE = "conclad_desk"
LASTS = timedelta(days=7)
"""A working week and the weekend after it; then people sign in again."""

SESSIONS = "desk_sessions"
_SHAPE = re.compile(r"^[A-Za-z0-9_-]{43}$")


def session_key(store: Store) -> bytes:
    """The key of this state, drawn when it is first needed; it seals what pages are given."""
    if store.folder.size(DESK_KEY) is None:
        staged = store.folder.stage_bytes(DESK_KEY, secrets.token_bytes(32))
        try:
            staged.publish_new()
        except FileExistsError:  # another desk was quicker
            staged.discard()
    return store.folder.read(DESK_KEY)


def begin(tx: Transaction, key: bytes, name: str, role: Role, *, via: str, digest: str = "") -> str:
    """Start a session, and return the cookie that stands for it.

    ``digest`` is the hash of the token that was shown, if it was one.
    """
    for session, entry in tx.notes.all(SESSIONS).items():
        if _until(entry) <= tx.now:
            tx.notes.delete(SESSIONS, session)
    value = secrets.token_urlsafe(32)
    entry = {
        "name": name,
        "role": role.word,
        "via": via,
        "token": digest,
        "until": (tx.now + LASTS).isoformat(),
    }
    tx.notes.set(SESSIONS, _name(key, value), entry)
    tx.events.append("desk.signed_in", {"who": name, "role": role.word, "via": via})
    return value


def end(tx: Transaction, key: bytes, value: str) -> None:
    """Nobody comes in with this cookie any more."""
    if not _SHAPE.match(value):
        return
    entry = tx.notes.get(SESSIONS, _name(key, value))
    if entry is not None:
        tx.notes.delete(SESSIONS, _name(key, value))
        tx.events.append("desk.signed_out", {"who": entry["name"]})


def read(tx: Transaction, key: bytes, value: str, known: Sequence[Holder]) -> Holder | None:
    """Who the cookie belongs to; None if it is worn out, made up, or its token is gone."""
    if not _SHAPE.match(value):
        return None
    entry = tx.notes.get(SESSIONS, _name(key, value))
    if entry is None or _until(entry) <= tx.now:
        return None
    if not entry["token"]:
        return Holder(entry["name"], Role.named(entry["role"]), "")
    for holder in known:
        same = hmac.compare_digest(holder.digest.encode(), entry["token"].encode())
        if same and holder.name == entry["name"]:
            return holder
    return None


def csrf_token(key: bytes, subject: str) -> str:
    """What a page of ours knows and another site cannot read; bound to the session."""
    return hmac.new(key, b"csrf\0" + subject.encode(), hashlib.sha256).hexdigest()


def seal(key: bytes, values: Mapping[str, Any]) -> str:
    """A few values for a cookie of our own, which nobody else can make."""
    text = base64.urlsafe_b64encode(json.dumps(values, sort_keys=True).encode()).decode()
    return f"{text}.{_mac(key, text)}"


def unseal(key: bytes, sealed: str) -> dict[str, Any] | None:
    """What was sealed; None if it was not us.

    >>> unseal(b"k", seal(b"k", {"a": 1})), unseal(b"x", seal(b"k", {"a": 1}))
    ({'a': 1}, None)
    """
    text, _, mac = sealed.partition(".")
    if not hmac.compare_digest(mac.encode(), _mac(key, text).encode()):
        return None
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text))
    return found


def _mac(key: bytes, text: str) -> str:
    return hmac.new(key, b"seal\0" + text.encode(), hashlib.sha256).hexdigest()


def _name(key: bytes, value: str) -> str:
    return hmac.new(key, b"session\0" + value.encode(), hashlib.sha256).hexdigest()


def _until(entry: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["until"])
