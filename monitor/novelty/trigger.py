"""When a pool is worth asking about: more of it looks strange than known images explain.

Known images look strange, too, at a rate that held-out ones tell (:mod:`~.strangeness`). The
trigger bets against that rate, pool after pool and source by source: for each of several guesses
of how much more there is, it multiplies how much better the guess explains what was seen. Bets
start anew with every pool (the ``+ 1``), so evidence that began last week is not drowned by the
year before it. Such a sum of bets (a Shiryaev-Roberts detector) exceeds a threshold A falsely
only once in A pools on average, whatever the pools look like, as long as the rate holds; with
several sources the threshold is raised by their number.

The rate itself is only estimated, so the bets are against its upper end. And when people have
looked and found nothing new, what was seen then is what nothing looks like: it joins the
baseline of its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import beta

from monitor.novelty.detector import Calibration

#: All sources together: something rare may be spread over all of them.
EVERYWHERE = ""

# By how much more than the baseline's rate may lie above: a trickle, or half of the pool.
_EXCESSES = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.4])
# The rate that is bet against is exceeded by the true one with this probability.
_UNSURE = 0.2
# What a baseline remembers at most, in samples: about a pool, so that a feed may change.
_MEMORY = 5000.0
# Beyond this a bet is as good as certain; it must stay a finite number in JSON.
_CERTAIN = 600.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Samples of one source in one pool, and how many of them look strange."""

    samples: int
    above: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.samples + other.samples, self.above + other.above)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What people found nothing new in: samples and exceedances, fading."""

    samples: float = 0.0
    above: float = 0.0

    def plus(self, tally: Tally) -> Baseline:
        samples, above = self.samples + tally.samples, self.above + tally.above
        fade = min(1.0, _MEMORY / samples) if samples else 1.0
        return Baseline(samples * fade, above * fade)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The bets of every source so far. Immutable, and JSON in both directions.

    >>> calibration = Calibration(t_inner=1.0, exceedance=0.05, mean=0.5, std=0.2, count=1000)
    >>> quiet = Evidence().weighed({"cam": Tally(500, 24)}, calibration)
    >>> quiet.verdict(1000).triggered
    False
    >>> loud = quiet.weighed({"cam": Tally(500, 80)}, calibration)
    >>> loud.verdict(1000).triggered, loud.verdict(1000).sources
    (True, ('cam',))
    """

    bets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    baselines: Mapping[str, Baseline] = field(default_factory=dict)

    def weighed(self, pool: Mapping[str, Tally], calibration: Calibration) -> Evidence:
        """One more pool, by source."""
        whole = sum(pool.values(), Tally(0, 0))
        tallies = {s: t for s, t in {**pool, EVERYWHERE: whole}.items() if t.samples}
        if not tallies:
            return self
        samples = np.array([[tally.samples] for tally in tallies.values()], dtype=float)
        above = np.array([[tally.above] for tally in tallies.values()], dtype=float)
        rate = self._rates(list(tallies), calibration)[:, None]
        guess = rate + _EXCESSES * (1 - rate)
        gain = above * np.log(guess / rate) + (samples - above) * np.log((1 - guess) / (1 - rate))
        before = np.array([self.bets.get(source, _NOTHING) for source in tallies], dtype=float)
        now = np.minimum(np.logaddexp(before, 0.0) + gain, _CERTAIN).round(6)
        fresh = zip(tallies, map(tuple, now.tolist()), strict=True)
        return replace(self, bets={**self.bets, **dict(fresh)})

    def rate(self, source: str, calibration: Calibration) -> float:
        """The largest rate at which known images of a source may well look strange."""
        return float(self._rates([source], calibration)[0])

    def _rates(self, sources: Sequence[str], calibration: Calibration) -> np.ndarray:
        # Where people have looked, what they saw outweighs images held out elsewhere.
        held_out = Baseline(calibration.count, calibration.exceedance * calibration.count)
        known = [self.baselines.get(source, held_out) for source in sources]
        # Most sources share the one that was held out: each different one is reckoned once.
        upper = {b: beta.ppf(1 - _UNSURE, b.above + 1, b.samples - b.above + 1) for b in set(known)}
        rates: np.ndarray = np.clip([upper[baseline] for baseline in known], 1e-6, 0.999)
        return rates

    def verdict(self, false_alarms: float) -> Verdict:
        """Whether anybody's bets have won more than one false alarm in so many pools allows."""
        threshold = float(np.log(false_alarms * max(1, len(self.bets))))
        strength = dict(zip(self.bets, _means_of_logs(list(self.bets.values())), strict=True))
        over = sorted(
            (source for source, value in strength.items() if value > threshold),
            key=lambda source: -strength[source],
        )
        return Verdict(
            triggered=bool(over),
            sources=tuple(source for source in over if source != EVERYWHERE),
            strength=max(strength.values(), default=-np.inf),
            threshold=threshold,
        )

    def settled(self) -> Evidence:
        """After something new was learnt: the bets are off, the baselines stay."""
        return replace(self, bets={})

    def nothing_new(self, pool: Mapping[str, Tally]) -> Evidence:
        """After people found nothing new: what was seen is what nothing looks like."""
        whole = sum(pool.values(), Tally(0, 0))
        learnt = dict(self.baselines)
        for source, tally in {**pool, EVERYWHERE: whole}.items():
            learnt[source] = learnt.get(source, Baseline()).plus(tally)
        return replace(self, bets={}, baselines=learnt)

    def to_dict(self) -> dict[str, Any]:
        return {
            "bets": {source: list(bets) for source, bets in self.bets.items()},
            "baselines": {s: [b.samples, b.above] for s, b in self.baselines.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evidence:
        return cls(
            {source: tuple(bets) for source, bets in data.get("bets", {}).items()},
            {s: Baseline(*values) for s, values in data.get("baselines", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says, in natural logarithms of odds."""

    triggered: bool
    sources: tuple[str, ...]
    strength: float
    threshold: float


_NOTHING = (-np.inf,) * len(_EXCESSES)


def _means_of_logs(bets: Sequence[Sequence[float]]) -> list[float]:
    """Of several sources, the logarithm of the mean of what their logarithms stand for."""
    if not bets:
        return []
    found: list[float] = (
        np.logaddexp.reduce(np.asarray(bets), axis=1) - np.log(len(bets[0]))
    ).tolist()
    return found
