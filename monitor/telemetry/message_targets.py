"""Where messages to people go: chat, telephone and mail, each named by one address.

slack+https://hooks.slack.com/services/…       mattermost+https://chat.example.org/hooks/…
teams+https://…                                discord+https://discord.com/api/webhooks/…
ntfy+https://ntfy.sh/topic                     webhook+https://…  (signed JSON)
smtp://user:password@host:587/?from=desk@example.org&to=ada@example.org,bo@example.org
smtps://…                                      file:/run/secrets/target  (the address is in it)
"""

from __future__ import annotations

import hashlib
import json
import re
import smtplib
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from typing import Any, Protocol

from monitor.telemetry.errors import Undelivered, WebhookRefused
from monitor.telemetry.message_words import Message
from monitor.telemetry.webhook_target import post, signed

_MARKS = re.compile(r"[\\`*_\[\]()<>~|]")

#: What chats make a link of by themselves, and what breaks it without being seen.
_ADDRESS = re.compile(r"(:)(//)|(w)(ww\.)", re.IGNORECASE)
_SPACE = "\u200b"


class Target(Protocol):
    """Somewhere that takes messages."""

    name: str

    def deliver(self, message: Message) -> None:
        """Send it; returns when it was accepted, raises Undelivered otherwise."""


def open_target(address: str, *, timeout: float = 10.0, secret: bytes | None = None) -> Target:
    """The target that an address names.

    >>> open_target("ntfy+https://ntfy.sh/desk").name
    'ntfy-ntfy.sh-c111e0e3'
    """
    if address.startswith("file:"):
        address = _from_file(address.removeprefix("file:"))
    kind, plus, rest = address.partition("+")
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme in ("smtp", "smtps"):
        return MailTarget(address, timeout)
    if plus and kind in _FORMS and rest.startswith(("http://", "https://")):
        return ChatTarget(kind, rest, timeout, secret)
    raise WebhookRefused(
        f"{scheme or address[:20]}: no kind of target; write one of "
        f"{', '.join(f'{name}+https://…' for name in _FORMS)}, smtp://…, smtps://… or file:…"
    )


def _from_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise WebhookRefused(
            f"{path}: the address of a target cannot be read ({error.strerror}); correct "
            "messages.targets"
        ) from error


def _name(kind: str, host: str | None, address: str) -> str:
    """For notes and logs. The path of such an address is often its password."""
    return f"{kind}-{host or ''}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


class ChatTarget:
    """One POST per message, in the form of the service."""

    def __init__(self, kind: str, url: str, timeout: float, secret: bytes | None) -> None:
        self._kind, self._url, self._timeout, self._secret = kind, url, timeout, secret
        self.name = _name(kind, urllib.parse.urlsplit(url).hostname, url)

    def deliver(self, message: Message) -> None:
        body, headers = _FORMS[self._kind](message)
        if self._kind == "webhook" and self._secret is not None:
            headers |= signed(body, self._secret)
        post(self._url, body, headers, name=self.name, timeout=self._timeout)


def _json(body: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    text = json.dumps(body, ensure_ascii=False, sort_keys=True)
    return text.encode(), {"Content-Type": "application/json"}


def _fitting(lines: Iterable[str], most: int) -> str:
    """As many whole lines as a service takes: half a line would break its links and marks.

    >>> _fitting(["- dune", "- ship", "- snow"], 18)
    '- dune\\n- ship\\n…'
    """
    found: list[str] = []
    left = most - len("\n…".encode())
    for line in lines:
        left -= len(line.encode()) + 1
        if left < 0:
            return "\n".join([*found, "…"])
        found.append(line)
    return "\n".join(found)


def _slack(message: Message) -> tuple[bytes, dict[str, str]]:
    """Slack's own escaping: only these three characters are special."""

    def plain(text: str) -> str:
        text = _unlinked(text)
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    lines = _fitting((f"• <{line.link}|{plain(line.text)}>" for line in message.lines), 3000)
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": _unlinked(message.title)[:150]}},
        # Verbatim: names of channels and addresses stay what they are.
        {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
    ]
    return _json({"text": plain(message.title), "blocks": blocks})


def _unlinked(text: str) -> str:
    """A text in which an address stays text.

    >>> _unlinked("https://evil.example, www.evil.example").split(_SPACE)
    ['https:', '//evil.example, w', 'ww.evil.example']
    """
    return _ADDRESS.sub(rf"\1\3{_SPACE}\2\4", text)


def _unmarked(text: str) -> str:
    """A text that names things of others: it makes no links or marks, and calls nobody."""
    return _MARKS.sub(r"\\\g<0>", _unlinked(text)).replace("@", f"@{_SPACE}")


def _mattermost(message: Message) -> tuple[bytes, dict[str, str]]:
    lines = "\n".join(f"- [{_unmarked(line.text)}]({line.link})" for line in message.lines)
    return _json({"text": f"**{_unmarked(message.title)}**\n{lines}"})


def _discord(message: Message) -> tuple[bytes, dict[str, str]]:
    lines = (f"- [{_unmarked(line.text)}]({line.link})" for line in message.lines)
    return _json(
        {
            "content": _fitting([f"**{_unmarked(message.title)}**", *lines], 2000),
            "allowed_mentions": {"parse": []},
        }
    )


def _teams(message: Message) -> tuple[bytes, dict[str, str]]:
    """An adaptive card, which workflows of Teams take."""
    block = {"type": "TextBlock", "wrap": True}
    card = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {**block, "text": _unmarked(message.title), "weight": "Bolder"},
            *({**block, "text": _unmarked(line.text)} for line in message.lines),
        ],
        "actions": [
            {"type": "Action.OpenUrl", "title": "Open the desk", "url": message.lines[0].link}
        ],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return _json({"type": "message", "attachments": [{"contentType": kind, "content": card}]})


