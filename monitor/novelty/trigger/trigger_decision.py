"""When people are asked: a pool holds more that is new than chance explains, or its turn has come.

**Rounds.** A look at a pool says how strongly something new shows, in deviations of chance, for
the pool and for each source (:mod:`~.measure_pool_novelty`). Pools add up: the last two, four,
eight and sixteen are judged together, minding that all of them were put beside the same references.
What people have looked at without finding anything is the habit of a source, and no evidence again.

The promise is in the operator's unit: needless rounds a month. Every look may spend the part of it
that has accrued since the last one, and a small credit at the start of a detector version, shared
between the tests of that look. The sum of what was spent bounds the number of needless rounds to
be expected, whatever the number of pools, sources and looks.

**The trickle.** The surest way to learn whether something is new is to ask about what looks newest.
A quiet feed may spend a weekly allowance on that, a few questions a pool; when it runs short, on
the pools that look newer than the others. If such an answer names something new, the round begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import norm

from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE
from monitor.novelty.trigger.trigger_settings import TriggerSettings

WEEK, MONTH = 7 * 86400.0, 30 * 86400.0
# Strengths beyond this are as good as certain, and must stay finite numbers in JSON.
_CERTAIN = 1e6


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one look brought, in deviations of chance, and how much of it chance would bring.

    ``shifted`` has, for sources whose known classes are shifted, how likely chance alone is;
    nothing that is put beside clean references can be said of them.
    """

    strength: Mapping[str, float]
    images: int
    references: int
    shifted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a pool, and why.

    ``chance`` is how likely the evidence is if nothing is new, ``level`` what this look may
    spend of the promise. A ``probe`` asks ``questions`` and goes on only if something is new.
    """

    kind: Literal["quiet", "probe", "round"]
    chance: float
    level: float
    strength: float
    sources: tuple[str, ...] = ()
    questions: int = 0

    @property
    def triggered(self) -> bool:
        """Whether a round of questions begins."""
        return self.kind == "round"


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What is remembered between two looks. Immutable, and JSON in both directions.

    >>> calm = Evidence({EVERYWHERE: 0.3}, images=300, references=300)
    >>> silent = TriggerSettings(trickle_per_week=0)
    >>> state, found = TriggerState().decided(calm, at=0.0, settings=silent)
    >>> found.kind
    'quiet'
    >>> loud = Evidence({EVERYWHERE: 8.0}, images=300, references=300)
    >>> state.decided(loud, at=86400.0, settings=TriggerSettings())[1].kind
    'round'
    """

    tests: int = 0
    at: float | None = None
    past: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    habits: Mapping[str, float] = field(default_factory=dict)
    tokens: float | None = None
    recent: tuple[float, ...] = ()

    def decided(
        self, seen: Evidence, *, at: float, settings: TriggerSettings, closing: bool = True
    ) -> tuple[TriggerState, Decision]:
        """One more look, at POSIX time ``at``; the pool goes on filling if not ``closing``."""
        elapsed = 0.0 if self.at is None else min(max(at - self.at, 0.0), MONTH)
        tests = self.tests + 1
        level = settings.false_rounds_per_month * elapsed / MONTH
        level += settings.start_credit / (tests * (tests + 1))
        chances = self._chances(seen, settings)
        chance = min(chances.values(), default=1.0)
        strength = float(np.clip(seen.strength.get(EVERYWHERE, 0.0), -_CERTAIN, _CERTAIN))
        tokens = self._tokens(elapsed, settings)
        found = Decision("quiet", chance, level, strength)
        if chance <= level:
            over = [source for source in chances if source and chances[source] <= level]
            named = sorted(over, key=chances.__getitem__)
            found = replace(found, kind="round", sources=tuple(named))
        elif closing:
            questions = self._probe(tokens, strength, settings)
            if questions:
                found = replace(found, kind="probe", questions=questions)
        after = replace(self, tests=tests, at=at if self.at is None else max(at, self.at))
        if closing:
            after = replace(
                after,
                past=self._remembered(seen, settings),
                recent=(*self.recent, strength)[-settings.recent :],
            )
        return replace(after, tokens=tokens - found.questions), found

    def _chances(self, seen: Evidence, settings: TriggerSettings) -> dict[str, float]:
        """Of each source, how likely its evidence is by chance, made good for all the tests."""
        sources = [source for source in seen.strength if source]
        share = (1 - settings.whole) / max(len(sources) + len(seen.shifted), 1)
        parts = dict.fromkeys(sources, share)
        parts |= {EVERYWHERE: settings.whole if sources or seen.shifted else 1.0}
        beside = seen.images / max(seen.images + seen.references, 1)
        chances = {}
        for source, strength in seen.strength.items():
            row = (*self.past.get(source, ()), strength)
            habit = self.habits.get(source, 0.0)
            least = min(
                _chance(together(row[-pools:], beside) - habit, settings) / part
                for pools, part in settings.windows
                if len(row) >= pools
            )
            chances[source] = min(least / parts[source], 1.0)
        return chances | {s: min(chance / share, 1.0) for s, chance in seen.shifted.items()}

    def _remembered(
        self, seen: Evidence, settings: TriggerSettings
    ) -> dict[str, tuple[float, ...]]:
        most = max(pools for pools, _ in settings.windows) - 1
        kept = dict(self.past)
        for source, strength in seen.strength.items():
            value = round(float(np.clip(strength, -_CERTAIN, _CERTAIN)), 4)
            kept[source] = (*self.past.get(source, ()), value)[-most:]
        if len(kept) > settings.sources_most:
            strongest = sorted(kept, key=lambda s: (s != EVERYWHERE, -sum(kept[s])))
            kept = {source: kept[source] for source in strongest[: settings.sources_most]}
        return kept

    def _tokens(self, elapsed: float, settings: TriggerSettings) -> float:
        """The allowance that has gathered: a week's at most, and at the start."""
        most = float(settings.trickle_per_week)
        return most if self.tokens is None else min(self.tokens + most * elapsed / WEEK, most)

    def _probe(self, tokens: float, strength: float, settings: TriggerSettings) -> int:
        """How many questions this pool may have; scarce ones go to pools that look newer."""
        questions = int(min(settings.probe, tokens))
        scarce = tokens < settings.scarce * settings.trickle_per_week
        if scarce and self.recent and strength < float(np.median(self.recent)):
            return 0
        return questions

    def learnt(self) -> TriggerState:
        """After something new was learnt: another detector judges, evidence starts from zero."""
        return replace(self, tests=0, past={}, habits={}, recent=())

    def nothing_new(
        self, strength: Mapping[str, float], settings: TriggerSettings | None = None
    ) -> TriggerState:
        """After people found nothing new: what was seen is what nothing looks like."""
        weight = (settings or TriggerSettings()).habit
        habits = dict(self.habits)
        for source, value in strength.items():
            seen = max(float(np.clip(value, -_CERTAIN, _CERTAIN)), 0.0)
            before = habits.get(source)
            habits[source] = seen if before is None else (1 - weight) * before + weight * seen
        return replace(self, past={}, habits=habits)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "tests": self.tests,
            "at": self.at,
            "past": {source: list(row) for source, row in self.past.items()},
            "habits": dict(self.habits),
            "tokens": self.tokens,
            "recent": list(self.recent),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TriggerState:
        """What :meth:`to_dict` gave."""
        return cls(
            tests=data.get("tests", 0),
            at=data.get("at"),
            past={source: tuple(row) for source, row in data.get("past", {}).items()},
            habits=dict(data.get("habits", {})),
            tokens=data.get("tokens"),
            recent=tuple(data.get("recent", ())),
        )


def together(strengths: tuple[float, ...], beside: float) -> float:
    """Several pools as one: their noise is partly the same, that of the references.

    >>> together((2.0,), 0.5)
    2.0
    >>> 2.0 < together((2.0, 2.0), 0.5) < 2.0 * 2**0.5
    True
    """
    count = len(strengths)
    return float(sum(strengths) / np.sqrt(count + count * (count - 1) * beside))


def _chance(strength: float, settings: TriggerSettings) -> float:
    """How likely a clean pool is at least as strong."""
    return float(norm.sf((strength - settings.offset) / settings.stretch))


def threshold(level: float, pools: int = 1, settings: TriggerSettings | None = None) -> float:
    """The strength that so many pools together need at this level, if all are of one source.

    >>> 2 < threshold(1 / 30) < threshold(1 / 1000) < 6
    True
    """
    settings = settings or TriggerSettings()
    _, part = max((window, part) for window, part in settings.windows if window <= pools)
    return float(settings.offset + settings.stretch * norm.isf(min(level * part, 0.5)))
