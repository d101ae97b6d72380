"""Which sources should have sent something by now.

Decided here, for every source, and not by an alert rule over a series for each of them: the page
shows a bounded number of sources, and a rule over series forgets what it knew when the monitor
moves to another pod.

What is kept of a source is in which of the last hours it sent, one bit an hour. A source is silent

- after an hour, if it sent all the time: in all but two of the 24 hours before;
- after two whole hours in which it sent on each of the days before (at least two are known), so
  that a camera that works in daylight is missed by day and not by night;
- after two days in any case.

Time in which no monitor looked counts neither for nor against anybody: after a pause the first two
rules wait until they have looked for an hour. A new source is watched by the first rule from its
second day on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

HOUR = 3600

#: A week by the time of day, and the day before it, against which "all the time" is judged.
KEPT_HOURS = 8 * 24
_DAY = 24
_DAYS = 7
_KEPT = (1 << KEPT_HOURS) - 1
_ONE_DAY = (1 << _DAY) - 1

#: "All the time" allows for two hours of maintenance a day, and needs most of a day to be known.
STEADY_MISSES, STEADY_KNOWN = 2, 20
#: Dusk moves by an hour within weeks, so one missed hour of the day says nothing yet; two do.
MISSED_HOURS = 2
#: Looks that are further apart leave a time in which nobody looked. Longer than a pod takes to be
#: replaced, and than a Prometheus takes to restart.
PAUSE = timedelta(minutes=15)
#: However rarely a source sends: after this long somebody should know.
LONGEST_SECONDS = 2 * 86_400
#: A source that has been silent for longer is most likely gone, and named after the others.
GONE_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Silent:
    """A source that should have sent, and how long ago it last did."""

    source: str
    seconds: float


@dataclass(slots=True)
class Pace:
    """In which hours each source sent. Bit 0 is ``hour``, bit n the hour n before it.

    >>> from datetime import UTC
    >>> pace = Pace()
    >>> for minutes in range(0, 25 * 60, 10):
    ...     at = datetime(2024, 5, 17, tzinfo=UTC) + timedelta(minutes=minutes)
    ...     last = {"cam-1": min(at, datetime(2024, 5, 17, 23, 0, tzinfo=UTC))}
    ...     _ = pace.look(at, last)
    >>> pace.silent(at, last)
    (Silent(source='cam-1', seconds=6600.0),)
    """

    hour: int = 0
    observed: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """The hour from which on a source is known."""
    since: datetime | None = None
    """Since when somebody has looked without a pause."""
    at: datetime | None = None
    """The last look."""

    @classmethod
    def from_notes(cls, hours: Any, looks: Any) -> Self:
        """Restores what :meth:`hours` and :meth:`looks` returned; anything else is ignored."""
        try:
            found = cls(
                int(hours["hour"]),
                int(hours["observed"], 16),
                {str(name): int(bits, 16) for name, (_, bits) in hours["sent"].items()},
                {str(name): int(first) for name, (first, _) in hours["sent"].items()},
            )
            found.since, found.at = (datetime.fromisoformat(looks[k]) for k in ("since", "at"))
        except (TypeError, KeyError, ValueError, AttributeError):
            return cls()
        return found

    def hours(self) -> dict[str, Any]:
        """The large note, which changes with the hour."""
        sent = {name: [self.first[name], f"{bits:x}"] for name, bits in self.sent.items()}
        return {"hour": self.hour, "observed": f"{self.observed:x}", "sent": sent}

    def looks(self) -> dict[str, Any]:
        """The small note: without it every restart would look like a pause."""
        assert self.since is not None
        assert self.at is not None
        return {"since": self.since.isoformat(), "at": self.at.isoformat()}

    def look(self, now: datetime, last: Mapping[str, datetime]) -> bool:
        """Take in when each source last sent; whether an hour has ended since the look before.

        Sources that are not in ``last`` are forgotten.
        """
        if self.since is None or self.at is None or now - self.at > PAUSE:
            self.since = now
        self.at = now
        hour = _hour(now)
        turned = hour > self.hour
        if turned:
            step = min(hour - self.hour, KEPT_HOURS)
            self.hour = hour
            self.observed = (self.observed << step) & _KEPT
            self.sent = {name: (bits << step) & _KEPT for name, bits in self.sent.items()}
        self.observed |= 1
        for name in [name for name in self.sent if name not in last]:
            del self.sent[name], self.first[name]
        for name, at in last.items():
            bit = (1 << max(self.hour - _hour(at), 0)) & _KEPT
            self.observed |= bit
            self.sent[name] = self.sent.get(name, 0) | bit
            self.first.setdefault(name, min(_hour(at), self.hour))
        return turned

    def silent(self, now: datetime, last: Mapping[str, datetime]) -> tuple[Silent, ...]:
        """The silent sources, the longest silent first; those that seem to be gone come last."""
        looked = (now - (self.since or now)).total_seconds()
        found = [
            Silent(name, seconds)
            for name, at in last.items()
            if (seconds := (now - at).total_seconds()) > HOUR
            and self._is_missed(name, self.hour - _hour(at), seconds, looked)
        ]
        return tuple(sorted(found, key=lambda s: (s.seconds > GONE_SECONDS, -s.seconds, s.source)))

    def _is_missed(self, name: str, ago: int, seconds: float, looked: float) -> bool:
        # Whole hours since the last image: neither the one it came in nor the present one.
        since = ((1 << ago) - 1) & ~1 & _KEPT
        if seconds - HOUR * (since & ~self.observed).bit_count() > LONGEST_SECONDS:
            return True
        return looked > HOUR and (
            self._sent_all_the_time(name, ago)
            or (since & self.observed & self._usual(name)).bit_count() >= MISSED_HOURS
        )

    def _sent_all_the_time(self, name: str, ago: int) -> bool:
        """In the day up to the last image."""
        known = (self._known(name) >> ago) & _ONE_DAY
        missed = known & ~(self.sent.get(name, 0) >> ago)
        return known.bit_count() >= STEADY_KNOWN and missed.bit_count() <= STEADY_MISSES

    def _known(self, name: str) -> int:
        """The hours of which it is known whether the source sent in them."""
        age = self.hour - self.first.get(name, self.hour)
        return self.observed & ((1 << min(age + 1, KEPT_HOURS)) - 1)

    def _usual(self, name: str) -> int:
        """Hours at whose time of day the source sent on every day known of it, on two at least."""
        known, sent = self._known(name), self.sent.get(name, 0)
        always, once, twice = _KEPT, 0, 0
        for day in range(1, _DAYS + 1):
            there, came = known >> (_DAY * day), sent >> (_DAY * day)
            always &= ~there | came
            twice |= once & came
            once |= came
        return always & twice


def _hour(at: datetime) -> int:
    """
    >>> from datetime import UTC
    >>> _hour(datetime(1970, 1, 2, 1, 59, tzinfo=UTC))
    25
    """
    return int(at.timestamp() // HOUR)
