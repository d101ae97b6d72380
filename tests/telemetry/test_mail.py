"""Mail over TLS: real SMTP servers on loopback, with STARTTLS and with TLS from the first byte."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message as Mail
from pathlib import Path
from typing import Any, Literal

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from monitor.telemetry.errors import Undelivered
from monitor.telemetry.message_targets import open_target
from monitor.telemetry.message_words import Line, Message
from tests.telemetry.certificates import LoopbackCertificate, make_certificate
from tests.telemetry.receiving import PATIENCE

MESSAGE = Message("New class dune", (Line("New class dune", "https://desk.example/classes"),))

Kind = Literal["plain", "starttls", "tls"]


class Mailbox:
    """Keeps what arrives, and how it arrived."""

    def __init__(self) -> None:
        self.mails: queue.Queue[tuple[bool, str | None, Mail]] = queue.Queue()
        self.passwords: list[bytes] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        data: Any = session.auth_data
        user = None if data is None else data.login.decode()
        mail = message_from_bytes(envelope.content)
        assert server.transport is not None
        secure = server.transport.get_extra_info("ssl_object") is not None
        self.mails.put((secure, user, mail))
        return "250 taken"

    def authenticate(self, *parts: Any) -> AuthResult:
        data = parts[-1]
        assert isinstance(data, LoginPassword)
        self.passwords.append(data.password)
        right = data.password == b"s3cret"
        return AuthResult(success=right, handled=right, auth_data=data)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> LoopbackCertificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@contextmanager
def mail_server(kind: Kind, certificate: LoopbackCertificate) -> Iterator[tuple[Mailbox, int]]:
    box = Mailbox()
    options: dict[str, Any] = {
        "authenticator": box.authenticate,
        "auth_require_tls": False,
        # Its prompts are its own; the Alertmanager expects those of other servers.
        "auth_exclude_mechanism": ["LOGIN"],
    }
    if kind == "starttls":
        options |= {"tls_context": certificate.server, "require_starttls": True}
    if kind == "tls":
        options |= {"ssl_context": certificate.server}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


def address(scheme: str, port: int, password: str = "s3cret", more: str = "") -> str:
    query = f"from=desk@example.org&to=ada@example.org{more}"
    return f"{scheme}://conclad:{password}@127.0.0.1:{port}/?{query}"


@pytest.fixture
def trusted(certificate: LoopbackCertificate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator trusts the authority of their own mail server."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.authority))


@pytest.mark.parametrize(("kind", "scheme"), [("starttls", "smtp"), ("tls", "smtps")])
def test_mail_with_a_password_goes_over_tls(
    kind: Kind, scheme: str, certificate: LoopbackCertificate, trusted: None
) -> None:
    with mail_server(kind, certificate) as (box, port):
        open_target(address(scheme, port)).deliver(MESSAGE)
        secure, user, mail = box.mails.get(timeout=PATIENCE)
    assert (secure, user) == (True, "conclad")
    assert str(mail["Subject"]) == "conclad: New class dune"


@pytest.mark.parametrize(("kind", "scheme"), [("starttls", "smtp"), ("tls", "smtps")])
def test_a_certificate_that_nobody_vouches_for_gets_neither_mail_nor_password(
    kind: Kind, scheme: str, certificate: LoopbackCertificate, tmp_path: Path
) -> None:
    with mail_server(kind, certificate) as (box, port):
        with pytest.raises(Undelivered, match="certificate"):
            open_target(address(scheme, port)).deliver(MESSAGE)
        assert box.mails.empty()
        assert box.passwords == []


def test_a_server_without_tls_gets_no_password(
    certificate: LoopbackCertificate, trusted: None
) -> None:
    with mail_server("plain", certificate) as (box, port):
        with pytest.raises(Undelivered, match="STARTTLS"):
            open_target(address("smtp", port)).deliver(MESSAGE)
        assert box.passwords == []
        open_target(address("smtp", port, more="&starttls=no")).deliver(MESSAGE)
        secure, user, _ = box.mails.get(timeout=PATIENCE)
    assert (secure, user) == (False, "conclad")


@pytest.mark.parametrize(("password", "why"), [("wr0ng", "535"), ("wröng", "not plain ASCII")])
def test_a_wrong_password_is_said_without_the_password(
    certificate: LoopbackCertificate, trusted: None, password: str, why: str
) -> None:
    with mail_server("starttls", certificate) as (_, port), pytest.raises(Undelivered) as raised:
        open_target(address("smtp", port, password=password)).deliver(MESSAGE)
    assert why in str(raised.value)
    assert password not in str(raised.value)


def test_a_host_that_is_no_host_is_not_blamed_on_the_password() -> None:
    with pytest.raises(Undelivered) as raised:
        open_target(f"smtp://ada:s3cret@{'a' * 64}.example/?to=bo@example.org").deliver(MESSAGE)
    assert "did not take it" in str(raised.value)
    assert "password" not in str(raised.value)
