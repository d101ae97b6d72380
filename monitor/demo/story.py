"""What happens in the feed of the demo: who sends what on which day.

Three sources send images every day. Two of them begin to show things that nobody taught the
detector: first one, later another, then two on the same day, at last one more. In between one
source gets a dirty lens, which is nothing new in the world. The third source stays as it was, to
show that nobody is bothered about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from monitor.demo.errors import TooFewImages

SOURCES = ("coast", "valley", "plateau")
QUIET = "plateau"

START = datetime(2026, 3, 1, 6, tzinfo=UTC)
"""The first image; a fixed date, so that the same seed gives the same files."""
DAYLIGHT = timedelta(hours=12)

LEAST_CLASSES = 5
"""Two to know, one that is new, and two that are new at once."""
MOST_KNOWN = 6
"""More would make learning them longer, and the story no better."""

# When and where, in units of the whole feed, of which a pool takes an eighth: each arrival has a
# pool of its own, the two that share a day share a pool. The dirty lens has two: in the first it is
# noticed, in the second it is reckoned with.
POOLS = 8
_ARRIVALS = (
    (0.125, "coast"), (0.292, "valley"), (0.625, "coast"), (0.625, "valley"), (0.75, "coast"),
)  # fmt: skip
_LENS = ("valley", 0.375, 0.625)

MOST_CLASSES = MOST_KNOWN + len(_ARRIVALS)

FRESH_SHARE = 0.5
"""Of its source's images, as long as a class is new: about a sixth of a pool."""
FRESH_DAYS = 1 / POOLS
LATER_SHARE = 0.12
MOST_NEW = 0.8
"""Of a source's images at any time, so that known classes never vanish from it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The first day of a class that the detector does not know."""

    label: str
    source: str
    day: int


@dataclass(frozen=True, slots=True)
class DirtyLens:
    """From its first day to its last, everything that a source sends is blurred and dim."""

    source: str
    first_day: int
    last_day: int

    def soils(self, source: str, day: int) -> bool:
        return source == self.source and self.first_day <= day <= self.last_day


@dataclass(frozen=True, slots=True)
class Shot:
    """One image of the feed, before it is drawn or taken from a file."""

    image_id: str
    source: str
    captured_at: datetime
    label: str
    number: int
    """Which image of its class; no two shots share one."""
    dirty: bool


@dataclass(frozen=True, slots=True)
class Story:
    """The plot.

    >>> story = Story.of(["water", "forest", "town", "harbour", "airport", "quarry"], days=20)
    >>> story.known, [(a.label, a.source, a.day) for a in story.arrivals]
    (('water', 'forest'), [('town', 'coast', 2), ('harbour', 'valley', 5), \
('airport', 'coast', 12), ('quarry', 'valley', 12)])
    """

    known: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    lens: DirtyLens
    days: int
    per_day: int
    """Images that each source sends in a day."""
    training: int
    """Labelled images of each known class."""

    @classmethod
    def of(
        cls, labels: Sequence[str], *, days: int = 24, per_day: int = 40, training: int = 60
    ) -> Story:
        """The first labels are known from the beginning, the last ones arrive one by one."""
        if len(set(labels)) < LEAST_CLASSES:
            raise TooFewImages(
                f"{len(set(labels))} classes do not make a story; give at least {LEAST_CLASSES}"
            )
        new = min(len(_ARRIVALS), len(labels) - 2)
        known = labels[: min(len(labels) - new, MOST_KNOWN)]
        # With three new classes there is one of its own and the two at once.
        moments = _ARRIVALS[:new] if new > 3 else (_ARRIVALS[0], *_ARRIVALS[2:4])
        arriving = labels[len(known) : len(known) + new]
        source, first, last = _LENS
        return cls(
            known=tuple(known),
            arrivals=tuple(
                Arrival(label, where, int(when * days))
                for label, (when, where) in zip(arriving, moments, strict=True)
            ),
            lens=DirtyLens(source, int(first * days), int(last * days) - 1),
            days=days,
            per_day=per_day,
            training=training,
        )

    @property
    def images(self) -> int:
        """Of the whole feed."""
        return self.days * self.per_day * len(SOURCES)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.known, *(arrival.label for arrival in self.arrivals))

    def day_of(self, moment: datetime) -> int:
        return (moment - START).days

    def shares(self, source: str, day: int) -> dict[str, float]:
        """How much of a source's day each class makes up."""
        fresh = max(1, round(FRESH_DAYS * self.days))
        new = {
            arrival.label: FRESH_SHARE if day < arrival.day + fresh else LATER_SHARE
            for arrival in self.arrivals
            if arrival.source == source and day >= arrival.day
        }
        much = max(1.0, sum(new.values()) / MOST_NEW)
        new = {label: share / much for label, share in new.items()}
        rest = (1 - sum(new.values())) / len(self.known)
        return {**dict.fromkeys(self.known, rest), **new}

    def shots(self, seed: int) -> list[Shot]:
        """Every image of the feed in the order of its time."""
        rng = np.random.default_rng([seed, 1])
        # The labelled images come first, so that none of them is met again.
        taken = {label: self.training if label in self.known else 0 for label in self.labels}
        shots: list[Shot] = []
        for day in range(self.days):
            for source in SOURCES:
                for label, moment in self._day(source, day, rng):
                    shots.append(
                        Shot(
                            image_id=f"{source}-{day + 1:02d}-{moment:%H%M%S}-{len(shots):05d}",
                            source=source,
                            captured_at=moment,
                            label=label,
                            number=taken[label],
                            dirty=self.lens.soils(source, day),
                        )
                    )
                    taken[label] += 1
        return sorted(shots, key=lambda shot: (shot.captured_at, shot.image_id))

    def _day(self, source: str, day: int, rng: np.random.Generator) -> list[tuple[str, datetime]]:
        shares = self.shares(source, day)
        # Shares are met exactly, up to a whole image, so that every seed tells the same story.
        edges = np.round(np.cumsum(list(shares.values())) * self.per_day).astype(int)
        counts = np.diff(edges, prepend=0)
        labels = [label for label, n in zip(shares, counts, strict=True) for _ in range(n)]
        seconds = np.sort(rng.integers(0, int(DAYLIGHT.total_seconds()), len(labels)))
        return [
            (labels[i], START + timedelta(days=day, seconds=int(second)))
            for i, second in zip(rng.permutation(len(labels)), seconds, strict=True)
        ]
