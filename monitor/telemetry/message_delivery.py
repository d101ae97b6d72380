"""Tells others what happened: a signed POST to webhooks for each event, messages to people.

The timeline of the store is the queue. For every address the number of the last event that was
delivered is a note in the store, moved after the delivery: a crash in between repeats one message
and loses none. Each address has a thread of its own, so a receiver that hangs delays nobody else,
and the feed never waits for any of them. Messages to people are gathered for a while, held back at
night, and sent to each target in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy.exc import SQLAlchemyError

from monitor.config.telemetry_section import MessagesSection, WebhooksSection
from monitor.errors import ConcladError
from monitor.store import Store
from monitor.store.records import Event
from monitor.telemetry.errors import Undelivered, WebhookRefused
from monitor.telemetry.message_targets import Target, open_target
from monitor.telemetry.message_words import compose
from monitor.telemetry.store_reading import WEBHOOK_ROOM
from monitor.telemetry.webhook_target import Receiver

#: An event that could not be delivered in time; appended to the timeline.
GIVEN_UP = "webhook.given_up"

#: How often the timeline is read. Events are rare, and two seconds of delay do not matter.
POLL_SECONDS = 2.0

#: After a failure: at once is pointless, and a message that comes later than this is too late.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 300.0

#: Closing waits for a message that is on its way, but not for a receiver that hangs.
CLOSE_SECONDS = 5.0


class Receives(Protocol):
    """A receiver of events; ``name`` identifies it in notes and metrics, without secrets."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Receives)


class EventSender(Generic[R]):
    """Takes events from the timeline to receivers, each by a thread of its own."""

    def __init__(
        self,
        store: Store,
        receivers: Sequence[R],
        *,
        room: str,
        events: Sequence[str],
        give_up_hours: float,
        poll: float = POLL_SECONDS,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self.receivers = list(receivers)
        self._store = store
        self._room = room
        self._kinds = events
        self._give_up = timedelta(hours=give_up_hours)
        self._poll = poll
        self._first_pause = first_pause
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take up each address where it was left; a new one begins with what happens from now."""
        if self._threads or not self.receivers:
            return
        with self._store.transaction() as tx:
            notes = tx.notes.all(self._room)
            for gone in set(notes) - {receiver.name for receiver in self.receivers}:
                tx.notes.delete(self._room, gone)
            newest = max((event.id for event in tx.events.latest(limit=1)), default=0)
            for receiver in self.receivers:
                if receiver.name not in notes:
                    tx.notes.set(self._room, receiver.name, {"after": newest})
        self._stop.clear()
        for receiver in self.receivers:
            thread = threading.Thread(
                target=self._run, args=(receiver,), name=f"deliver-{receiver.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop; what was not delivered yet is delivered after the next start."""
        self._stop.set()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS)
        self._threads = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, receiver: R) -> None:
        troubles = 0
        while not self._stop.is_set():
            try:
                pause = self._step(receiver)
                troubles = 0
            except (ConcladError, SQLAlchemyError, OSError):
                # The store is out of reach: the monitor has greater worries, we come back.
                troubles += 1
                pause = self._pause(troubles)
            self._stop.wait(pause)

    def _step(self, receiver: R) -> float:
        """Deliver what waits; returns how long to wait before the next look."""
        raise NotImplementedError

    def _delivered(self, receiver: R, event: Event) -> None:
        with self._store.transaction() as tx:
            tx.notes.set(self._room, receiver.name, {"after": event.id})

    def _waiting(self, receiver: R) -> tuple[Sequence[Event], int]:
        with self._store.reading() as tx:
            note = tx.notes.get(self._room, receiver.name, {})
            after = int(note.get("after", 0))
            found = tx.events.after(after, kinds=self._kinds) if self._kinds else []
        return found, int(note.get("failures", 0))

    def _failed(self, receiver: R, event: Event, error: str, failures: int) -> float:
        """Record the failure and return how long to wait; events that are too old are dropped."""
        with self._store.transaction() as tx:
            if tx.now - event.at > self._give_up:
                lost = {"receiver": receiver.name, "event": event.id, "error": error}
                tx.events.append(GIVEN_UP, lost)
                tx.notes.set(self._room, receiver.name, {"after": event.id})
                return 0.0
            note = tx.notes.get(self._room, receiver.name, {})
            failed = {"failures": failures, "error": error, "at": tx.now.isoformat()}
            tx.notes.set(self._room, receiver.name, {**note, **failed})
        return self._pause(failures)

    def _pause(self, failures: int) -> float:
        return min(self._first_pause * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS)


