"""Messages reach people: each kind of target is a real server on loopback that says what it got."""

from __future__ import annotations

import hashlib
import hmac
import queue
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message as Mail
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope

from monitor.config.telemetry_section import MessagesSection
from monitor.people.answer_questions import Said, Word, give
from monitor.store import Store
from monitor.telemetry.errors import WebhookRefused
from monitor.telemetry.message_delivery import MessageSender, is_quiet
from monitor.telemetry.message_targets import open_target
from monitor.telemetry.message_words import Line, Message, compose
from tests.people import world
from tests.telemetry.receiving import PATIENCE, Receiver

DESK = "https://desk.example"
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def sender(
    store: Store, *targets: str, now: datetime | None = None, **options: Any
) -> MessageSender:
    settings = MessagesSection.model_validate(
        {"targets": targets, "digest_minutes": 0.0, **options}
    )
    clock = None if now is None else lambda: now
    return MessageSender(store, settings, DESK, poll=0.02, first_pause=0.02, clock=clock)


@pytest.fixture
def discovered(tmp_path: Path) -> Any:
    """Tells of a discovery with pictures, when it is called."""
    with Store.open(tmp_path / "state") as store:
        world.fit(store)
        world.ask(store, 6)

        def tell() -> Store:
            world.discover(store, "dune", 6)
            return store

        yield store, tell


def only(kind: str) -> dict[str, Any]:
    return {"events": (kind,)}


def test_slack_gets_blocks_with_a_link(discovered: Any) -> None:
    store, tell = discovered
    url = "slack+{}"
    with (
        Receiver() as receiver,
        sender(store, url.format(receiver.url), **only("class.discovered")),
    ):
        tell()
        body = receiver.next().json
    assert body["text"] == "New class dune: 2 by people, 4 by itself (cam-1)"
    assert f"<{DESK}/classes#class-3|" in body["blocks"][1]["text"]["text"]


