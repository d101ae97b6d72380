"""A signed-in browser: a cookie that proves itself, so that a restart signs nobody out.

The cookie holds a name and a moment, and a seal over both and the token's hash, made with a key
that lives in the store. Removing the token breaks the seal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from monitor.desk.tokens import Holder
from monitor.store.store import Store

COOKIE = "conclad_desk"
LASTS = timedelta(days=7)
"""A working week and the weekend after it; then the token is asked for again."""

_ROOM, _KEY = "desk", "session_key"


def session_key(store: Store) -> bytes:
    """The key of this state, drawn when it is first needed."""
    with store.transaction() as tx:
        text = tx.notes.get(_ROOM, _KEY)
        if text is None:
            text = secrets.token_hex(32)
            tx.notes.set(_ROOM, _KEY, text)
    return bytes.fromhex(text)


def issue(holder: Holder, key: bytes, now: datetime) -> str:
    """The cookie's value for somebody who has just shown a token."""
    until = int((now + LASTS).timestamp())
    name = base64.urlsafe_b64encode(holder.name.encode()).decode()
    return f"{name}.{until}.{_seal(key, holder, until)}"


def read(value: str, known: Sequence[Holder], key: bytes, now: datetime) -> Holder | None:
    """Who the cookie belongs to; None if it is worn out, made up, or its token is gone."""
    parts = value.split(".")
    if len(parts) != 3 or not parts[1].isdigit() or len(parts[1]) > 12:
        return None
    until = int(parts[1])
    for holder in known:
        name = base64.urlsafe_b64encode(holder.name.encode()).decode()
        if hmac.compare_digest(name.encode(), parts[0].encode()):
            sealed = hmac.compare_digest(_seal(key, holder, until).encode(), parts[2].encode())
            return holder if sealed and until > now.timestamp() else None
    return None


def csrf_token(key: bytes, subject: str) -> str:
    """What a page of ours knows and another site cannot read; bound to the session."""
    return hmac.new(key, b"csrf\0" + subject.encode(), hashlib.sha256).hexdigest()


def _seal(key: bytes, holder: Holder, until: int) -> str:
    text = f"session\0{holder.name}\0{until}\0{holder.digest}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
