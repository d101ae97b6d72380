"""One address that events are sent to, the form of a message, and the POST that delivers it."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from monitor import __version__
from monitor.store.records import Event
from monitor.telemetry.errors import Undelivered

#: Only the status of a response is used; at most this much of its body is read.
ANSWER_BYTES = 64 * 1024


class Receiver:
    """An address, and the secret that its messages are signed with.

    >>> Receiver("https://example.org/hook?token=x").name
    'example.org-b6b01387'
    """

    def __init__(self, url: str, secret: bytes | None = None, timeout: float = 10.0) -> None:
        self._url = url
        self._secret = secret
        self._timeout = timeout

    @property
    def name(self) -> str:
        """For notes and metrics. The path of such an address is often its password."""
        host = urllib.parse.urlsplit(self._url).hostname or ""
        return f"{host}-{hashlib.sha256(self._url.encode()).hexdigest()[:8]}"

    def deliver(self, event: Event) -> None:
        """Send one event; returns when it was accepted."""
        body = message(event)
        headers = {
            "Content-Type": "application/json",
            "X-Conclad-Event": event.kind,
            "X-Conclad-Delivery": str(event.id),
            **signed(body, self._secret),
        }
        post(self._url, body, headers, name=self.name, timeout=self._timeout)


def post(url: str, body: bytes, headers: Mapping[str, str], *, name: str, timeout: float) -> None:
    """Send a body; returns when it was accepted, else raises Undelivered, which says ``name``."""
    sender = {"User-Agent": f"conclad/{__version__}"}
    try:
        request = urllib.request.Request(
            url, data=body, headers={**headers, **sender}, method="POST"
        )
        opener = urllib.request.build_opener(NoRedirect)
        with opener.open(request, timeout=timeout) as answer:
            answer.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        error.close()
        raise Undelivered(f"{name} answered {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        words = str(getattr(error, "reason", error)) or type(error).__name__
        raise Undelivered(f"{name} cannot be reached ({words})") from error


def message(event: Event) -> bytes:
    """The body: one event as JSON, the same bytes however often it is sent."""
    body: dict[str, Any] = {
        "id": event.id,
        "kind": event.kind,
        "at": event.at.isoformat(),
        "source": event.source,
        "payload": dict(event.payload),
    }
    return json.dumps(body, ensure_ascii=False, sort_keys=True).encode()


def signed(body: bytes, secret: bytes | None) -> dict[str, str]:
    """The headers that say when a body was sent and, with a secret, by whom."""
    timestamp = str(int(time.time()))
    sent = {"X-Conclad-Timestamp": timestamp}
    if secret is not None:
        sent["X-Conclad-Signature"] = signature(secret, timestamp, body)
    return sent


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What a receiver computes as well, and compares in constant time.

    >>> signature(b"secret", "1715925600", b"{}")[:20]
    'sha256=5f718222810c5'
    """
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere arrives as a GET without its body: that is no delivery."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