def test_teams_gets_an_adaptive_card(discovered: Any) -> None:
    store, tell = discovered
    with (
        Receiver() as receiver,
        sender(store, f"teams+{receiver.url}", **only("class.discovered")),
    ):
        tell()
        card = receiver.next().json["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard"
    assert "New class dune" in card["body"][0]["text"]
    assert card["actions"][0]["url"] == f"{DESK}/classes#class-3"


def test_ntfy_gets_text_a_title_and_where_to_go(discovered: Any) -> None:
    store, tell = discovered
    with Receiver() as receiver, sender(store, f"ntfy+{receiver.url}", **only("class.discovered")):
        tell()
        message = receiver.next()
    assert message.headers["Title"].startswith("New class dune")
    assert message.headers["Click"] == f"{DESK}/classes#class-3"
    assert b"4 by itself" in message.body


@pytest.mark.parametrize(("kind", "field"), [("mattermost", "text"), ("discord", "content")])
def test_other_chats_get_their_own_form(discovered: Any, kind: str, field: str) -> None:
    store, tell = discovered
    with (
        Receiver() as receiver,
        sender(store, f"{kind}+{receiver.url}", **only("class.discovered")),
    ):
        tell()
        assert f"({DESK}/classes#class-3)" in receiver.next().json[field]


HOSTILE = "[free](https://evil.example) <!channel> @channel @here **loud** | `x` \\"


@pytest.mark.parametrize("kind", ["slack", "mattermost", "discord", "teams"])
def test_a_name_makes_no_link_and_calls_nobody(kind: str) -> None:
    with Receiver() as receiver:
        message = Message(HOSTILE, (Line(f"New class {HOSTILE}", f"{DESK}/classes"),))
        open_target(f"{kind}+{receiver.url}").deliver(message)
        body = receiver.next().json
    if kind == "slack":
        assert "<!" not in body["text"] + body["blocks"][1]["text"]["text"]
        assert body["blocks"][0]["text"]["type"] == "plain_text"
        return
    said = str(body.get("text") or body.get("content"))
    if kind == "teams":
        said = " ".join(one["text"] for one in body["attachments"][0]["content"]["body"])
    assert said.count("@\u200bchannel") == 2
    assert "@channel" not in said
    for mark in ("](https://evil", " <!", "**loud**", " `"):
        assert mark not in said


@pytest.mark.parametrize("kind", ["slack", "mattermost", "discord", "teams", "ntfy"])
def test_an_address_in_a_name_is_not_made_a_link_by_the_chat(kind: str) -> None:
    name = "https://evil.example/login or WWW.evil.example"
    with Receiver() as receiver:
        message = Message(name, (Line(f"New class {name}", f"{DESK}/classes"),))
        open_target(f"{kind}+{receiver.url}").deliver(message)
        got = receiver.next()
    said = got.body.decode() + str(make_header(decode_header(got.headers.get("Title", ""))))
    assert "evil.example/login" in said, "it can still be read"
    assert "://evil" not in said
    assert "WWW." not in said
    if kind != "teams":
        assert DESK in said + got.headers.get("Click", ""), "the desk's own address is a link"


#: What each service takes at most: characters (bytes of ntfy and Teams), by their documentation.
TAKEN = {"slack": 3000, "discord": 2000, "ntfy": 4096, "teams": 28_000, "mattermost": 16_383}


@pytest.mark.parametrize("kind", sorted(TAKEN))
def test_a_night_of_many_events_fits_into_one_message(tmp_path: Path, kind: str) -> None:
    with Store.open(tmp_path / "state") as store, Receiver() as receiver:
        with store.transaction() as tx:
            for number in range(999):
                words = {"words": ["blurred"]}
                tx.events.append("drift.detected", words, source=f"{number}-{'ü*' * 120}")
            found = {"class_id": "c9", "name": "dune", "human": 3, "pseudo": 9}
            tx.events.append("class.discovered", found)
        with store.reading() as tx:
            happened = tx.events.after(0)
        open_target(f"{kind}+{receiver.url}").deliver(compose(store, happened, DESK))
        got = receiver.next()
    said = got.body.decode()
    if kind == "slack":
        said = got.json["blocks"][1]["text"]["text"]
        assert all(line.endswith((">", "…")) for line in said.splitlines())
    elif kind == "discord":
        said = got.json["content"]
        assert all(line.endswith((")", "**", "…")) for line in said.splitlines())
    elif kind == "mattermost":
        said = got.json["text"]
    whole = kind in ("teams", "mattermost")
    assert "New class dune" in said, "what people wait for comes first"
    assert "0-ü" in said
    assert len(said.encode()) <= TAKEN[kind]
    assert said.rstrip().endswith("…") or (whole and "and 981 more" in said)


def test_a_webhook_is_signed(discovered: Any, tmp_path: Path) -> None:
    store, tell = discovered
    (tmp_path / "secret").write_text("a long secret\n")
    options: dict[str, Any] = {"secret_file": str(tmp_path / "secret"), **only("class.discovered")}
    with Receiver() as receiver, sender(store, f"webhook+{receiver.url}", **options):
        tell()
        message = receiver.next()
    signed = message.headers["X-Conclad-Timestamp"].encode() + b"." + message.body
    expected = hmac.new(b"a long secret", signed, hashlib.sha256).hexdigest()
    assert message.headers["X-Conclad-Signature"] == f"sha256={expected}"


class Mailbox:
    """A real SMTP server on loopback."""

    def __init__(self) -> None:
        self.mails: queue.Queue[tuple[list[str], Mail]] = queue.Queue()
        self.controller = Controller(self, hostname="127.0.0.1", port=0)

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.put((envelope.rcpt_tos, message_from_bytes(envelope.content)))
        return "250 taken"

    def __enter__(self) -> Mailbox:
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.controller.port = probe.getsockname()[1]
        self.controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.controller.stop()

    @property
    def address(self) -> str:
        to = "ada@example.org,bo@example.org"
        return f"smtp://127.0.0.1:{self.controller.port}/?from=desk@example.org&to={to}"


def test_mail_arrives_with_pictures(discovered: Any, tmp_path: Path) -> None:
    store, tell = discovered
    with Mailbox() as box:
        # The address lies in a file, as a secret does.
        (tmp_path / "target").write_text(box.address + "\n")
        said = [Said(one, Word.CLASS, "dune") for one in (1, 3)]
        give(store, said, who="ada", action="answers-1")
        with sender(store, f"file:{tmp_path / 'target'}", **only("class.discovered")):
            tell()
            to, mail = box.mails.get(timeout=PATIENCE)
    assert to == ["ada@example.org", "bo@example.org"]
    assert str(mail["Subject"]).startswith("conclad: New class dune")
    [text, *_] = [part for part in mail.walk() if part.get_content_type() == "text/plain"]
    assert f"{DESK}/classes#class-3" in str(text.get_payload())
    pictures = [part for part in mail.walk() if part.get_content_type() == "image/jpeg"]
    assert 2 <= len(pictures) <= 4, "those that people gave the name to, then others of the class"


def test_questions_come_with_pictures_of_what_is_asked(tmp_path: Path) -> None:
    with Store.open(tmp_path / "state") as store, Mailbox() as box:
        world.fit(store)
        with sender(store, box.address, **only("questions.opened")):
            world.ask(store, 6)
            _, mail = box.mails.get(timeout=PATIENCE)
    pictures = [part for part in mail.walk() if part.get_content_type() == "image/jpeg"]
    assert len(pictures) == 4
    data = pictures[0].get_payload(decode=True)
    assert isinstance(data, bytes)
    assert data.startswith(b"\xff\xd8")


def tell(store: Store, kind: str, **payload: object) -> None:
    with store.transaction() as tx:
        tx.events.append(kind, payload, source="cam-1")


def test_events_gather_into_one_message(tmp_path: Path) -> None:
    with Store.open(tmp_path / "state") as store, Receiver() as receiver:
        url = f"slack+{receiver.url}"
        with sender(store, url, digest_minutes=10.0):
            tell(store, "drift.detected", words=["blurred"])
            tell(store, "budget.exhausted")
            with pytest.raises(queue.Empty):
                receiver.messages.get(timeout=0.5)
        late = datetime.now(UTC) + timedelta(minutes=11)
        with sender(store, url, digest_minutes=10.0, now=late):
            body = receiver.next().json
        assert body["text"] == "2 things happened"
        assert receiver.messages.empty()


def test_nobody_is_woken_except_by_what_is_urgent(tmp_path: Path) -> None:
    night = datetime.now(UTC).replace(hour=23)
    options: dict[str, Any] = {"quiet_hours": "22:00-07:00", "urgent": ("class.discovered",)}
    with (
        Store.open(tmp_path / "state") as store,
        Receiver() as receiver,
        sender(store, f"slack+{receiver.url}", now=night, **options),
    ):
        tell(store, "drift.detected", words=["blurred"])
        with pytest.raises(queue.Empty):
            receiver.messages.get(timeout=0.5)
        tell(store, "class.discovered", class_id="c", name="dune", human=3, pseudo=9)
        assert receiver.next().json["text"] == "2 things happened"
    assert is_quiet(NOON, "09:00-17:00", "UTC")
    assert not is_quiet(NOON, "22:00-07:00", "Europe/Berlin")


def test_what_happened_at_night_is_one_message_in_the_morning(tmp_path: Path) -> None:
    night = datetime.now(UTC).replace(hour=23, minute=0)
    morning = night + timedelta(hours=9)
    options: dict[str, Any] = {"quiet_hours": "22:00-07:00", "digest_minutes": 5.0}
    with Store.open(tmp_path / "state") as store, Receiver() as receiver:
        url = f"ntfy+{receiver.url}"
        with sender(store, url, now=night, **options):
            tell(store, "drift.detected", words=["blurred"])
            tell(store, "budget.exhausted")
            with pytest.raises(queue.Empty):
                receiver.messages.get(timeout=0.5)
        with sender(store, url, now=morning, **options):
            message = receiver.next()
        assert message.headers["Title"] == "2 things happened"
        assert b"blurred" in message.body
        assert receiver.messages.empty()


def test_what_a_target_refuses_is_sent_again(tmp_path: Path) -> None:
    answers = iter([500, 503, 200])
    with (
        Store.open(tmp_path / "state") as store,
        Receiver(lambda _: next(answers)) as receiver,
        sender(store, f"slack+{receiver.url}"),
    ):
        tell(store, "budget.exhausted")
        bodies = [receiver.next().body for _ in range(3)]
    assert len(set(bodies)) == 1


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("pigeon+https://x", "no kind of target"),
        ("https://x", "no kind of target"),
        ("smtp://host/", "add the receiver"),
        ("file:/does/not/exist", "cannot be read"),
    ],
)
def test_a_target_that_cannot_be_is_refused(address: str, words: str) -> None:
    with pytest.raises(WebhookRefused, match=words):
        open_target(address)


def test_the_name_of_a_target_holds_no_secret() -> None:
    target = open_target("slack+https://hooks.slack.com/services/T0/B0/topsecret")
    assert "topsecret" not in target.name
    mail = open_target("smtp://ada:topsecret@mail.example/?to=bo@example.org")
    assert "topsecret" not in mail.name
