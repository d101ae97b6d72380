"""Receivers are told of everything once, in order, signed, and nobody waits for them."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from pathlib import Path

import pytest

from monitor.config import ConfigError, load
from monitor.config.telemetry_section import WebhooksSection
from monitor.store import Store
from monitor.telemetry import message_delivery
from monitor.telemetry.errors import WebhookRefused
from monitor.telemetry.message_delivery import GIVEN_UP, WebhookSender
from monitor.telemetry.store_reading import StoreSummaryReader
from tests.store.conftest import Clock
from tests.telemetry import feeding
from tests.telemetry.receiving import PATIENCE, Message, Receiver


def sender(store: Store, *urls: str, **options: object) -> WebhookSender:
    settings = WebhooksSection.model_validate({"urls": urls, **options})
    return WebhookSender(store, settings, poll=0.02, first_pause=0.02)


def tell(store: Store, *names: str, kind: str = "class.discovered") -> None:
    with store.transaction() as tx:
        for name in names:
            tx.events.append(kind, {"name": name}, source="cam-1")


def until(condition: object) -> None:
    """Wait for something that another thread is about to do."""
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def cursor(store: Store) -> dict[str, object]:
    with store.reading() as tx:
        [note] = tx.notes.all("webhooks").values()
    return dict(note)


def test_a_discovery_arrives_with_all_that_is_known_of_it(store: Store) -> None:
    feeding.fit(store)
    with Receiver() as receiver, sender(store, receiver.url):
        questions = feeding.ask(store, "cam-2", count=6)
        feeding.answer(store, questions)
        feeding.discover(store, questions)
        kinds = [receiver.next().json for _ in range(3)]
    assert [found["kind"] for found in kinds] == [
        "questions.opened",
        "detector.updated",
        "class.discovered",
    ]
    discovered = kinds[2]
    assert discovered["source"] == "cam-2"
    assert discovered["payload"]["name"] == "dune"
    assert discovered["payload"]["human"] == 4


def test_messages_are_signed_so_that_a_receiver_can_check(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a long random text\n")
    with Receiver() as receiver, sender(store, receiver.url, secret_file=str(secret)):
        tell(store, "dune")
        message = receiver.next()
    signed = message.headers["X-Conclad-Timestamp"].encode() + b"." + message.body
    expected = hmac.new(b"a long random text", signed, hashlib.sha256).hexdigest()
    assert message.headers["X-Conclad-Signature"] == f"sha256={expected}"
    assert message.headers["X-Conclad-Event"] == "class.discovered"
    assert abs(int(message.headers["X-Conclad-Timestamp"]) - time.time()) < PATIENCE


def test_without_a_secret_nothing_pretends_to_be_signed(store: Store) -> None:
    with Receiver() as receiver, sender(store, receiver.url):
        tell(store, "dune")
        assert "X-Conclad-Signature" not in receiver.next().headers


@pytest.mark.parametrize("status", [500, 404, 302])
def test_what_is_not_accepted_is_sent_again_and_nothing_overtakes_it(
    store: Store, status: int
) -> None:
    answers = iter([status, status, status])
    with Receiver(lambda _: next(answers, 200)) as receiver, sender(store, receiver.url):
        tell(store, "dune", "snow")
        names = [receiver.next().json["payload"]["name"] for _ in range(5)]
        until(lambda: cursor(store) == {"after": 2})
    assert names == ["dune", "dune", "dune", "dune", "snow"]


def test_failures_are_seen_by_the_operator_and_forgotten_when_it_works_again(store: Store) -> None:
    well = threading.Event()
    with (
        Receiver(lambda _: 200 if well.is_set() else 503) as receiver,
        sender(store, receiver.url) as sending,
    ):
        [name] = [found.name for found in sending.receivers]
        tell(store, "dune")
        until(lambda: StoreSummaryReader(store).read().webhooks[name] >= 2)
        well.set()
        until(lambda: StoreSummaryReader(store).read().webhooks[name] == 0)
    assert "hook" not in name


def test_pauses_grow_and_stay_bounded(store: Store) -> None:
    waiting = WebhookSender(store, WebhooksSection())
    pauses = [waiting._pause(failures) for failures in range(1, 2000)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == message_delivery.LONGEST_PAUSE_SECONDS == pauses[-1]


def test_after_a_restart_it_goes_on_where_it_was(store: Store) -> None:
    with Receiver() as receiver:
        with sender(store, receiver.url):
            tell(store, "dune")
            assert receiver.next().json["payload"]["name"] == "dune"
            until(lambda: cursor(store) == {"after": 1})
        tell(store, "snow")
        with sender(store, receiver.url):
            assert receiver.next().json["payload"]["name"] == "snow"
            until(lambda: cursor(store) == {"after": 2})
        assert receiver.messages.empty()


def test_a_new_address_is_not_told_old_stories(store: Store) -> None:
    tell(store, "old")
    with Receiver() as receiver, sender(store, receiver.url):
        tell(store, "new")
        assert receiver.next().json["payload"]["name"] == "new"


def test_only_the_kinds_that_were_asked_for(store: Store) -> None:
    with Receiver() as receiver, sender(store, receiver.url, events=["drift.detected"]):
        tell(store, "dune")
        feeding.drifts(store, "cam-1", 2.0)
        assert receiver.next().json["kind"] == "drift.detected"


def test_a_receiver_that_hangs_holds_up_neither_the_others_nor_the_feed(store: Store) -> None:
    free = threading.Event()

    def hang(_: Message) -> int:
        free.wait(PATIENCE)
        return 200

    feeding.fit(store)
    with Receiver(hang) as hanging, Receiver() as healthy:
        try:
            with sender(store, hanging.url, healthy.url):
                tell(store, "dune")
                hanging.next()
                assert healthy.next().json["payload"]["name"] == "dune"
                feeding.judge(store)
                tell(store, "snow")
                assert healthy.next().json["payload"]["name"] == "snow"
                free.set()
        finally:
            free.set()


def test_what_cannot_be_delivered_for_too_long_is_passed_over(store: Store, clock: Clock) -> None:
    with Receiver(lambda m: 500 if m.json["payload"]["name"] == "dune" else 200) as receiver:
        with sender(store, receiver.url, give_up_hours=24):
            tell(store, "dune")
            receiver.next()
        clock.advance(hours=25)
        tell(store, "snow")
        with sender(store, receiver.url, give_up_hours=24):
            while receiver.next().json["payload"]["name"] != "snow":
                pass
        with store.reading() as tx:
            [given_up] = tx.events.latest(kinds=[GIVEN_UP])
        assert given_up.payload["event"] == 1
        assert "500" in given_up.payload["error"]


def test_a_receiver_that_is_not_there_is_tried_again(store: Store) -> None:
    with Receiver() as gone:
        url = gone.url
    with sender(store, url):
        tell(store, "dune")
        until(lambda: int(str(cursor(store).get("failures", 0))) >= 2)
    assert "cannot be reached" in str(cursor(store)["error"])


def test_an_address_that_was_taken_out_is_forgotten(store: Store) -> None:
    with Receiver() as receiver:
        with sender(store, receiver.url, "http://127.0.0.1:9/other"):
            pass
        with sender(store, receiver.url) as sending:
            [name] = [found.name for found in sending.receivers]
    assert set(StoreSummaryReader(store).read().webhooks) == {name}


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_secret_that_is_none_is_refused(
    store: Store, tmp_path: Path, content: str | None
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_text(content)
    with pytest.raises(WebhookRefused, match="secret"):
        sender(store, "http://127.0.0.1:9/", secret_file=str(secret))


def test_an_address_must_be_one_of_the_web() -> None:
    with pytest.raises(ConfigError, match="http"):
        load(None, overrides=["webhooks.urls=[file:///etc/passwd]"], environ={})
