"""Messages to people: gathered for a while, held back at night, sent to each target in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from monitor.config.telemetry_section import MessagesSection
from monitor.store import Store
from monitor.store.records import Event
from monitor.telemetry.errors import Undelivered
from monitor.telemetry.message_targets import Target, open_target
from monitor.telemetry.message_words import compose
from monitor.telemetry.webhooks import (
    FIRST_PAUSE_SECONDS,
    POLL_SECONDS,
    EventSender,
    read_secret,
)

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