def _ntfy(message: Message) -> tuple[bytes, dict[str, str]]:
    """Text, with the rest in headers; those hold ASCII only, so the title is encoded."""
    plain = _unlinked(message.title)
    title = urllib.parse.quote(plain[:200], safe=" :,.()/'")
    encoded = plain if plain.isascii() else f"=?UTF-8?Q?{title.replace('%', '=')}?="
    headers = {"Title": " ".join(encoded.split()), "Click": message.lines[0].link}
    return _fitting((_unlinked(line.text) for line in message.lines), 4096).encode(), headers


def _webhook(message: Message) -> tuple[bytes, dict[str, str]]:
    lines = [{"text": line.text, "link": line.link} for line in message.lines]
    return _json({"title": message.title, "lines": lines})


_FORMS = {
    "slack": _slack,
    "mattermost": _mattermost,
    "discord": _discord,
    "teams": _teams,
    "ntfy": _ntfy,
    "webhook": _webhook,
}


class MailTarget:
    """Mail by SMTP: text, with pictures attached."""

    def __init__(self, address: str, timeout: float) -> None:
        parts = urllib.parse.urlsplit(address)
        query = dict(urllib.parse.parse_qsl(parts.query))
        self._secure = parts.scheme == "smtps"
        self._host = parts.hostname or "localhost"
        self._port = parts.port or (465 if self._secure else 587)
        self._user = urllib.parse.unquote(parts.username or "")
        self._password = urllib.parse.unquote(parts.password or "")
        self._from = query.get("from", "conclad@localhost")
        self._to = [one.strip() for one in query.get("to", "").split(",") if one.strip()]
        self._starttls = query.get("starttls", "yes" if self._user else "no") == "yes"
        self._timeout = timeout
        self.name = _name("mail", self._host, address)
        if not self._to:
            raise WebhookRefused(
                f"{parts.scheme}://{self._host}: add the receiver with ?to=NAME@HOST"
            )

    def deliver(self, message: Message) -> None:
        mail = self._mail(message)
        try:
            with self._connect() as server:
                if self._starttls and not self._secure:
                    server.starttls(context=ssl.create_default_context())
                if self._user:
                    self._sign_in(server)
                server.send_message(mail)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            words = str(error) or type(error).__name__
            raise Undelivered(f"{self.name} did not take it ({words})") from error

    def _sign_in(self, server: smtplib.SMTP) -> None:
        try:
            server.login(self._user, self._password)
        except UnicodeError as error:  # its words would quote a letter of the password
            words = "its user or password is not plain ASCII"
            raise Undelivered(f"{self.name} cannot be signed in to ({words})") from error

    def _connect(self) -> smtplib.SMTP:
        if self._secure:
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout, context=context)
        return smtplib.SMTP(self._host, self._port, timeout=self._timeout)

    def _mail(self, message: Message) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = " ".join(f"conclad: {message.title}".split())
        mail["From"], mail["To"] = self._from, ", ".join(self._to)
        mail["Message-ID"] = make_msgid(domain="conclad")
        mail.set_content(message.text)
        for number, picture in enumerate(message.pictures, start=1):
            mail.add_attachment(
                picture, maintype="image", subtype="jpeg", filename=f"image-{number}.jpg"
            )
        return mail