class WebhookSender(EventSender[Receiver]):
    """One signed POST for each event; without addresses it does nothing.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp())
    >>> with WebhookSender(store, WebhooksSection()) as sender:
    ...     print(len(sender.receivers))
    0
    >>> store.close()
    """

    def __init__(
        self,
        store: Store,
        settings: WebhooksSection,
        *,
        poll: float = POLL_SECONDS,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        secret = read_secret(settings.secret_file)
        super().__init__(
            store,
            [
                Receiver(url, secret, settings.timeout_seconds)
                for url in dict.fromkeys(settings.urls)
            ],
            room=WEBHOOK_ROOM,
            events=settings.events,
            give_up_hours=settings.give_up_hours,
            poll=poll,
            first_pause=first_pause,
        )

    def _step(self, receiver: Receiver) -> float:
        events, failures = self._waiting(receiver)
        for event in events:
            try:
                receiver.deliver(event)
            except Undelivered as error:
                return self._failed(receiver, event, str(error), failures + 1)
            failures = 0
            self._delivered(receiver, event)
            if self._stop.is_set():
                break
        return self._poll


def read_secret(path: str | None) -> bytes | None:
    """The secret that messages are signed with, from its file."""
    if path is None:
        return None
    try:
        found = Path(path).expanduser().read_bytes().strip()
    except OSError as error:
        raise WebhookRefused(
            f"{path}: the secret of the webhooks cannot be read ({error.strerror}); correct "
            "webhooks.secret_file, or leave it out to send unsigned messages"
        ) from error
    if not found:
        raise WebhookRefused(
            f"{path}: the secret of the webhooks is empty; put a long random text into the file"
        )
    return found


ROOM = "messages"


def is_quiet(now: datetime, hours: str | None, zone: str) -> bool:
    """Whether people are not to be disturbed now, in their own zone.

    >>> from datetime import UTC
    >>> night = datetime(2026, 1, 1, 22, 30, tzinfo=UTC)
    >>> is_quiet(night, "22:00-07:00", "UTC"), is_quiet(night, "22:00-07:00", "America/New_York")
    (True, False)
    """
    if hours is None:
        return False
    begin, end = (time.fromisoformat(part) for part in hours.split("-"))
    clock = now.astimezone(ZoneInfo(zone)).time()
    return begin <= clock < end if begin <= end else clock >= begin or clock < end


class MessageSender(EventSender[Target]):
    """Tells people what happened; without targets it does nothing.

    >>> import tempfile
    >>> store = Store.open(tempfile.mkdtemp())
    >>> with MessageSender(store, MessagesSection(), "http://localhost:8484") as sender:
    ...     print(len(sender.receivers))
    0
    >>> store.close()
    """

    def __init__(
        self,
        store: Store,
        settings: MessagesSection,
        desk_url: str,
        *,
        poll: float = POLL_SECONDS,
        first_pause: float = FIRST_PAUSE_SECONDS,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        secret = read_secret(settings.secret_file)
        targets = [
            open_target(address, timeout=settings.timeout_seconds, secret=secret)
            for address in dict.fromkeys(settings.targets)
        ]
        super().__init__(
            store,
            targets,
            room=ROOM,
            events=settings.events,
            give_up_hours=settings.give_up_hours,
            poll=poll,
            first_pause=first_pause,
        )
        self._messages = settings
        self._desk_url = desk_url
        self._clock = clock

    def _step(self, receiver: Target) -> float:
        events, failures = self._waiting(receiver)
        if not events or not self._is_due(events):
            return self._poll
        try:
            receiver.deliver(compose(self._store, events, self._desk_url))
        except Undelivered as error:
            return self._failed(receiver, events[-1], str(error), failures + 1)
        self._delivered(receiver, events[-1])
        return self._poll

    def _is_due(self, events: Sequence[Event]) -> bool:
        """Urgent ones at once; the others when they have gathered, and not at night."""
        if any(event.kind in self._messages.urgent for event in events):
            return True
        with self._store.reading() as tx:
            now = self._clock() if self._clock else tx.now
        if is_quiet(now, self._messages.quiet_hours, self._messages.timezone):
            return False
        return now - events[0].at >= timedelta(minutes=self._messages.digest_minutes)
